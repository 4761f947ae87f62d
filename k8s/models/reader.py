"""Decoding of API responses; malformed fields are dropped rather than the object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr

from k8s.models.base import ListMeta, Meta, Value

T = TypeVar("T")
# Path of the field in a msgspec error; `[...]` is an entry of a dict.
_FIELD = re.compile(r"`\$\.(.*?)(\[\.\.\.\].*)?`$")
# After so many fields, their whole top-level sections are dropped.
_MAX_PRUNED = 32


class RawList(Value, frozen=True):
    """A list whose items are not decoded yet."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    items: list[msgspec.Raw] | None = None


class AnyObject(msgspec.Struct, frozen=True, gc=False):
    """The metadata of an object of any kind."""

    metadata: Meta


class TypedList(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A list of decoded objects."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch; its object is not decoded yet."""

    type: str
    object: msgspec.Raw


class Reader(Generic[T]):
    """Decoder of lists and watch lines of one type."""

    def __init__(self, value_type: Any) -> None:
        """Prepare to decode `value_type`: a `Value`, or `dict` for objects of any kind."""
        self._type = value_type
        self._one: msgspec.json.Decoder[T] = msgspec.json.Decoder(value_type)
        self._list: msgspec.json.Decoder[TypedList[T]] = msgspec.json.Decoder(TypedList[value_type])

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object. A null counts as a missing field.

        A field of a wrong type is dropped and named in `metadata.unreadable`.

        Raises:
            msgspec.DecodeError: The body is not JSON, or not an object with metadata and a name.
        """
        try:
            return _decode(self._one, body)
        except msgspec.ValidationError:
            found: T = convert_readable(_decode(_ANY, body), self._type)
            return found

    def read_list(self, body: bytes) -> tuple[ListMeta, list[T], int]:
        """Decode a list. Items that cannot be decoded at all are skipped.

        Returns:
            The list's metadata, its items, and how many items could not be decoded in full.

        Raises:
            msgspec.DecodeError: The body is not a list.
        """
        try:
            decoded = self._list.decode(body)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raw = _decode(_RAW_LIST, body)
            items: list[T] = []
            for item in raw.items or ():
                try:
                    items.append(self.read(item))
                except msgspec.DecodeError:
                    continue
            where: ListMeta = convert(_decode(_ANY, raw.metadata) or {}, ListMeta)
            return where, items, len(raw.items or ()) - sum(map(is_readable, items))
        return decoded.metadata, decoded.items or [], 0


_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_RAW_LIST = msgspec.json.Decoder(RawList)
WATCH_LINE = msgspec.json.Decoder(WatchEvent)
"""Decoder of one watch line; the object stays bytes."""


def meta_of(obj: Mapping[str, Any]) -> Meta:
    """Return the metadata of an object of any kind, decoded as JSON into a dict.

    Raises:
        msgspec.ValidationError: The metadata has values of the wrong type.
    """
    found: AnyObject = convert({"metadata": obj.get("metadata") or {}}, AnyObject)
    return found.metadata


def convert(found: object, value_type: Any, *, strict: bool = True) -> Any:
    """Convert decoded JSON to `value_type`. A null counts as a missing field.

    Raises:
        msgspec.ValidationError: A value has the wrong type.
    """
    try:
        return msgspec.convert(found, value_type, strict=strict)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(found), value_type, strict=strict)


def is_readable(value: object) -> bool:
    """Return True if all fields of an object had the right types."""
    return not getattr(getattr(value, "metadata", None), "unreadable", "")


def convert_readable(found: Any, value_type: Any) -> Any:
    """Convert decoded JSON to `value_type`, dropping fields of wrong types as `Reader.read` does.

    Raises:
        msgspec.ValidationError: It is not an object, or has no metadata or no name.
    """
    found, problem, pruned = _without_nulls(found), "", 0
    while True:
        try:
            value = msgspec.convert(found, value_type)
        except msgspec.ValidationError as error:
            path = _FIELD.search(str(error))
            if path is None or path[1] in ("metadata", "metadata.name"):
                raise
            problem, pruned = problem or str(error), pruned + 1
            keys = re.findall(r"[^.\[\]]+", path[1])
            _prune(found, keys if pruned < _MAX_PRUNED else keys[:1])
            continue
        if problem:
            force_setattr(value.metadata, "unreadable", problem)
        return value


def _prune(found: Any, keys: list[str]) -> None:
    # Of a dict like `labels`, only the entries that are not strings are dropped.
    *path, last = [int(key) if key.isdecimal() else key for key in keys]
    for key in path:
        found = found[key]
    entries = found.pop(last)
    if isinstance(entries, dict):
        texts = {key: value for key, value in entries.items() if isinstance(value, str)}
        found |= {last: texts} if 0 < len(texts) < len(entries) else {}


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    # One exception type for every kind of broken JSON.
    try:
        return decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _without_nulls(found: Any) -> Any:
    try:
        return _drop_nulls(found)
    except RecursionError as error:
        raise msgspec.ValidationError("nested too deeply") from error


def _drop_nulls(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _drop_nulls(value) for key, value in found.items() if value is not None}
    if isinstance(found, list):
        return [_drop_nulls(value) for value in found if value is not None]
    return found
