"""The console and the one-shot commands: everything that a user sees.

May use `k8s`, `themes`, and of `trainer` the catalogue and event files; nobody imports it.
"""
