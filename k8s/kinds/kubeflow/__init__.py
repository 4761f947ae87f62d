"""The job kinds of Kubeflow's operators, and of Arena where they share a group.

One file a kind; only `k8s.kinds` imports them.
"""
