"""The new-job form without its screen: fields, answers, spec, preflight, draft.

Draws nothing; only the draft touches the disk.
"""
