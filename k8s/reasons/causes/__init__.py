"""Rules that find causes: functions from `Evidence` to a `Cause` or None.

Pure: nothing here sends requests, and no rule knows the order in which they run.
"""
