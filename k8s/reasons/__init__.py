"""Causes that keep a job from starting, whether it waits or does not exist yet.

`cluster_checks`, `object_checks` and `static_checks` find them before a job is created. Read only:
anything that the user may not read is not checked.
"""
