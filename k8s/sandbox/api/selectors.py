"""Label and field selectors: text from a query to a question about an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from k8s.sandbox.api.refused import bad_request
from k8s.sandbox.api.served import Served

Object = Mapping[str, Any]
Selector = Callable[[Object], bool]
"""Tells whether an object is meant."""

_TOKEN = re.compile(r"\s*(?:(==|!=|=|!|,|\(|\)|[^\s=!,()<>]+))")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def from_query(served: Served, labels: str, fields: str) -> Selector | None:
    """Return what both selectors ask together; None when they ask nothing.

    Raises:
        Refused: One of them cannot be read, or this kind cannot be selected by that field.
    """
    asked = [*label_requirements(labels), *field_requirements(served, fields)]
    return (lambda obj: all(holds(obj) for holds in asked)) if asked else None


def label_requirements(text: str) -> list[Selector]:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Source: apimachinery's `labels/selector.go`.
    """
    tokens = _tokens(text)
    found: list[Selector] = []
    at = 0

    def take(expected: str = "") -> str:
        nonlocal at
        token = tokens[at] if at < len(tokens) else ""
        if expected and token != expected:
            raise bad_request(f"unable to parse requirement: found '{token}', expected: '{expected}'")
        at += 1
        return token

    while at < len(tokens):
        absent = tokens[at] == "!"
        if absent:
            take()
        key = take()
        if not _LABEL_KEY.fullmatch(key):
            raise bad_request(f"unable to parse requirement: found '{key}', expected: identifier")
        operator = tokens[at] if at < len(tokens) else ""
        if absent or operator in ("", ","):
            found.append(_label(key, _absent if absent else _present))
        elif operator in ("=", "==", "!="):
            take()
            wanted = take() if at < len(tokens) and tokens[at] != "," else ""
            found.append(_label(key, _among({wanted}, negated=operator == "!=")))
        elif operator in ("in", "notin"):
            take()
            take("(")
            values = set()
            while True:
                # An empty value, as in `in (a,)`, is a value too.
                values.add(take() if at < len(tokens) and tokens[at] not in (",", ")") else "")
                if at < len(tokens) and tokens[at] == ",":
                    take()
                    continue
                take(")")
                break
            found.append(_label(key, _among(values, negated=operator == "notin")))
        else:
            raise bad_request(
                f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !="
            )
        if at < len(tokens):
            take(",")
            if at == len(tokens):
                raise bad_request("unable to parse requirement: found '', expected: identifier after ','")
    return found


def field_requirements(served: Served, text: str) -> list[Selector]:
    """Read a field selector: `status.phase!=Failed,spec.nodeName=a`."""
    found: list[Selector] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = re.fullmatch(r"(.+?)(!=|==|=)(.*)", part)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        path, operator, wanted = match.groups()
        if path not in ("metadata.name", "metadata.namespace", *served.fields):
            raise bad_request(f"field label not supported: {path}")
        found.append(_field(path, wanted, negated=operator == "!="))
    return found


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise bad_request(
                f"unable to parse requirement: found '{text[at:].strip()[:1]}', expected: identifier"
            )
        tokens.append(match[1])
        at = match.end()
    return tokens


def _label(key: str, holds: Callable[[str | None], bool]) -> Selector:
    return lambda obj: holds((obj["metadata"].get("labels") or {}).get(key))


def _absent(value: str | None) -> bool:
    return value is None


def _present(value: str | None) -> bool:
    return value is not None


def _among(values: set[str], *, negated: bool) -> Callable[[str | None], bool]:
    for value in values:
        if not _LABEL_VALUE.fullmatch(value):
            raise bad_request(f'unable to parse requirement: values: Invalid value: "{value}"')
    return lambda value: (value in values) != negated


def _field(path: str, wanted: str, *, negated: bool) -> Selector:
    steps = path.split(".")

    def holds(obj: Object) -> bool:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, Mapping) else None
        if path == "source":
            value = (obj.get("source") or {}).get("component")
        return (_text(value) == wanted) != negated

    return holds


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
