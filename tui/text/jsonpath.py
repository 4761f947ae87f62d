"""Paths in JSON, in kubectl's syntax: names, `['name']`, indexes, and `*` for every member.

`.metadata.labels.team`, `.nodes[0]`, `['metadata']['labels']['a.b/c']`. Missing keys give nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

_STEP = re.compile(
    r"\.(?P<name>(?:\\.|[^.\[\]\\\s'\"{}])+)"
    r"|\.?\[(?:(?P<index>-?\d{1,9})|(?P<every>\*)|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")\]"
)
Step = str | int | None
"""Key of an object, index of a list, or None for every member."""


def parse_path(text: str) -> list[Step]:
    """Parse a path such as `.instances[*].name`; the leading dot, `$` or `@` may be left out.

    Raises:
        ValueError: The text is not a path.
    """
    text = text.strip().lstrip("$@")
    text = text if text[:1] in (".", "[", "") else f".{text}"
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f"unexpected {text[at:]!r} in {text!r}")
        at = found.end()
        if name := found["name"]:
            steps.append(None if name == "*" else re.sub(r"\\(.)", r"\1", name))
        elif found["index"]:
            steps.append(int(found["index"]))
        else:
            steps.append(None if found["every"] else found["single"] or found["double"] or "")
    return steps


def find(path: Iterable[Step], value: Any) -> Sequence[Any]:
    """Return all values that a path finds."""
    found: Sequence[Any] = (value,)
    for step in path:
        found = [each for one in found for each in _members(one, step)]
    return found


def _members(value: Any, step: Step) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values() if step is None else (value[step],) if step in value else ()
    if not isinstance(value, list) or isinstance(step, str):
        return ()
    if step is None:
        return value
    return (value[step],) if -len(value) <= step < len(value) else ()


def text_of(value: Any) -> str:
    """Return a value as kubectl prints it: strings bare, objects and lists as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
