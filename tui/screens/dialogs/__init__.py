"""Dialogs: confirmations, prompts, help, palette, themes.

They return an answer and change nothing themselves.
"""
