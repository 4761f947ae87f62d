"""Label and field selectors: text from a query to a question about an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from k8s.sandbox.api.api_errors import bad_request
from k8s.sandbox.api.served import ServedResource

Object = Mapping[str, Any]
Selector = Callable[[Object], bool]
"""Tells whether an object is meant."""

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_KEY})"
    rf"(?:\s*(?P<equals>==?|!=)\s*(?P<value>{_VALUE})"
    rf"|\s+(?P<among>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\))?\s*"
)
"""One requirement of a label selector."""


def from_query(served: ServedResource, labels: str, fields: str) -> Selector | None:
    """Return what both selectors ask together; None when they ask nothing.

    Raises:
        ApiError: One of them cannot be read, or this kind cannot be selected by that field.
    """
    asked = [*label_requirements(labels), *field_requirements(served, fields)]
    return (lambda obj: all(holds(obj) for holds in asked)) if asked else None


def label_requirements(text: str) -> list[Selector]:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Source: apimachinery's `labels/selector.go`.
    """
    found: list[Selector] = []
    at = 0 if text.strip() else len(text) + 1
    while at <= len(text):
        match = _REQUIREMENT.match(text, at)
        end = match.end() if match is not None else at
        is_negated_twice = match is not None and match["absent"] and (match["equals"] or match["among"])
        if match is None or is_negated_twice or text[end : end + 1] not in ("", ","):
            raise bad_request(
                f"unable to parse requirement: found '{text[end:]}', expected: a label, in, notin, =, ==, !="
            )
        found.append(_label(match))
        at = end + 1
    return found


def field_requirements(served: ServedResource, text: str) -> list[Selector]:
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


def _label(match: re.Match[str]) -> Selector:
    """Return what one requirement asks."""
    key = match["key"]
    if match["equals"]:
        values = {match["value"]}
    elif match["among"]:
        # An empty value, as in `in (a,)`, is a value too.
        values = {value.strip() for value in match["values"].split(",")}
    else:
        is_wanted = not match["absent"]
        return lambda obj: (key in (obj["metadata"].get("labels") or {})) == is_wanted
    is_wanted = match["equals"] != "!=" and match["among"] != "notin"
    return lambda obj: ((obj["metadata"].get("labels") or {}).get(key) in values) == is_wanted


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
