"""Scheduling arithmetic: requests of pods, feasible nodes, capacity for gangs.

Pure, and shared by diagnosis, preflight, the sandbox's scheduler and the form.
"""
