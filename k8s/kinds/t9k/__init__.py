"""The job kinds of TensorStack.

One file a kind; only `k8s.kinds` imports them.
"""
