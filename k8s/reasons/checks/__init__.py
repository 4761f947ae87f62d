"""Checks of a job before it is created, by the rules that explain a waiting one.

Read only: anything that the user may not read is not checked.
"""
