"""Job logic without drawing: filters, events, plans to change jobs.

Pure, except for the verbs, which send requests.
"""
