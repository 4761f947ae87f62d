"""The log: lines of many ranks, drawn by lines while they arrive.

Knows no screen and opens no stream.
"""
