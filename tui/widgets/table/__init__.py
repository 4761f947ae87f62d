"""The table: rows by key, columns, sort and filter, drawn by lines.

Knows no screen and no kind of row.
"""
