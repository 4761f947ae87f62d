"""The views that are read or filled in: text, YAML, info, the new-job form, a manifest.

They submit nothing themselves; they return what was typed.
"""
