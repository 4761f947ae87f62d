"""Job logic without drawing: filters, events, plans to delete and suspend.

Pure: sends no requests.
"""
