"""Explains waiting and failed jobs in their rows, in place of the scheduler's message or the exit code.

Shortages of nodes are computed from mirrored objects without any request. Other causes need
requests or logs; their answers are passed to `PendingReasons.remember`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from k8s.kinds import DeclaredJob
from k8s.kinds.base import Replica
from k8s.models import Node, Taint, accelerators
from k8s.reasons.cause import Cause
from k8s.reasons.objects import group_names
from k8s.reasons.predicates import (
    ClusterCapacity,
    InfeasibleNode,
    NodeCapacity,
    importance,
    infeasible_node,
    main_resource,
)
from k8s.reasons.requests import Toleration, spec_from_template
from k8s.reasons.shortage import (
    PodSet,
    ShortageKind,
    at_once,
    final_shortage,
    find_shortage,
    is_refuted,
    pod_sets,
)
from k8s.snapshot import Instance, Job, NodeRow
from k8s.status import Status
from k8s.status.job import with_cause

# In kube-scheduler's message if it considered the nodes and chose none.
TRIED = " nodes are available"
# In the message if a volume claim kept it from considering them.
CLAIM = "persistentvolumeclaim"
# The newest ones; the console may be open for days.
MOST_ANSWERS = 256


class _Waiting(msgspec.Struct):
    job: Job
    declared: DeclaredJob
    taints: tuple[Taint, ...]
    pod_sets: tuple[PodSet, ...]
    together: tuple[PodSet, ...]
    shown: Job

    @property
    def key(self) -> _Key:
        sets = self.pod_sets, self.together
        return tuple([tuple([(each.subject, each.signature) for each in of_job]) for of_job in sets])

    def is_of(self, job: Job, declared: DeclaredJob, taints: tuple[Taint, ...]) -> bool:
        return self.job is job and self.declared is declared and self.taints == taints


class _Answered(msgspec.Struct):
    explained: Job
    answer: Cause
    job: Job | None = None
    shown: Job | None = None


# By node name: its capacity, and why with that it cannot take a pod.
_Verdicts = dict[str, tuple[NodeCapacity, InfeasibleNode | None]]
# Subjects and signatures of the pods without a node, and of those that must run at once: jobs with equal
# ones share a sentence.
_Key = tuple[tuple[tuple[str, str], ...], ...]


class PendingReasons:
    """Incremental explanation of waiting jobs.

    Objects are compared by identity, as in `Joiner`; rows that do not change are the same values.
    """

    def __init__(self) -> None:
        self._jobs: tuple[Job, ...] = ()
        self._shown: tuple[Job, ...] = ()
        self._replaced: dict[str, Job] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._answered: dict[str, _Answered] = {}
        self._nodes: dict[str, tuple[Node, NodeRow | None, NodeCapacity, NodeCapacity]] = {}
        self._capacity = self._emptied = ClusterCapacity({})
        self._taints: tuple[Taint, ...] = ()
        self._verdicts: dict[tuple[str, bool], _Verdicts] = {}
        self._sentences: dict[_Key, str] = {}

    def shown(self, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        """Return these jobs with their reasons if they were explained last, else unchanged."""
        return self._shown if jobs is self._jobs else jobs

    def has_shortage(self, uid: str) -> bool:
        """Return True if the reason of a job is a shortage computed from mirrored objects.

        A gang waits for its PodGroup as well, which is not mirrored.
        """
        found = self._waiting.get(uid)
        if found is None or found.shown is found.job:
            return False
        declared = found.declared
        return not declared.is_gang and not any(group_names(each.template) for each in declared.replicas)

    def answer(self, uid: str) -> Cause | None:
        """Return the answer remembered for a job."""
        found = self._answered.get(uid)
        return found.answer if found is not None else None

    def remember(self, job: Job, answer: Cause) -> None:
        """Show the short form of an answer from the next `steps` on, until the job's pods change."""
        self._answered.pop(job.uid, None)
        self._answered[job.uid] = _Answered(job, answer)
        for uid in list(self._answered)[:-MOST_ANSWERS]:
            del self._answered[uid]

    def steps(
        self,
        jobs: tuple[Job, ...],
        nodes: Iterable[Node],
        rows: Iterable[NodeRow],
        declared: Iterable[DeclaredJob],
    ) -> Iterator[None]:
        """Explain the jobs, yielding between pieces of work; the result is in `shown`.

        `nodes` is empty if they may not be read; `declared` are the jobs' objects.
        """
        unschedulable = {job.uid: job for job in jobs if _is_unschedulable(job)}
        objects = {each.meta.uid: each for each in declared if each.meta.uid in unschedulable}
        yield
        yield from self._update_nodes(list(nodes) if unschedulable else [], rows)
        sentences, before = dict[_Key, str](), self._verdicts
        self._verdicts = {}
        waiting: dict[str, _Waiting] = {}
        for uid in unschedulable.keys() & objects.keys() if self._capacity.nodes else ():
            found = self._waiting.get(uid)
            job, of_job = unschedulable[uid], objects[uid]
            if found is None or not found.is_of(job, of_job, self._taints):
                unfinished = [each for each in job.instances if not each.status.is_final]
                sets_of = partial(template_pod_sets, job, replicas=of_job.replicas, taints=self._taints)
                unscheduled = sets_of(without_node := waiting_of(job))
                needed = at_once(unfinished, of_job.min_instances)
                together = unscheduled if needed == without_node else sets_of(needed)
                found = _Waiting(job, of_job, self._taints, unscheduled, together, job)
            yield
            key = found.key
            for is_empty, sets in ((False, found.pod_sets), (True, found.together)):
                for of_set in ((each.signature, is_empty) for each in sets):
                    self._verdicts.setdefault(of_set, before.get(of_set, {}))
            if key not in sentences and key in self._sentences:
                sentences[key] = self._sentences[key]
            elif key not in sentences:
                yield from self._judge(found.pod_sets, is_empty=False)
                shortage = find_shortage(found.pod_sets, self._capacity, self._infeasible)
                if shortage is not None and shortage.kind is ShortageKind.BUSY:
                    yield from self._judge(found.together, is_empty=True)
                    of_empty = partial(self._infeasible, is_empty=True)
                    shortage = final_shortage(shortage, found.together, self._emptied, of_empty)
                sentences[key] = shortage.brief if shortage is not None else ""
            sentence = "" if is_refuted(sentences[key], job.reason) else sentences[key]
            if found.shown.reason != (sentence or job.reason):
                found.shown = replace(job, reason=sentence, lacks_capacity=True) if sentence else job
            waiting[uid] = found
        self._sentences, self._waiting = sentences, waiting
        replaced = {uid: each.shown for uid, each in waiting.items() if each.shown is not each.job}
        self._apply_answers(jobs, replaced)
        self._show(jobs, replaced)

    def _apply_answers(self, jobs: tuple[Job, ...], replaced: dict[str, Job]) -> None:
        by_uid = {job.uid: job for job in jobs if job.uid in self._answered} if self._answered else {}
        for uid, found in list(self._answered.items()):
            job = by_uid.get(uid)
            if job is None or _progress(job) != _progress(found.explained):
                del self._answered[uid]
            elif found.answer.brief and not (found.answer.is_shortage and uid in replaced):
                if found.shown is None or found.job is not job:
                    found.job, found.shown = job, _with_answer(job, found.answer)
                replaced[uid] = found.shown

    def _update_nodes(self, nodes: Iterable[Node], rows: Iterable[NodeRow]) -> Iterator[None]:
        row_of = {row.name: row for row in rows}
        now: dict[str, tuple[Node, NodeRow | None, NodeCapacity, NodeCapacity]] = {}
        has_changed = False
        for node in nodes:
            name = node.metadata.name
            row, old = row_of.get(name), self._nodes.get(name)
            if old is None or old[0] is not node or old[1] is not row:
                has_changed = True
                capacity = NodeCapacity.of(node, None, row)
                is_same = old is not None and old[0] is node and old[3].allocatable == capacity.allocatable
                old = (node, row, capacity, old[3] if old is not None and is_same else capacity.emptied())
                yield
            now[name] = old
        if has_changed or now.keys() != self._nodes.keys():
            self._nodes = now
            self._capacity = ClusterCapacity({name: each[2] for name, each in now.items()})
            self._emptied = ClusterCapacity({name: each[3] for name, each in now.items()})
            self._taints = tuple(
                dict.fromkeys(taint for node, *_ in now.values() for taint in node.spec.taints or ())
            )
            self._sentences = {}

    def _judge(self, pod_sets: Iterable[PodSet], *, is_empty: bool) -> Iterator[None]:
        for pod_set in pod_sets:
            of_node = self._verdicts[pod_set.signature, is_empty]
            for name, capacity in (self._emptied if is_empty else self._capacity).nodes.items():
                if name not in of_node or of_node[name][0] is not capacity:
                    of_node[name] = capacity, infeasible_node(pod_set.spec, pod_set.requested, capacity)
                    yield

    def _infeasible(
        self, capacity: ClusterCapacity, pod_set: PodSet, is_empty: bool = False
    ) -> Sequence[InfeasibleNode]:
        of_node = self._verdicts[pod_set.signature, is_empty]
        found = (
            of_node[name][1]
            if of_node[name][0] is each
            else infeasible_node(pod_set.spec, pod_set.requested, each)
            for name, each in capacity.nodes.items()
        )
        return [each for each in found if each is not None]

    def _show(self, jobs: tuple[Job, ...], replaced: dict[str, Job]) -> None:
        before = self._replaced
        is_same = replaced.keys() == before.keys() and all(replaced[uid] is before[uid] for uid in replaced)
        if jobs is not self._jobs or not is_same:
            self._shown = tuple([replaced.get(job.uid, job) for job in jobs]) if replaced else jobs
        self._jobs, self._replaced = jobs, replaced


def _with_answer(job: Job, answer: Cause) -> Job:
    reason = with_cause(job.reason, answer.brief) if job.status.has_failed else answer.brief
    if (found := answer.triage) is not None:
        job = replace(job, remedy=found.remedy, culprit=(found.instance, found.rank))
    return replace(job, reason=reason, lacks_capacity=answer.is_shortage)


def _progress(job: Job) -> object:
    if job.status.is_final:  # its pods may be removed
        return job.status
    return job.status, [(each.pod_uid, each.node, each.status) for each in job.instances]


def _is_unschedulable(job: Job) -> bool:
    return job.status is Status.PENDING and TRIED in job.reason and CLAIM not in job.reason.lower()


def waiting_of(job: Job) -> list[Instance]:
    """Return the instances of a job without a node."""
    return [each for each in job.instances if not each.node and not each.status.is_final]


def template_pod_sets(
    job: Job, instances: Sequence[Instance], replicas: Iterable[Replica], taints: Iterable[Taint]
) -> tuple[PodSet, ...]:
    """Return the requests of instances, by their pod templates; empty if one has none.

    Clusters add tolerations to pods, as ExtendedResourceToleration does, so a template does not tell
    which taints keep its pods away. The scheduler's message does: it names them. All other `taints`
    count as tolerated.
    """
    templates = {(each.role, each.index): each.template for each in replicas}
    specs = {id(each): spec_from_template(each) for each in {id(t): t for t in templates.values()}.values()}
    if not all(templates.get((each.role, each.index)) for each in instances):
        return ()
    tolerated = [
        Toleration(taint.key, "Equal", taint.value, taint.effect)
        for taint in taints
        if f"{{{taint.key}: {taint.value}}}" not in job.reason
    ]
    specs = {
        key: msgspec.structs.replace(spec, tolerations=[*(spec.tolerations or ()), *tolerated])
        for key, spec in specs.items()
    }
    return pod_sets((each.name, specs[id(templates[each.role, each.index])]) for each in instances)


class FreeBlocks:
    """Incremental search for free GPUs; a node that has not changed is not read again."""

    def __init__(self) -> None:
        self._capacities: dict[str, tuple[NodeRow, NodeCapacity | None]] = {}
        self._found: tuple[Job, Sequence[NodeRow], dict[str, int] | None] | None = None

    def find(self, job: Job, rows: Sequence[NodeRow]) -> dict[str, int] | None:
        """Return the GPUs of each node on which all waiting pods of a job would fit now.

        Returns:
            GPUs by node name; empty if the pods' requests are unknown. None if not all would find a node.
        """
        if self._found is None or self._found[0] is not job or self._found[1] is not rows:
            self._found = job, rows, self._seek(job, rows)
        return self._found[2]

    def _seek(self, job: Job, rows: Sequence[NodeRow]) -> dict[str, int] | None:
        if job.lacks_capacity:
            return None
        capacity = ClusterCapacity(self._with_free_gpus(rows))
        used: dict[str, int] = {}
        for pod_set in _sets_with_gpus(job, rows):
            left, placed = capacity.place(
                pod_set.requested, len(pod_set.instances), _Infeasible(pod_set, capacity)
            )
            if placed < len(pod_set.instances):
                return None
            for name, after in left.nodes.items():
                if after is not (before := capacity.nodes[name]):
                    used[name] = used.get(name, 0) + _gpus(before) - _gpus(after)
            capacity = left
        return used

    def _with_free_gpus(self, rows: Iterable[NodeRow]) -> dict[str, NodeCapacity]:
        found = {}
        for row in rows:
            cached = self._capacities.get(row.name)
            if cached is None or cached[0] is not row:
                has_free = any(row.free_if_tolerated.values())
                cached = row, NodeCapacity.of_row(row) if has_free else None
                self._capacities[row.name] = cached
            if cached[1] is not None:
                found[row.name] = cached[1]
        return found


class _Infeasible(Container[str]):
    # Lazy: a node is checked only when `in` asks for it.
    def __init__(self, pods: PodSet, capacity: ClusterCapacity) -> None:
        self._pods, self._capacity = pods, capacity

    def __contains__(self, name: object) -> bool:
        node = self._capacity.nodes[str(name)]
        return infeasible_node(self._pods.spec, self._pods.requested, node) is not None


def _sets_with_gpus(job: Job, rows: Iterable[NodeRow]) -> list[PodSet]:
    # Pods may tolerate taints that their template does not; only the scheduler's message shows it.
    taints: Iterable[Taint] = ()
    if TRIED in job.reason:
        taints = dict.fromkeys(taint for row in rows for taint in row.taints)
    found = template_pod_sets(job, waiting_of(job), job.replicas, taints)
    with_gpus = (each for each in found if accelerators.is_accelerator(main_resource(each.requested)))
    return sorted(with_gpus, key=lambda each: importance(main_resource(each.requested)))


def _gpus(capacity: NodeCapacity) -> int:
    return accelerators.count(
        {name: int(free) for name, free in capacity.free.items() if accelerators.is_accelerator(name)}
    )
