"""Incremental join: only what changed is computed again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from time import perf_counter
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from k8s.cluster.job_builder import JobEntry, Member, RankEvidence, build_job, build_owner_job, lacks_pods
from k8s.cluster.node_rows import node_row, unready_nodes
from k8s.cluster.owners import OwnerChains
from k8s.kinds import DeclaredJob, JobRef
from k8s.models import LONG_AGO, Meta, Node, OwnerReference, Pod
from k8s.snapshot import Holder, Job, NodeRow

# Status of a node that pods name but the server did not list: it is deleted, or may not be read.
NOT_LISTED = "not listed"
# Nodes with the holders of their GPUs, and jobs with their instances.
Rows = tuple[tuple[NodeRow, ...], tuple[Job, ...]]
# Longest stretch of work before other tasks, above all key presses, get a turn.
TURN_S = 0.001
_NONE: Mapping[str, Any] = {}
R = TypeVar("R")


class OrderedRows(Generic[R]):
    """Rows by key, kept in an order that seldom changes."""

    def __init__(self, order: Callable[[R], Any]) -> None:
        """Start without rows; `order` returns a sort key, unique for each row."""
        self._order = order
        self._rows: dict[str, R] = {}
        self._keys: list[str] | None = []
        self._in_order: tuple[R, ...] | None = ()

    def get(self, key: str) -> R | None:
        """Return the row of `key`, or None."""
        return self._rows.get(key)

    def put(self, key: str, row: R | None) -> None:
        """Set the row of `key`, or remove it with None; an equal row keeps its identity."""
        old = self._rows.get(key)
        if row is old or row == old:
            return
        self._in_order = None
        if row is None:
            del self._rows[key]
            self._keys = None
        else:
            self._rows[key] = row
            if old is None or self._order(old) != self._order(row):
                self._keys = None

    def in_order(self) -> tuple[R, ...]:
        """Return the rows in order; the same tuple while nothing changes."""
        if self._keys is None:
            self._keys = sorted(self._rows, key=lambda key: self._order(self._rows[key]))
        if self._in_order is None:
            self._in_order = tuple([self._rows[key] for key in self._keys])
        return self._in_order


async def cooperatively(steps: Iterable[None], turn_s: float = TURN_S) -> float:
    """Run all steps, yielding to other tasks every `turn_s`; return the seconds that these took."""
    began_s, others_s = perf_counter(), 0.0
    for _ in steps:
        if (ended_s := perf_counter()) - began_s > turn_s:
            await asyncio.sleep(0)
            began_s = perf_counter()
            others_s += began_s - ended_s
    return others_s


class Joiner:
    """Joins the objects of one cluster again and again.

    Objects are compared by identity: a changed object must be a new one. Unchanged rows are the same
    values in the next join.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._unready: dict[str, str] = {}
        self._entries: dict[str, JobEntry] = {}
        self._links: dict[str, tuple[JobRef, str]] = {}
        self._chains = OwnerChains({}, _NONE)
        self._members: dict[int, Member] = {}
        self._without_job: dict[int, Member] = {}
        self._members_by_root: dict[str, dict[int, Member]] = {}
        self._members_by_node: dict[str, dict[int, Member]] = {}
        self._evidence: dict[str, RankEvidence] = {}
        self._holders: dict[str, list[Holder]] = {}
        self._changed_jobs: set[str] = set()
        self._changed_roots: set[str] = set()
        self._changed_nodes: set[str] = set()
        self._is_partial = False
        self._partial_roots: set[str] = set()
        self._node_rows = OrderedRows[NodeRow](lambda row: row.name)
        self._job_rows = OrderedRows[Job](_newest_first)

    @property
    def above(self) -> dict[str, tuple[str, OwnerReference]]:
        """Return the owners of pods with accelerators that are not jobs, by uid, for `OwnerLookup.update`."""
        found: dict[str, tuple[str, OwnerReference]] = {}
        for member in self._without_job.values():
            namespace = member.pod.metadata.namespace
            for reference in member.root.through if member.root is not None else ():
                known = found.get(reference.uid)
                # Contradicting references: choose the same one in whatever order the pods come.
                if known is None or _by_name(namespace, reference) < _by_name(*known):
                    found[reference.uid] = namespace, reference
        return found

    @property
    def rows(self) -> Rows:
        """Return the result of the last join; the jobs are newest first."""
        return self._node_rows.in_order(), self._job_rows.in_order()

    def steps(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        jobs: Iterable[DeclaredJob],
        owners: Mapping[str, Meta] = _NONE,
        *,
        is_partial: bool = False,
        evidence: Mapping[str, RankEvidence] = _NONE,
        has_jobs: bool = True,  # False: only nodes have rows
    ) -> Iterator[None]:
        """Join the nodes with the holders of their GPUs, and the jobs with their instances, into `rows`.

        Every other owner of pods with GPUs has a row among the jobs, and a node known only from pods has
        one among the nodes, so that both lists add up to the same GPUs. `owners` has the metadata of such
        owners by uid, as far as known. If `is_partial`, more pods may come, so jobs that lack some have
        no status yet. `evidence` has the ranks that logs prove. Other tasks may run between the steps.
        """
        # The arguments may be live mirrors: read them before the first yield.
        now = {id(pod): pod for pod in pods}
        self._update_nodes(nodes)
        self._update_jobs(jobs, owners)
        self._is_partial = is_partial
        if not is_partial:
            self._changed_jobs |= self._partial_roots
        before, self._evidence = self._evidence, dict(evidence)
        uids = before.keys() | self._evidence.keys()
        self._changed_roots |= {uid for uid in uids if self._evidence.get(uid) != before.get(uid)}
        yield
        for key in self._members.keys() - now.keys():
            self._remove(key)
            yield
        for key in now.keys() - self._members.keys():
            self._add(key, now[key])
            yield
        for root in self._changed_roots | self._changed_jobs if has_jobs else ():
            self._job_rows.put(root, self._job_row(root))
            yield
        for name in self._changed_nodes:
            self._node_rows.put(name, self._node_row(name))
            yield
        self._changed_jobs.clear()
        self._changed_roots.clear()
        self._changed_nodes.clear()

    def _update_nodes(self, nodes: Iterable[Node]) -> None:
        now: dict[str, Node] = {}
        for node in nodes:
            other = now.setdefault(node.metadata.name, node)
            if other is not node and _age(other.metadata) < _age(node.metadata):
                now[node.metadata.name] = node
        before, self._nodes = self._nodes, now
        changed = {name for name in now.keys() | before.keys() if now.get(name) is not before.get(name)}
        unready = unready_nodes(now[name] for name in changed if name in now)
        flipped = {name for name in changed if unready.get(name) != self._unready.get(name)}
        for name in flipped:
            self._unready.pop(name, None)
        self._unready.update(unready)
        self._changed_nodes |= changed
        for name in changed:
            self._holders.pop(name, None)
        if flipped:
            for member in self._members.values():
                if member.pod.spec.node_name in flipped and member.root is not None:
                    member.instance = None
                    self._changed_roots.add(member.root.key)

    def _update_jobs(self, jobs: Iterable[DeclaredJob], owners: Mapping[str, Meta]) -> None:
        before, now = self._entries, dict[str, JobEntry]()
        for job in jobs:
            old = before.get(job.meta.uid)
            now[job.meta.uid] = old if old is not None and old.job is job else JobEntry(job)
        changed = {uid for uid in now.keys() | before.keys() if now.get(uid) is not before.get(uid)}
        known = self._chains.owners
        if changed:
            self._entries = now
            links = {uid: _link(entry.job) for uid, entry in now.items()}
            chains_before = self._chains
            if links != self._links:
                self._links = links
                self._chains = OwnerChains({uid: entry.job for uid, entry in now.items()}, owners)
                changed |= {uid for uid in now if self._chains.top(uid) != chains_before.top(uid)}
                self._find_roots_again(self._members)
            for uid in changed:
                self._changed_jobs |= {chains_before.top(uid), self._chains.top(uid)}
        if owners is not known:
            self._chains.owners = owners
            self._changed_roots.update(
                uid for uid in owners.keys() | known.keys() if owners.get(uid) is not known.get(uid)
            )
            self._find_roots_again(self._without_job)

    def _find_roots_again(self, members: Mapping[int, Member]) -> None:
        for key, member in list(members.items()):
            root = self._chains.root_of(member.pod, member.has_accelerators)
            if root != member.root:
                self._remove(key)
                self._add(key, member.pod)

    def _add(self, key: int, pod: Pod) -> None:
        member = Member.of(pod, self._chains.root_of)
        root = member.root
        self._members[key] = member
        if root is None or root.through or root.key not in self._entries:
            self._without_job[key] = member
        if root is not None:
            self._members_by_root.setdefault(root.key, {})[key] = member
            self._changed_roots.add(root.key)
        if member.holder is not None:
            self._members_by_node.setdefault(pod.spec.node_name, {})[key] = member
            self._changed_nodes.add(pod.spec.node_name)

    def _remove(self, key: int) -> None:
        member = self._members.pop(key)
        self._without_job.pop(key, None)
        if member.root is not None:
            _discard_member(self._members_by_root, member.root.key, key)
            self._changed_roots.add(member.root.key)
        if member.holder is not None:
            _discard_member(self._members_by_node, member.pod.spec.node_name, key)
            self._changed_nodes.add(member.pod.spec.node_name)

    def _job_row(self, root: str) -> Job | None:
        members = list(self._members_by_root.get(root, {}).values())
        self._partial_roots.discard(root)
        if root in self._entries and self._chains.top(root) == root:
            below = [self._entries[uid] for uid in self._chains.below.get(root, ())]
            before = self._job_rows.get(root) if root not in self._changed_jobs else None
            is_partial, entry = self._is_partial, self._entries[root]
            entry.evidence = self._evidence.get(root)
            row = build_job(entry, below, members, self._unready, before, is_partial)
            if is_partial and lacks_pods(row.replicas, row.instances):
                self._partial_roots.add(root)
            return row
        if not members:
            return None
        is_partial = self._is_partial and not members[0].is_alone
        if is_partial:
            self._partial_roots.add(root)
        meta, evidence = self._chains.owners.get(root), self._evidence.get(root)
        row = build_owner_job(meta, members, self._unready, evidence, is_partial)
        before = self._job_rows.get(root)  # the only source of a deleted job's user
        return replace(row, user=before.user) if before is not None else row

    def _node_row(self, name: str) -> NodeRow | None:
        members = sorted(self._members_by_node.get(name, {}).values(), key=_by_pod)
        found = [member.holder for member in members if member.holder]
        if found == self._holders.get(name):
            return self._node_rows.get(name)
        self._holders[name] = found
        node = self._nodes.get(name)
        if node is not None:
            return node_row(node, found)
        if found:
            return replace(node_row(Node(Meta(name)), found), status=NOT_LISTED)
        del self._holders[name]
        return None


def _discard_member(groups: dict[str, dict[int, Member]], name: str, key: int) -> None:
    group = groups[name]
    del group[key]
    if not group:
        del groups[name]


def _link(job: DeclaredJob) -> tuple[JobRef, str]:
    above = job.meta.controller
    return job.ref, above.uid if above is not None else ""


def _by_name(namespace: str, reference: OwnerReference) -> tuple[str, str, str]:
    return namespace, reference.kind, reference.name


def _by_pod(member: Member) -> tuple[str, str, str]:
    meta = member.pod.metadata
    return meta.namespace, meta.name, meta.uid


def _age(meta: Meta) -> tuple[datetime, str]:
    return meta.creation_timestamp or LONG_AGO, meta.uid


def _newest_first(job: Job) -> tuple[float, str, str]:
    made = job.created.timestamp() if job.created is not None else 0.0
    return -made, job.ref.name, job.uid
