"""Links between the GPUs of a node, GPU sets with fast links, and network distance of nodes.

`ack`, `smi_text` and `nvml` read the links; `gpu_links` fetches them from the cluster.
"""
