"""The parameters and options of a request, from text to values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from k8s.sandbox.api import api_errors

T = TypeVar("T")
Whole = Annotated[int, msgspec.Meta(ge=0)]
"""A whole number, not below zero."""


def read_query(query: Mapping[str, object], into: type[T]) -> T:
    """Return the options that `into` names, which is a `msgspec.Struct`; empty ones count as not given.

    Raises:
        ApiError: One of them makes no sense.
    """
    given = {name: text for name, text in query.items() if text != ""}
    try:
        return msgspec.convert(given, into, strict=False)
    except msgspec.ValidationError as error:
        raise api_errors.bad_request(f"invalid options: {error}") from error
