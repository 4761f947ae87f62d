"""Job kinds of TensorStack.

One file per kind; only `k8s.kinds` imports them.
"""
