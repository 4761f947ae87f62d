"""One connection to a Kubernetes API server: requests, streams, rate limits, errors in words.

Knows no kind of job and keeps no objects.
"""
