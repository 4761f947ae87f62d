"""Job kinds of Kubeflow.

One file per kind; only `k8s.kinds` imports them.
"""
