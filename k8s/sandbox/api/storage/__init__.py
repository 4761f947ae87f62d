"""The objects, by key, version, owner and selector.

Knows no rules of any kind.
"""
