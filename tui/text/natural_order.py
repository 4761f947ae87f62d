"""Orders in which people look for words: names with numbers, and the tags of curves."""

from __future__ import annotations

import re

_FIRST_TAGS = ("loss", "train/loss")
_DIGITS = re.compile("[0-9]+")


def natural_key(text: str) -> str:
    """Return a text that sorts where people look for this one: `worker-2` before `worker-10`."""
    return _DIGITS.sub(_counted, text.casefold())


def tag_key(tag: str) -> tuple[int, str, str]:
    """Return what the tag of a curve is sorted by: `loss` first, then losses, accuracies and the others."""
    return _rank(tag.casefold()), natural_key(tag), tag


def _rank(tag: str) -> int:
    if tag in _FIRST_TAGS:
        return _FIRST_TAGS.index(tag)
    if "loss" in tag:
        return 3 if "val" in tag else 2
    return 4 if "acc" in tag else 5


def _counted(found: re.Match[str]) -> str:
    """Put before a number how many digits it has, so that texts compare as numbers do."""
    digits = found.group().lstrip("0")
    return chr(ord("0") + len(digits)) + digits
