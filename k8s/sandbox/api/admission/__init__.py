"""Checks and changes of an object before it is stored.

Knows the store, no HTTP.
"""
