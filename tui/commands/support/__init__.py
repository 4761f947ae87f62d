"""Shared parts of the one-shot commands: connection, arguments, output, prompts.

No textual.
"""
