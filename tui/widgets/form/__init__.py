"""Form fields, and the ones that the new-job form is made of.

Knows no screen; says what is typed by message.
"""
