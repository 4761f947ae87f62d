"""Query parameters: options, label selectors and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import StatusCause
from k8s.sandbox.api.served import ServedResource

Object = Mapping[str, Any]
Selector = Callable[[Object], bool]

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_KEY})"
    rf"(?:\s*(?P<equals>==?|!=)\s*(?P<value>{_VALUE})"
    rf"|\s+(?P<among>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\))?\s*"
)
T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]
_MISMATCH = re.compile(r"Expected `(\w+).*`\$\.([\w.]+)")
_EXPECTED = {"int": "a whole number, not below zero", "bool": "true or false", "str": "a string"}


def read_query(query: Mapping[str, object], into: type[T]) -> T:
    """Convert query parameters to the `msgspec.Struct` type `into`; empty ones count as absent.

    Raises:
        ApiError: A parameter cannot be converted.
    """
    given = {name: text for name, text in query.items() if text != ""}
    try:
        return msgspec.convert(given, into, strict=False)
    except msgspec.ValidationError as error:
        match = _MISMATCH.search(str(error))
        expected, path = match.groups() if match else ("object", "")
        value = given.get(path.partition(".")[0], "")
        why = f"must be {_EXPECTED.get(expected, 'an object')}"
        cause = StatusCause.invalid(path or "options", value, why)
        raise api_errors.bad_request(f"{cause.field}: {cause.message}") from error


def selector_of(served: ServedResource, labels: str, fields: str) -> Selector | None:
    """Return a predicate for objects that both selectors match; None if both are empty.

    Raises:
        ApiError: A selector cannot be parsed, or the kind cannot be selected by that field.
    """
    requirements = [*label_requirements(labels), *field_requirements(served, fields)]
    return (lambda obj: all(holds(obj) for holds in requirements)) if requirements else None


def label_requirements(text: str) -> list[Selector]:
    """Parse a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    Source: apimachinery's `labels/selector.go`.
    """
    requirements: list[Selector] = []
    at = 0 if text.strip() else len(text) + 1
    while at <= len(text):
        match = _REQUIREMENT.match(text, at)
        end = match.end() if match is not None else at
        is_negated_twice = match is not None and match["absent"] and (match["equals"] or match["among"])
        if match is None or is_negated_twice or text[end : end + 1] not in ("", ","):
            raise api_errors.bad_request(
                f"unable to parse requirement: found '{text[end:]}', expected: a label, in, notin, =, ==, !="
            )
        requirements.append(_label(match))
        at = end + 1
    return requirements


def field_requirements(served: ServedResource, text: str) -> list[Selector]:
    """Parse a field selector: `status.phase!=Failed,spec.nodeName=a`."""
    requirements: list[Selector] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = re.fullmatch(r"(.+?)(!=|==|=)(.*)", part)
        if match is None:
            raise api_errors.bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        path, operator, expected = match.groups()
        if path not in ("metadata.name", "metadata.namespace", *served.fields):
            raise api_errors.bad_request(f"field label not supported: {path}")
        requirements.append(_field(path, expected, negated=operator == "!="))
    return requirements


def _label(match: re.Match[str]) -> Selector:
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


def _field(path: str, expected: str, *, negated: bool) -> Selector:
    steps = path.split(".")

    def holds(obj: Object) -> bool:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, Mapping) else None
        if path == "source":
            value = (obj.get("source") or {}).get("component")
        return (_text(value) == expected) != negated

    return holds


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
