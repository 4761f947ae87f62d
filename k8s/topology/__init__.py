"""How the GPUs of a node are linked, which of them work best together, and which nodes are near each other.

Reads what NVML, `nvidia-smi topo -m` and Alibaba Cloud's ConfigMap tell, and labels of nodes. Pure but
for NVML: asks no cluster, which `k8s.nodes` does.
"""
