"""The views that are one table: jobs, nodes, who holds GPUs, events, volumes, namespaces, contexts.

They show what they are given and ask the app for everything else.
"""
