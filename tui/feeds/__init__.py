"""Live data for views: the cluster, a list, an object, curves, the events of a job.

Feeds talk to `k8s` and publish frozen values; they draw nothing.
"""
