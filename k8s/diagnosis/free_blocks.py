"""Which free GPUs a job that waits could take, by the predicates that also say why another cannot. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from k8s.devices import accelerators
from k8s.diagnosis.pending import TRIED, waiting_pod_sets
from k8s.diagnosis.shortage import PodSet
from k8s.models import Condition, Meta, Node, NodeSpec, NodeStatus, Taint
from k8s.scheduling.predicates import ClusterCapacity, NodeCapacity, importance, main_resource, unfit_node
from k8s.snapshot import Job, NodeRow


class FreeBlocks:
    """Seeks blocks again and again; a node that has not changed is not read again."""

    def __init__(self) -> None:
        """Start without any node."""
        self._capacities: dict[str, tuple[NodeRow, NodeCapacity | None]] = {}
        self._found: tuple[Job, Sequence[NodeRow], dict[str, int] | None] | None = None

    def find(self, job: Job, rows: Sequence[NodeRow]) -> dict[str, int] | None:
        """Return how many GPUs of each node all pods of a job that wait could take together, now.

        Returns:
            GPUs by the node's name; none where it is not told what the pods request. None where not all
            of them would find a node.
        """
        if self._found is None or self._found[0] is not job or self._found[1] is not rows:
            self._found = job, rows, self._seek(job, rows)
        return self._found[2]

    def _seek(self, job: Job, rows: Sequence[NodeRow]) -> dict[str, int] | None:
        if job.is_short:
            return None
        capacity = ClusterCapacity(self._with_free_gpus(rows))
        taken: dict[str, int] = {}
        for pod_set in _sets_with_gpus(job, rows):
            left, placed = capacity.place(
                pod_set.requested, len(pod_set.instances), _Unfit(pod_set, capacity)
            )
            if placed < len(pod_set.instances):
                return None
            for name, after in left.nodes.items():
                if after is not (before := capacity.nodes[name]):
                    taken[name] = taken.get(name, 0) + _gpus(before) - _gpus(after)
            capacity = left
        return taken

    def _with_free_gpus(self, rows: Iterable[NodeRow]) -> dict[str, NodeCapacity]:
        found = {}
        for row in rows:
            kept = self._capacities.get(row.name)
            if kept is None or kept[0] is not row:
                kept = row, _capacity_of(row) if row.largest_free else None
                self._capacities[row.name] = kept
            if kept[1] is not None:
                found[row.name] = kept[1]
        return found


class _Unfit(Container[str]):
    """The nodes that cannot take a pod of a set, each looked at only when it is asked for."""

    def __init__(self, pods: PodSet, capacity: ClusterCapacity) -> None:
        self._pods, self._capacity = pods, capacity

    def __contains__(self, name: object) -> bool:
        node = self._capacity.nodes[str(name)]
        return unfit_node(self._pods.spec, self._pods.requested, node) is not None


def _sets_with_gpus(job: Job, rows: Iterable[NodeRow]) -> list[PodSet]:
    """Return the pods that wait and request GPUs, the most important resource first."""
    # Only what the scheduler said tells which taints its pods tolerate that no template names.
    taints: Iterable[Taint] = ()
    if TRIED in job.reason:
        taints = dict.fromkeys(taint for row in rows for taint in row.taints)
    found = waiting_pod_sets(job, job.replicas, taints)
    with_gpus = (each for each in found if accelerators.is_accelerator(main_resource(each.requested)))
    return sorted(with_gpus, key=lambda each: importance(main_resource(each.requested)))


def _capacity_of(row: NodeRow) -> NodeCapacity:
    ready = Condition("Ready", "True" if row.status.startswith("Ready") else "False")
    spec = NodeSpec("cordoned" in row.status, list(row.taints))
    status = NodeStatus(allocatable=dict(row.allocatable), conditions=[ready])
    return NodeCapacity.of(Node(Meta(row.name, labels=dict(row.labels)), spec, status), None, row)


def _gpus(capacity: NodeCapacity) -> int:
    return accelerators.count(
        {name: int(free) for name, free in capacity.free.items() if accelerators.is_accelerator(name)}
    )
