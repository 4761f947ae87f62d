"""YAML writer for display: fast for megabytes, with multi-line texts as literal blocks.

PyYAML folds and quotes texts in ways that are hard to read, and takes seconds for the largest
objects that etcd can hold. This writer supports only JSON values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from k8s.text.sanitize import UNSAFE

# Texts that need no quotes, except `_WORDS` and those that end in a space.
_PLAIN = re.compile(r"(?:--?[A-Za-z]|[A-Za-z_/•])[\w ./@+=,()•-]*(?::[\w./@+=,()•-]+)*|[0-9]+(?:m|[KMGT]i?)")
# YAML 1.1 parsers read these as booleans or null.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNWRITABLE = re.compile(f"{UNSAFE.pattern}|[\ufffe\uffff]")
_DEEPEST = 200


class YamlLine(NamedTuple):
    """One line, and the position of its field name."""

    text: str
    name_start: int = 0
    name_end: int = 0
    """Position after the colon; 0 if the line has no field name."""


def yaml_lines(obj: Any, write_text: Callable[[str], str] = str) -> list[YamlLine]:
    """Write a JSON value as lines of YAML.

    Args:
        obj: Mappings, lists, texts, numbers, booleans, None.
        write_text: Called with every string value; returns the text to write for it.
    """
    return list(_block(obj, "", "", write_text))


def to_yaml(obj: Any) -> str:
    """Return a JSON value as YAML."""
    return to_text(yaml_lines(obj))


def to_text(lines: list[YamlLine]) -> str:
    """Join lines into a document that ends with a newline."""
    return "\n".join([line.text for line in lines]) + "\n"


def _block(value: Any, indent: str, first: str, write_text: Callable[[str], str]) -> Iterator[YamlLine]:
    """Write a value; its first line begins with `first` in place of the indent.

    `first` is the dash of a list item, or empty.
    """
    if isinstance(value, Mapping) and value and len(indent) < _DEEPEST:
        start = first or indent
        for key, held in value.items():
            name = f"{start}{_scalar(str(key))}:"
            yield from _field(name, len(start), held, indent, write_text)
            start = indent
    elif isinstance(value, (list, tuple)) and value and len(indent) < _DEEPEST:
        start = first or indent
        for held in value:
            yield from _block(held, f"{indent}  ", f"{start}- ", write_text)
            start = indent
    else:
        written, *more = _leaf(value, indent or "  ", write_text)
        yield YamlLine(f"{first or indent}{written}")
        yield from map(YamlLine, more)


def _field(
    name: str, start: int, value: Any, indent: str, write_text: Callable[[str], str]
) -> Iterator[YamlLine]:
    end = len(name)
    if isinstance(value, Mapping) and value and len(indent) < _DEEPEST:
        yield YamlLine(name, start, end)
        yield from _block(value, f"{indent}  ", "", write_text)
    elif isinstance(value, (list, tuple)) and value and len(indent) < _DEEPEST:
        yield YamlLine(name, start, end)
        yield from _block(value, indent, "", write_text)  # as kubectl writes lists: no further to the right
    else:
        written, *more = _leaf(value, f"{indent}  ", write_text)
        yield YamlLine(f"{name} {written}", start, end)
        yield from map(YamlLine, more)


def _leaf(value: Any, indent: str, write_text: Callable[[str], str]) -> list[str]:
    if not isinstance(value, str):
        return [_plain(value)]
    text = write_text(value)
    if "\n" not in text or not (header := _literal(text)):
        return [_scalar(text)]
    lines = text.removesuffix("\n").split("\n")
    return [header, *[f"{indent}{line}" if line else "" for line in lines]]


def _plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, ensure_ascii=True)  # empty, or deeper than anybody reads
    return json.dumps(value)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not text.endswith(" "):
        return text
    return _UNWRITABLE.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\U{code:08X}" if code > 0xFFFF else f"\\u{code:04X}"


def _literal(text: str) -> str:
    if text[0] in " \n\t" or _UNWRITABLE.search(text.replace("\n", "").replace("\t", "")):
        return ""
    if not text.endswith("\n"):
        return "|-"
    return "|" if not text.endswith("\n\n") else "|+"
