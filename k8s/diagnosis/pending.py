"""Puts the brief of `why` in the rows of jobs that find no node, in place of the scheduler's message.

Computed from what is mirrored anyway, so that it costs no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from k8s.diagnosis.shortage import PodSet, find_shortage, pod_sets
from k8s.kinds import DeclaredJob
from k8s.kinds.base import Replica
from k8s.models import Node, Taint
from k8s.scheduling.predicates import ClusterCapacity, NodeCapacity, UnfitNode, unfit_node
from k8s.scheduling.scheduling_spec import Toleration, spec_from_template
from k8s.snapshot import Job, NodeRow
from k8s.status import Status

TRIED = " nodes are available"
"""What kube-scheduler's message has when it looked at the nodes and took none."""
CLAIM = "persistentvolumeclaim"
"""What it has when a volume claim kept it from looking at them."""


@dataclass(slots=True)
class _Waiting:
    """A pending job, and what is shown of it."""

    job: Job
    declared: DeclaredJob
    taints: tuple[Taint, ...]
    pod_sets: tuple[PodSet, ...]
    shown: Job

    def is_of(self, job: Job, declared: DeclaredJob, taints: tuple[Taint, ...]) -> bool:
        """Tell whether it was made of these values."""
        return self.job is job and self.declared is declared and self.taints == taints


_Verdicts = dict[str, tuple[NodeCapacity, UnfitNode | None]]
"""Node name to its capacity, and why with that it cannot take a pod."""
_Key = tuple[tuple[str, str], ...]
"""The subject and the signature of each set of pods: jobs with the same ones share a sentence."""


class PendingReasons:
    """Explains pending jobs again and again; what has not changed is not worked out again.

    Objects are compared by identity, as in `Joiner`: rows that come out as before are the
    same values as before.
    """

    def __init__(self) -> None:
        """Start without any job."""
        self._jobs: tuple[Job, ...] = ()
        self._shown: tuple[Job, ...] = ()
        self._replaced: dict[str, Job] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._nodes: dict[str, tuple[Node, NodeRow | None, NodeCapacity]] = {}
        self._capacity = ClusterCapacity({})
        self._taints: tuple[Taint, ...] = ()
        self._verdicts: dict[str, _Verdicts] = {}
        self._sentences: dict[_Key, str] = {}

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs with their reasons, as they were explained last."""
        return self._shown

    def steps(
        self,
        jobs: tuple[Job, ...],
        nodes: Iterable[Node],
        rows: Iterable[NodeRow],
        declared: Iterable[DeclaredJob],
    ) -> Iterator[None]:
        """Explain the jobs, and yield between any two pieces of work; see `jobs` for what came out.

        Args:
            jobs: The rows of jobs.
            nodes: The nodes, all of them; none where they may not be read.
            rows: The rows of nodes, which tell how many accelerators are free.
            declared: The jobs' objects.
        """
        unschedulable = {job.uid: job for job in jobs if _is_unschedulable(job)}
        objects = {each.meta.uid: each for each in declared if each.meta.uid in unschedulable}
        yield
        yield from self._take_nodes(list(nodes) if unschedulable else [], rows)
        sentences, verdicts = dict[_Key, str](), dict[str, _Verdicts]()
        waiting: dict[str, _Waiting] = {}
        for uid in unschedulable.keys() & objects.keys() if self._capacity.nodes else ():
            found = self._waiting.get(uid)
            job, of_job = unschedulable[uid], objects[uid]
            if found is None or not found.is_of(job, of_job, self._taints):
                found = _Waiting(
                    job, of_job, self._taints, waiting_pod_sets(job, of_job.replicas, self._taints), job
                )
            yield
            key = tuple((each.subject, each.signature) for each in found.pod_sets)
            if key not in sentences and key in self._sentences:
                sentences[key] = self._sentences[key]
            elif key not in sentences:
                for pod_set in found.pod_sets:
                    yield from self._judge(pod_set)
                shortage = find_shortage(found.pod_sets, self._capacity, self._unfit)
                sentences[key] = shortage.brief if shortage is not None else ""
            verdicts |= {
                each.signature: self._verdicts[each.signature]
                for each in found.pod_sets
                if each.signature in self._verdicts
            }
            if found.shown.reason != (sentences[key] or job.reason):
                found.shown = replace(job, reason=sentences[key], is_short=True) if sentences[key] else job
            waiting[uid] = found
        self._sentences, self._verdicts, self._waiting = sentences, verdicts, waiting
        self._show(jobs, {uid: each.shown for uid, each in waiting.items() if each.shown is not each.job})

    def _take_nodes(self, nodes: Iterable[Node], rows: Iterable[NodeRow]) -> Iterator[None]:
        row_of = {row.name: row for row in rows}
        now: dict[str, tuple[Node, NodeRow | None, NodeCapacity]] = {}
        has_changed = False
        for node in nodes:
            name = node.metadata.name
            row, old = row_of.get(name), self._nodes.get(name)
            if old is None or old[0] is not node or old[1] is not row:
                has_changed = True
                old = (node, row, NodeCapacity.of(node, None, row))
                yield
            now[name] = old
        if has_changed or now.keys() != self._nodes.keys():
            self._nodes = now
            self._capacity = ClusterCapacity({name: each[2] for name, each in now.items()})
            self._taints = tuple(
                dict.fromkeys(taint for node, _, _ in now.values() for taint in node.spec.taints or ())
            )
            self._sentences = {}

    def _judge(self, pod_set: PodSet) -> Iterator[None]:
        """Ask each node that has changed whether it can take such a pod."""
        of_node = self._verdicts.setdefault(pod_set.signature, {})
        for name, capacity in self._capacity.nodes.items():
            if name not in of_node or of_node[name][0] is not capacity:
                of_node[name] = capacity, unfit_node(pod_set.spec, pod_set.requested, capacity)
                yield

    def _unfit(self, capacity: ClusterCapacity, pod_set: PodSet) -> Sequence[UnfitNode]:
        of_node = self._verdicts[pod_set.signature]
        found = (
            of_node[name][1]
            if of_node[name][0] is each
            else unfit_node(pod_set.spec, pod_set.requested, each)
            for name, each in capacity.nodes.items()
        )
        return [each for each in found if each is not None]

    def _show(self, jobs: tuple[Job, ...], replaced: dict[str, Job]) -> None:
        before = self._replaced
        is_same = replaced.keys() == before.keys() and all(replaced[uid] is before[uid] for uid in replaced)
        if jobs is not self._jobs or not is_same:
            self._shown = tuple([replaced.get(job.uid, job) for job in jobs]) if replaced else jobs
        self._jobs, self._replaced = jobs, replaced


def _is_unschedulable(job: Job) -> bool:
    return job.status is Status.PENDING and TRIED in job.reason and CLAIM not in job.reason.lower()


def waiting_pod_sets(job: Job, replicas: Iterable[Replica], taints: Iterable[Taint]) -> tuple[PodSet, ...]:
    """Return what the pods without a node request by their templates; nothing where one has none.

    Clusters add tolerations to pods, as ExtendedResourceToleration does, so that a template does
    not tell which taints keep its pods away. The scheduler's message does: it names them.

    Args:
        job: The job.
        replicas: What its object asks for.
        taints: Those of which the pods tolerate all that the scheduler's message does not name.
    """
    templates = {(each.role, each.index): each.template for each in replicas}
    specs = {id(each): spec_from_template(each) for each in {id(t): t for t in templates.values()}.values()}
    unscheduled = [each for each in job.instances if not each.node and not each.status.is_final]
    if not all(templates.get((each.role, each.index)) for each in unscheduled):
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
    return pod_sets((each.name, specs[id(templates[each.role, each.index])]) for each in unscheduled)
