"""The files that the console reads and writes: configuration, keys, tables, bundles.

Reads and writes them whole; draws nothing.
"""
