"""What is asked of single nodes, and changed on them: how their GPUs are linked, how they are given to pods.

Reads and writes by the API and by commands in pods; what the answers mean is in `k8s.topology`.
"""
