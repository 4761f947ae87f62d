"""Decodes what servers send into values, whatever nonsense some of it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from k8s.models.base import ListMeta, Meta, Value

T = TypeVar("T")


class RawList(Value, frozen=True):
    """A list whose items are still bytes."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    items: list[msgspec.Raw] | None = None


class TypedList(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A list whose items are values."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch, its object still bytes: of which kind it is the reader knows."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: msgspec.Raw


class Reader(Generic[T]):
    """Decodes lists and watch lines of one type of object."""

    def __init__(self, value_type: Any) -> None:
        """Prepare to decode `value_type`: a `Value`, or `dict` for objects of any kind."""
        self._type = value_type
        self._one: msgspec.json.Decoder[T] = msgspec.json.Decoder(value_type)
        self._list: msgspec.json.Decoder[TypedList[T]] = msgspec.json.Decoder(TypedList[value_type])

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object; a field that is null counts as not there.

        Raises:
            msgspec.DecodeError: It is not JSON, or not such an object.
        """
        try:
            return _decode(self._one, body)
        except msgspec.ValidationError:
            found: T = convert(_decode(_ANY, body), self._type)
            return found

    def read_list(self, body: bytes) -> tuple[ListMeta, list[T], int]:
        """Decode a list; an item that makes no sense is left out and counted, the rest stays.

        Returns:
            Where the list stands, its items, and how many could not be read.

        Raises:
            msgspec.DecodeError: The body is not a list at all.
        """
        try:
            whole = self._list.decode(body)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raw = _decode(_RAW_LIST, body)
            items: list[T] = []
            for item in raw.items or ():
                try:
                    items.append(self.read(item))
                except msgspec.DecodeError:
                    continue
            where: ListMeta = convert(_decode(_ANY, raw.metadata) or {}, ListMeta)
            return where, items, len(raw.items or ()) - len(items)
        return whole.metadata, whole.items or [], 0


_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_RAW_LIST = msgspec.json.Decoder(RawList)
WATCH_LINE = msgspec.json.Decoder(WatchEvent)
"""Decodes one line of a watch, leaving its object as bytes."""


def meta_of(obj: Mapping[str, Any]) -> Meta:
    """Return the metadata of an object of any kind, decoded as JSON into a dict.

    Raises:
        msgspec.ValidationError: The metadata has values of the wrong type.
    """
    meta: Meta = convert(obj.get("metadata") or {}, Meta)
    return meta


def convert(found: object, value_type: Any, *, strict: bool = True) -> Any:
    """Return a value of `value_type` from decoded JSON, in which a null counts as not there.

    Raises:
        msgspec.ValidationError: It has values of the wrong type.
    """
    try:
        return msgspec.convert(found, value_type, strict=strict)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(found), value_type, strict=strict)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode, and call what is no UTF-8 or nested without end by the name that all broken JSON has."""
    try:
        return decoder.decode(body)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


def _without_nulls(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_nulls(value) for key, value in found.items() if value is not None}
    if isinstance(found, list):
        return [_without_nulls(value) for value in found if value is not None]
    return found
