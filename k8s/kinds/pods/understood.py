"""What a part of an object says as fields of a spec, and the names of what no spec can say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from k8s.kinds.base import Manifest


class Understood(NamedTuple):
    """What an object, or a part of one, says as fields of a spec."""

    fields: dict[str, Any]
    """By the field of `JobSpec`."""
    lost: list[str]
    """Names of what no spec can say."""


def named(left: Mapping[str, Any], *understood: str, prefix: str = "") -> list[str]:
    """Return the names of the fields that say anything, but for those that are `understood`."""
    return [f"{prefix}{key}" for key, value in left.items() if key not in understood and not _is_empty(value)]


def drop_defaults(left: Manifest, defaults: Mapping[str, Any]) -> None:
    """Remove from an object what the server fills in by itself."""
    for key, value in defaults.items():
        if key in left and left[key] == value:
            del left[key]


def _is_empty(value: object) -> bool:
    """Tell whether a field says nothing: `{}`, null, a list of nothing; false and 0 do say something."""
    if isinstance(value, Mapping):
        return all(_is_empty(each) for each in value.values())
    return value is None or value in ("", [])
