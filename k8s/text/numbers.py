"""Whole numbers in labels, annotations and other text that anybody may have written."""

from __future__ import annotations


def whole_number(text: str) -> int | None:
    """Return the number that a text is; None where it is none that a cluster would write.

    Python refuses to read a number of more than 4,300 digits, with a `ValueError`.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
