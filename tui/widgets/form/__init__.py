"""Form fields, and the parts of the new-job form.

Knows no screen; what is typed is posted as messages.
"""
