"""Lookup of the owners of pods that belong to no known job, up to the topmost controller.

Each owner is fetched once, one at a time, so that a cluster full of Deployments never has more
than one such request in flight. Snapshots do not wait: until an owner is found, its pods are
shown under the owner below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from k8s.client.client import Client
from k8s.models import Meta, OwnerReference, meta_of
from k8s.models.resources import Resource
from k8s.text.errors import Forbidden, KubeError, NotFound

# Beyond that many, pods are shown under their nearest owner.
MOST_OWNERS = 2000
RETRY_S = 30.0
# Returns the resource of an API version and kind; None if the server does not have it.
ResourceOf = Callable[[str, str], Awaitable[Resource | None]]


class OwnerLookup:
    """Metadata of owners that no mirror lists, held while pods refer to them."""

    def __init__(self, client: Client, resource_of: ResourceOf, on_change: Callable[[], None]) -> None:
        """Create an empty lookup; `on_change` is called after every owner found, and must not block."""
        self.owners: Mapping[str, Meta] = {}
        """By uid; a new mapping at every change. An owner that may not be read has no controller."""
        self._client = client
        self._resource_of = resource_of
        self._on_change = on_change
        self._missing: dict[str, tuple[str, OwnerReference]] = {}
        self._has_work = asyncio.Event()

    def update(self, above: Mapping[str, tuple[str, OwnerReference]]) -> None:
        """Set the owners needed now, as in `Joiner.above`, and forget all others. Does not block."""
        if any(uid not in above for uid in self.owners):
            self.owners = {uid: meta for uid, meta in self.owners.items() if uid in above}
        self._missing = {uid: reference for uid, reference in above.items() if uid not in self.owners}
        if self._missing:
            self._has_work.set()

    async def run(self) -> None:
        """Fetch missing owners until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            try:
                await self.fetch_missing()
            except KubeError:
                await asyncio.sleep(RETRY_S)
                self._has_work.set()

    async def fetch_missing(self) -> None:
        """Fetch all missing owners, including those that `on_change` adds meanwhile.

        Raises:
            KubeError: The cluster does not answer.
        """
        while self._missing and len(self.owners) < MOST_OWNERS:
            uid, (namespace, reference) = next(iter(self._missing.items()))
            meta = await self._fetch(namespace, reference)
            if self._missing.pop(uid, None) is not None:
                self.owners = {**self.owners, uid: meta}
                self._on_change()

    async def _fetch(self, namespace: str, reference: OwnerReference) -> Meta:
        unknown = Meta(name=reference.name, namespace=namespace, uid=reference.uid)
        try:
            resource = await self._resource_of(reference.api_version, reference.kind)
            if resource is None:
                return unknown
            meta = meta_of(await self._client.get(resource, reference.name, namespace))
        except (Forbidden, NotFound, msgspec.ValidationError):
            return unknown
        return meta if meta.uid == reference.uid else unknown  # another object may have its name by now
