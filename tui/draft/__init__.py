"""The new-job form without its screen: fields, model, spec, preflight, draft, YAML.

Draws nothing; only drafts and templates touch the disk.
"""
