"""Keeps collections of a cluster current by list and watch.

Decodes and retries; joins nothing and draws nothing.
"""
