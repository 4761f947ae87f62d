"""Which free GPUs a job that waits could take, as far as the picture of the cluster tells. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from k8s.snapshot import Job, NodeRow


def free_blocks(job: Job, nodes: Sequence[NodeRow]) -> dict[str, int] | None:
    """Return how many GPUs of each node all pods of a job that wait could take together, now.

    Only GPUs are counted: what else keeps a pod from a node, the scheduler knows. A pod goes where
    the least is left over, the largest pods first.

    Returns:
        GPUs by the node's name; None where not all of its pods would find room.
    """
    wanted = sorted((each.gpus for each in job.instances if not each.node and each.gpus), reverse=True)
    free = sorted((node.largest_free, node.name) for node in nodes if node.largest_free)
    taken: dict[str, int] = {}
    for gpus in wanted:
        place = bisect_left(free, (gpus, ""))
        if place == len(free):
            return None
        left, name = free.pop(place)
        insort(free, (left - gpus, name))
        taken[name] = taken.get(name, 0) + gpus
    return taken or None
