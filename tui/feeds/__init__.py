"""Live data for views: the cluster, a list, an object, curves, a preview.

Feeds talk to `k8s` and publish frozen values; they draw nothing.
"""
