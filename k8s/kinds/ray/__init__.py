"""Job kinds of KubeRay.

One file per kind; only `k8s.kinds` imports them.
"""
