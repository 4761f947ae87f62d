"""The causes that `rules` looks for: each module a few functions from `Evidence` to a `Cause` or nothing.

Pure: nothing here fetches, and no cause knows of the order in which they are looked for.
"""
