"""What is typed after `/`, as k9s understands it: a regular expression, or with `!` what to leave out."""

from __future__ import annotations

import re
from collections.abc import Callable


def matcher(typed: str) -> Callable[[str], bool] | None:
    """Return a test for texts, ignoring case; None when nothing is typed.

    What is no regular expression is looked for as it stands.
    """
    words = typed.strip()
    leaves_out = words.startswith("!")
    words = words.removeprefix("!")
    if not words:
        return None
    try:
        pattern = re.compile(words, re.IGNORECASE)
    except re.error:
        pattern = re.compile(re.escape(words), re.IGNORECASE)
    return lambda text: (pattern.search(text) is None) is leaves_out
