"""The new-job form without its screen: fields, form state, spec, preflight, draft, YAML.

Draws nothing; only the draft touches the disk.
"""
