"""The job kinds of KubeRay.

One file a kind; only `k8s.kinds` imports them.
"""
