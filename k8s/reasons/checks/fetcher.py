"""Fetches objects that may be forbidden, missing or malformed, and records those it could not read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from k8s import models
from k8s.client.client import Client
from k8s.models import Reader
from k8s.models.resources import Resource
from k8s.reasons.phrases import cut
from k8s.text.errors import Forbidden, KubeError, NotFound, without_frames

AT_ONCE = 6
# Of 500 objects each.
MOST_PAGES = 10
T = TypeVar("T", bound=models.Value)


class Fetcher:
    """Reader for diagnoses made at about the same time; fetches no list twice."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._unseen: dict[str, None] = {}
        self._lists: dict[object, Any] = {}

    @property
    def unseen(self) -> tuple[str, ...]:
        """Return descriptions of what could not be read."""
        return tuple(self._unseen)

    async def get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | KubeError:
        """Return an object, or the error."""
        try:
            async with self._turns:
                return await self._client.get(resource, name, namespace)
        except KubeError as error:
            if isinstance(error, Forbidden):
                self._record_unseen(f"{resource.kind} {name}", error)
            return without_frames(error)

    async def get_by_name(
        self, resource: Resource, kind: type[T], wanted: Iterable[str], namespace: str = ""
    ) -> dict[str, T | None]:
        """Fetch objects by name: None if one does not exist, no entry if that is unknown."""
        names = [name for name in dict.fromkeys(wanted) if name]
        found = await asyncio.gather(*(self._one(resource, kind, name, namespace) for name in names))
        return {name: each for name, (is_known, each) in zip(names, found, strict=True) if is_known}

    async def _one(
        self, resource: Resource, kind: type[T], name: str, namespace: str
    ) -> tuple[bool, T | None]:
        obj = await self.get(resource, name, namespace)
        if isinstance(obj, KubeError):
            if not isinstance(obj, (NotFound, Forbidden)):
                self._record_unseen(f"{resource.kind} {name}", obj)
            return isinstance(obj, NotFound), None
        value = self.read(obj, kind)
        if value is None:
            self._unseen[f"{resource.kind} {name}: it is malformed"] = None
        return value is not None, value

    def read(self, obj: object, kind: type[T]) -> T | None:
        """Convert decoded JSON to a value; None if it is malformed."""
        try:
            value: T = models.convert(obj, kind)
        except (msgspec.ValidationError, RecursionError):
            return None
        return value

    async def list_all(
        self,
        resource: Resource,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T] | None:
        """Return the well-formed objects; empty if the kind is not served, None if refused."""
        key = (resource, kind, namespace, label_selector, field_selector)
        if key not in self._lists:
            self._lists[key] = await self._list_all(*key)
        found: list[T] | None = self._lists[key]
        return found

    async def _list_all(
        self, resource: Resource, kind: type[T], namespace: str, label_selector: str, field_selector: str
    ) -> list[T] | None:
        reader: Reader[T] = Reader(kind)
        found: list[T] = []
        token = ""
        try:
            for _ in range(MOST_PAGES):
                async with self._turns:
                    body = await self._client.list_page(
                        resource,
                        namespace,
                        continue_token=token,
                        label_selector=label_selector,
                        field_selector=field_selector,
                    )
                where, items, unreadable = reader.read_list(body)
                found.extend(items)
                if unreadable:
                    self._unseen[f"{resource.plural}: {unreadable} of them are malformed"] = None
                token = where.continue_
                if not token:
                    return found
        except NotFound:
            return []
        except KubeError as error:
            self._record_unseen(resource.plural, error)
            return None
        except (msgspec.DecodeError, RecursionError):
            self._unseen[f"{resource.plural}: the answer is malformed"] = None
            return None
        self._unseen[f"{resource.plural}: only the first {len(found)} were read"] = None
        return found

    async def list_path(self, path: str, kind: type[T]) -> list[T]:
        """Return the items at a path; empty if it is not served."""
        try:
            async with self._turns:
                body = await self._client.get_json(path)
        except KubeError:
            return []
        items = body.get("items")
        found = (self.read(each, kind) for each in (items if isinstance(items, list) else ()))
        return [each for each in found if each is not None]

    def _record_unseen(self, what: str, error: KubeError) -> None:
        self._unseen[f"{what}: {cut(error.why or error.what)}"] = None
