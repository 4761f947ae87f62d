"""Dialogs: confirmations, prompts, help, palette, jump, themes.

They return an answer and change nothing themselves.
"""
