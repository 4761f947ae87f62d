"""GPU, node and pod measurements from DCGM exporters, Prometheus and metrics.k8s.io.

Every number has its source and time; unknown values are None, never 0. Only visible nodes are
polled, and refused requests are not repeated at once. Sources: `exporters`, `prometheus` and
`metrics_server`; only `reader` knows them all.
"""
