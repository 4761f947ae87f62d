"""Chain of controllers from a pod up to the topmost known owner."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from k8s.kinds import KINDS, DeclaredJob, JobRef
from k8s.kinds.unknown import POD_GROUP_LABEL, pod_group
from k8s.models import Meta, OwnerReference, Pod
from k8s.models.resources import NODES, PODS


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
