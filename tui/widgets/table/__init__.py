"""The table widget: rows by key, with columns, sorting and filters, drawn line by line.

Knows no screen and no kind of row.
"""
