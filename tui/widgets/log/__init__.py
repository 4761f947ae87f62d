"""The log widget: lines of many ranks, drawn line by line as they arrive.

Knows no screen and opens no stream.
"""
