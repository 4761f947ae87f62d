"""Untrusted text: sanitising, redaction, YAML, and reading of files that users name.

Pure except for `home`, which reads files.
"""
