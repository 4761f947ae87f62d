"""Owners of pods: the chain of controllers up to the topmost known one, and lookup of unknown ones.

Each owner is fetched once, one at a time, so that a cluster full of Deployments never has more
than one such request in flight. Snapshots do not wait: until an owner is found, its pods are
shown under the owner below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from k8s.client.client import Client
from k8s.kinds import KINDS, POD_GROUP_LABEL, DeclaredJob, JobRef, pod_group
from k8s.models import Meta, OwnerReference, Pod, meta_of
from k8s.models.resources import NODES, PODS, Resource
from k8s.text.errors import Forbidden, KubeError, NotFound


class Root(msgspec.Struct, frozen=True, gc=False):
    """The job or other owner that a pod belongs to."""

    key: str
    """The uid of the job, of the owner, or of the pod itself."""
    ref: JobRef
    through: tuple[OwnerReference, ...] = ()
    """Owners between the pod and `ref` that are not jobs, lowest first."""


class OwnerChains:
    """The jobs and owners of one moment, to follow pods upwards."""

    def __init__(self, jobs: Mapping[str, DeclaredJob], owners: Mapping[str, Meta]) -> None:
        self.owners = owners
        self.below: dict[str, list[str]] = {}
        """Uids of owned jobs, by the uid of the topmost job."""
        tops = {uid: _top_of(uid, jobs) for uid in jobs}
        roots = {uid: Root(uid, jobs[uid].ref) for uid in tops.values()}
        self._roots = {uid: roots[top] for uid, top in tops.items()}
        self._made = {uid: job.meta.creation_timestamp for uid, job in jobs.items()}
        self._uid_by_ref = {job.ref: uid for uid, job in jobs.items()}
        for uid in sorted(tops):
            if tops[uid] != uid:
                self.below.setdefault(tops[uid], []).append(uid)

    def top(self, uid: str) -> str:
        """Return the uid of the job in whose row the job `uid` is shown: usually `uid` itself."""
        return self._roots[uid].key if uid in self._roots else uid

    def root_of(self, pod: Pod, has_accelerators: bool) -> Root | None:
        """Return the root of a pod; None if it has none and requests no accelerators.

        The chain of controllers decides, then the labels. Without a known job, a pod that requests
        accelerators belongs to its topmost known owner or, if it has no owner, to itself. The latter
        stays so after it has finished. A pod without an owner may be one of a group of Kueue.
        """
        is_holder = has_accelerators and not pod.is_finished
        chain, root = self._climb(pod)
        if root is not None:
            return Root(root.key, root.ref, tuple(chain)) if chain and is_holder else root
        root = self._named(pod, chain)
        meta = pod.metadata
        if root is None and not chain and (group := meta.label(POD_GROUP_LABEL)):
            return Root(f"{meta.namespace}/{group}", pod_group(meta.namespace, group))
        if root is not None or not has_accelerators or (chain and not is_holder):
            return root
        if not chain:
            return Root(meta.uid, JobRef(meta.namespace, meta.name, PODS.kind, PODS.api_version))
        last = chain[-1]
        return Root(last.uid, JobRef(meta.namespace, last.name, last.kind, last.api_version), tuple(chain))

    def _climb(self, pod: Pod) -> tuple[list[OwnerReference], Root | None]:
        chain: list[OwnerReference] = []
        reference = pod.metadata.controller
        while reference is not None and reference.kind != NODES.kind:
            if reference.uid in self._roots:
                return chain, self._roots[reference.uid]
            if any(reference.uid == each.uid for each in chain):
                break
            chain.append(reference)
            owner = self.owners.get(reference.uid)
            reference = owner.controller if owner is not None else None
        return chain, None

    def _named(self, pod: Pod, chain: list[OwnerReference]) -> Root | None:
        kinds = {owner.kind for owner in chain}
        meta = pod.metadata
        for kind in KINDS:
            name = kind.job_of(pod)
            if not name or kind.resource.kind in kinds:
                continue
            ref = JobRef(meta.namespace, name, kind.resource.kind, kind.resource.api_version)
            uid = self._uid_by_ref.get(ref)
            if uid is None:
                continue
            made, pod_made = self._made[uid], meta.creation_timestamp
            if made is None or pod_made is None or pod_made >= made:
                return self._roots[uid]
        return None


def _top_of(uid: str, jobs: Mapping[str, DeclaredJob]) -> str:
    # Of jobs that own each other the least uid is the top.
    path = [uid]
    while (above := jobs[path[-1]].meta.controller) is not None and above.uid in jobs:
        if above.uid in path:
            return min(path[path.index(above.uid) :])
        path.append(above.uid)
    return path[-1]


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
