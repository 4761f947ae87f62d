"""Logs, exec and port-forward of pods.

Reads the node agent's files and changes no object.
"""
