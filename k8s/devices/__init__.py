"""What counts as an accelerator, and how many of them pods hold and nodes have.

Pure: reads decoded objects, joins nothing.
"""
