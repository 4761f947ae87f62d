"""Form fields, and the parts of the new-job form.

No widget here knows a screen; input is posted as messages.
"""
