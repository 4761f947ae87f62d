"""GPUs of nodes: measurements, links, and sets of GPUs with fast links.

Measurements come from DCGM `exporters` and `prometheus`; only `reader` knows all sources. Every number
has its source and time; unknown values are None, never 0. Only visible nodes are polled, and refused
requests are not repeated at once. `ack` and `nvml` read links; `gpu_links` fetches and parses the others.
"""
