"""Sort orders for people: names with numbers, and tags of curves."""

from __future__ import annotations

import re

_FIRST_TAGS = ("loss", "train/loss")
_DIGITS = re.compile("[0-9]+")


def natural_key(text: str) -> str:
    """Return a sort key that puts `worker-2` before `worker-10`."""
    return _DIGITS.sub(_counted, text.casefold())


def tag_key(tag: str) -> tuple[int, str, str]:
    """Return the sort key of a curve's tag: loss, other losses, accuracies, then the others."""
    return _rank(tag.casefold()), natural_key(tag), tag


def _rank(tag: str) -> int:
    if tag in _FIRST_TAGS:
        return _FIRST_TAGS.index(tag)
    if "loss" in tag:
        return 3 if "val" in tag else 2
    return 4 if "acc" in tag else 5


def _counted(found: re.Match[str]) -> str:
    # The number of digits comes first, so that texts compare as numbers do.
    digits = found.group().lstrip("0")
    return chr(ord("0") + len(digits)) + digits
