"""A Kubernetes object as YAML, with secrets masked and managedFields folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k8s.text.redact import MARK, Redactor
from k8s.text.yaml_writer import YamlLine, yaml_lines

# Replaces a secret.
MASK = "••••"
_MANAGED = "  managedFields:"


@dataclass(frozen=True, slots=True)
class ObjectText:
    """Lines of one object."""

    lines: tuple[YamlLine, ...]
    folded: tuple[YamlLine, ...]
    """Lines with managedFields in one line."""
    managed: int
    secrets: int


def object_text(obj: Mapping[str, Any], *, shows_secrets: bool = False) -> ObjectText:
    """Return the YAML of an object; takes up to a second for the largest ones, so run it in a thread."""
    masked = 0

    def say(text: str) -> str:
        nonlocal masked
        hidden, found = MARK.subn(MASK, text)
        masked += found > 0
        return hidden

    lines = yaml_lines(obj) if shows_secrets else yaml_lines(_without_secrets(obj), say)
    folded, managed = fold(lines)
    return ObjectText(tuple(lines), tuple(folded), managed, masked)


def _without_secrets(obj: Mapping[str, Any]) -> dict[str, Any]:
    # managedFields names fields and holds no values.
    meta = obj.get("metadata")
    managed = meta.get("managedFields") if isinstance(meta, Mapping) else None
    if managed is None or not isinstance(meta, Mapping):
        found: dict[str, Any] = Redactor().object(obj)
        return found
    found = Redactor().object({**obj, "metadata": {**meta, "managedFields": None}})
    found["metadata"]["managedFields"] = managed
    return found


def is_fold(line: YamlLine) -> bool:
    """Return True if a line replaces folded ones."""
    return line.text.startswith(f"{_MANAGED} … ")


def fold(lines: Sequence[YamlLine]) -> tuple[list[YamlLine], int]:
    """Fold metadata.managedFields; return the lines and the number of folded ones."""
    is_meta, start = False, -1
    for index, line in enumerate(lines):
        if not line.text.startswith(" "):
            is_meta = line.text == "metadata:"
        elif is_meta and line.text == _MANAGED:
            start = index
            break
    if start < 0:
        return list(lines), 0
    end = start + 1
    while end < len(lines) and lines[end].text.startswith(("  -", "   ")):
        end += 1
    count = end - start - 1
    words = f"{_MANAGED} … {count:,} lines folded"
    return [*lines[:start], YamlLine(words, 2, len(_MANAGED)), *lines[end:]], count
