"""Keeps something live for a view: the cluster, a list, an object, curves, a preview.

Talks to `k8s` and publishes frozen values; draws nothing.
"""
