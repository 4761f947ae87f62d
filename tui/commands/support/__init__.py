"""What the one-shot commands share: connection, arguments, output, questions.

No command of its own; no textual.
"""
