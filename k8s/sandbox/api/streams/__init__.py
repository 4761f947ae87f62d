"""Logs, exec and port-forward of pods, over HTTP and websockets.

Reads what the node agent writes; changes no object.
"""
