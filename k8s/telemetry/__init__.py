"""What GPUs really do: read from DCGM exporters, Prometheus and metrics.k8s.io, kept for a while, judged.

Every number comes with its source and the moment it was read; what is not known is None, never 0.
Asks only of the nodes that somebody looks at, and nothing again that this user may not read.
"""
