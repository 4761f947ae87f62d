"""The console and the one-shot commands: everything a user sees.

May import `k8s`, `themes`, and from `trainer` the catalogue and event files.
"""
