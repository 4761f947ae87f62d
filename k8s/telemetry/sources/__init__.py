"""Who tells what GPUs, nodes and pods do: DCGM exporters, Prometheus, metrics.k8s.io.

Finds them, reads them through the API server, and makes readings of what they say; keeps no history.
"""
