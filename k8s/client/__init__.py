"""One connection to a Kubernetes API server: requests, streams, rate limits, explained errors.

Knows no job kinds and stores no objects.
"""
