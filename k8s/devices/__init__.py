"""What counts as an accelerator, and what pods and nodes say of theirs.

Pure: reads decoded objects, joins nothing.
"""
