"""What we know of jobs without drawing: filters, events, plans to delete and suspend.

Pure: asks no server.
"""
