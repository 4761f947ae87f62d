"""Sort orders for people: names with numbers, and tags of curves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from k8s.text.lazy_pattern import lazy_pattern

_FIRST_TAGS = ("loss", "train/loss", "train_loss", "total_loss", "loss/total")
_WHOLE_LOSS = lazy_pattern(
    r"(?:^|[/.])(?:(?:train|avg|average|mean|running|overall|total|tot)_)*loss$|total_loss|loss(?:/\w+)?[/_]\w*total$"
)
_OTHER_SPLIT = lazy_pattern(r"(?<![a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?![a-z])")
_SEPARATOR = lazy_pattern(r"(?<!\de)[-_./ ](?!e\d)")
_DIGITS = lazy_pattern("[0-9]+")


def natural_key(text: str) -> str:
    """Return a sort key that puts `worker-2` before `worker-10`."""
    return _DIGITS.sub(_counted, text.casefold())


def tag_key(tag: str) -> tuple[int, str, str]:
    """Return the sort key of a curve's tag: loss, other losses, accuracies, then the others."""
    return tag_rank(tag), natural_key(tag), tag


def tag_rank(tag: str) -> int:
    """Return the rank of a tag by its kind; the loss of training ranks first."""
    tag = tag.casefold()
    if tag in _FIRST_TAGS:
        return _FIRST_TAGS.index(tag)
    if "loss" in tag:
        return 7 if _OTHER_SPLIT.search(tag) else 5 if _WHOLE_LOSS.search(tag) else 6
    return 8 if "acc" in tag else 9


def _counted(found: re.Match[str]) -> str:
    # The number of digits comes first, so that texts compare as numbers do.
    digits = found.group().lstrip("0")
    return chr(ord("0") + len(digits)) + digits


def tell_apart(names: Sequence[str]) -> list[str]:
    """Return the names without the words at their start and end that all of them share."""
    if len(set(names)) < 2:
        return list(names)
    start = _shared(names)
    end = _shared([name[start:][::-1] for name in names])
    return [name[start : len(name) - end] for name in names]


def _shared(names: Sequence[str]) -> int:
    # Characters up to the last separator that all names share, with a rest of each name left over.
    # A minus in a number such as 1e-3 is no separator, in either direction.
    columns = enumerate(zip(*names, strict=False))
    most = next((at for at, column in columns if len(set(column)) > 1), min(map(len, names)) - 1)
    return max((found.end() for found in _SEPARATOR.finditer(names[0]) if found.end() <= most), default=0)
