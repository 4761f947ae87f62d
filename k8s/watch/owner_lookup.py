"""Looks up the owners of pods of no known job: the controller's controller, up to the topmost.

Each owner is asked for once, one at a time, so that a cluster full of Deployments takes
no more than one request from all others. No snapshot waits for it: until an owner is
found its pods are shown under the one below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from k8s.client.client import Client
from k8s.errors import Forbidden, KubeError, NotFound
from k8s.models import Meta, OwnerReference, meta_of
from k8s.models.resources import Resource

MOST_OWNERS = 2000
"""Owners that are remembered; of more than that, only those nearest to their pods are shown."""
RETRY_S = 30.0
"""Between tries while the cluster does not answer."""
ResourceOf = Callable[[str, str], Awaitable[Resource | None]]
"""Returns where an API version and kind is found on this server; None when it is not served."""


class OwnerLookup:
    """Metadata of owners that no mirror lists, fetched one by one and kept while they are needed."""

    def __init__(self, client: Client, resource_of: ResourceOf, on_change: Callable[[], None]) -> None:
        """Prepare to look for owners.

        Args:
            client: The cluster.
            resource_of: Knows the plurals of kinds, as discovery does.
            on_change: Called after every owner found; must return at once.
        """
        self.owners: Mapping[str, Meta] = {}
        """Metadata of owners by uid, replaced at every change. One that may not be read has no controller."""
        self._client = client
        self._resource_of = resource_of
        self._on_change = on_change
        self._missing: dict[str, tuple[str, OwnerReference]] = {}
        self._has_work = asyncio.Event()

    def update(self, above: Mapping[str, tuple[str, OwnerReference]]) -> None:
        """Set which owners are needed now; others are forgotten. Returns at once.

        Args:
            above: By uid, the namespace of the pods below an owner and how they refer to it:
                `k8s.cluster.Joiner.above`.
        """
        if any(uid not in above for uid in self.owners):
            self.owners = {uid: meta for uid, meta in self.owners.items() if uid in above}
        self._missing = {uid: reference for uid, reference in above.items() if uid not in self.owners}
        if self._missing:
            self._has_work.set()

    async def run(self) -> None:
        """Look for what is wanted, for ever."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            try:
                await self.fetch_missing()
            except KubeError:
                await asyncio.sleep(RETRY_S)
                self._has_work.set()

    async def fetch_missing(self) -> None:
        """Look for everything that is wanted now, and for what `on_change` makes wanted meanwhile.

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
        """Return an owner's metadata; only its name where there is no more to learn."""
        unknown = Meta(name=reference.name, namespace=namespace, uid=reference.uid)
        try:
            resource = await self._resource_of(reference.api_version, reference.kind)
            if resource is None:
                return unknown
            meta = meta_of(await self._client.get(resource, reference.name, namespace))
        except (Forbidden, NotFound, msgspec.ValidationError):
            return unknown
        return meta if meta.uid == reference.uid else unknown  # another object may have its name by now
