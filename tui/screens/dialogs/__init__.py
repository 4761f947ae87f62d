"""What lies over a view and returns an answer: questions, help, palette, jump, themes.

They change nothing themselves.
"""
