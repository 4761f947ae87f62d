"""Objects as they may be shown: what a Secret holds is masked. For what others wrote: `k8s.text.redact`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MASK = "•••"
"""Stands for a value of a Secret."""


def masked(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the values of a Secret masked, and any other as it is."""
    if obj.get("kind") != "Secret":
        return dict(obj)
    hidden = {
        field: dict.fromkeys(obj[field], MASK)
        for field in ("data", "stringData")
        if isinstance(obj.get(field), Mapping)
    }
    return {**obj, **hidden}
