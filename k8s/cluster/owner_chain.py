"""Whose a pod is: its controller's controller, and so on up to the topmost one that is known."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from k8s.kinds import KINDS, DeclaredJob, JobRef
from k8s.models import Meta, OwnerReference, Pod
from k8s.models.resources import NODES, PODS


class Root(msgspec.Struct, frozen=True, gc=False):
    """What a pod is part of: a job, or whatever else holds accelerators."""

    key: str
    """The uid of the job, of the owner, or of the pod that nobody owns."""
    ref: JobRef
    through: tuple[OwnerReference, ...] = ()
    """The owners that are no jobs, lowest first, by which it was found."""


class OwnerChains:
    """The jobs of one moment and the owners found so far, to follow pods upwards."""

    def __init__(self, jobs: Mapping[str, DeclaredJob], owners: Mapping[str, Meta]) -> None:
        """Find out which jobs are parts of others.

        Args:
            jobs: The jobs by uid.
            owners: Metadata of whatever else owns pods, by uid, as far as it is known.
        """
        self.owners = owners
        """Metadata of owners by uid; may be replaced."""
        self.below: dict[str, list[str]] = {}
        """By the uid of a job that is part of no other, those of its parts."""
        tops = {uid: _top_of(uid, jobs) for uid in jobs}
        roots = {uid: Root(uid, jobs[uid].ref) for uid in tops.values()}
        self._roots = {uid: roots[top] for uid, top in tops.items()}
        self._made = {uid: job.meta.creation_timestamp for uid, job in jobs.items()}
        self._uid_by_ref = {job.ref: uid for uid, job in jobs.items()}
        for uid in sorted(tops):
            if tops[uid] != uid:
                self.below.setdefault(tops[uid], []).append(uid)

    def top(self, uid: str) -> str:
        """Return the uid of the job that has the row for the job with this one: as a rule itself."""
        return self._roots[uid].key if uid in self._roots else uid

    def root_of(self, pod: Pod, has_accelerators: bool) -> Root | None:
        """Return what a pod is part of.

        Its chain of controllers decides, then its labels. Of no known job, a pod that
        holds or wants accelerators is part of its topmost owner that is known, or alone;
        alone it stays when it has ended.

        Args:
            pod: The pod.
            has_accelerators: It asks for accelerators.
        """
        is_holder = has_accelerators and not pod.is_finished
        chain, root = self._climb(pod)
        if root is not None:
            return Root(root.key, root.ref, tuple(chain)) if chain and is_holder else root
        root = self._named(pod, chain)
        if root is not None or not has_accelerators or (chain and not is_holder):
            return root
        meta = pod.metadata
        if not chain:
            return Root(meta.uid, JobRef(meta.namespace, meta.name, PODS.kind, PODS.api_version))
        last = chain[-1]
        return Root(last.uid, JobRef(meta.namespace, last.name, last.kind, last.api_version), tuple(chain))

    def _climb(self, pod: Pod) -> tuple[list[OwnerReference], Root | None]:
        """Return the owners met that are no jobs, lowest first, and the job above them, if any."""
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
        """Return the job that a pod's labels name, if it can be that one.

        It cannot when an owner of the pod is another object of the same kind, or when the
        pod was made before the job: then it is left over from an earlier job of that name.
        """
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
    """Return the topmost job that a job is part of; of jobs that own each other the least uid."""
    path = [uid]
    while (above := jobs[path[-1]].meta.controller) is not None and above.uid in jobs:
        if above.uid in path:
            return min(path[path.index(above.uid) :])
        path.append(above.uid)
    return path[-1]
