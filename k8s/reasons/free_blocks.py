"""Free GPUs that a waiting job could use, by the predicates that also explain why not. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from k8s.models import Taint, accelerators
from k8s.reasons.pending import TRIED, waiting_pod_sets
from k8s.reasons.scheduling.predicates import (
    ClusterCapacity,
    NodeCapacity,
    importance,
    infeasible_node,
    main_resource,
)
from k8s.reasons.shortage import PodSet
from k8s.snapshot import Job, NodeRow


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
    """# Lazy: a node is checked only when `in` asks for it."""

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
    found = waiting_pod_sets(job, job.replicas, taints)
    with_gpus = (each for each in found if accelerators.is_accelerator(main_resource(each.requested)))
    return sorted(with_gpus, key=lambda each: importance(main_resource(each.requested)))


def _gpus(capacity: NodeCapacity) -> int:
    return accelerators.count(
        {name: int(free) for name, free in capacity.free.items() if accelerators.is_accelerator(name)}
    )
