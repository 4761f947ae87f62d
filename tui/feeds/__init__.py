"""Live data for views: a list, an object, curves, losses, the events of a job.

A feed reads one thing while a view shows it, and reports changes. It talks to `k8s` and draws nothing.
"""
