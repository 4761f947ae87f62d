"""Which GPU readings are whose: a job's pods, and the ranks in them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from k8s.snapshot import Instance, Job, NodeRow
from k8s.telemetry.readings import GpuReading, NodeReadings, PodContainer, Telemetry


@dataclass(frozen=True, slots=True)
class RankReading:
    """The GPU of one rank of a job, or of an instance whose ranks are not known."""

    instance: Instance
    rank: int | None
    """None when it is not known which rank has which GPU."""
    gpu: GpuReading | None
    """None when nothing is known of it."""
    is_assumed: bool = False
    """That the GPU is this pod's is concluded from the scheduler's count, not told by the source."""


def holders_of(gpu: GpuReading, nodes: Sequence[NodeRow]) -> tuple[PodContainer, ...]:
    """Return whose GPU it is: as the source says, or else as the cluster's own books tell for certain."""
    if gpu.holders:
        return gpu.holders
    row = next((node for node in nodes if node.name == gpu.node), None)
    if row is None or gpu.mig_id:
        return ()
    named = [each for each in row.holders if gpu.index in each.devices]
    if not named and len(row.holders) == 1 and row.holders[0].gpus == row.gpus_total:
        named = list(row.holders)
    return tuple(PodContainer(each.namespace, each.pod) for each in named)


def readings_by_rank(
    job: Job, telemetry: Telemetry, nodes: Sequence[NodeRow] = ()
) -> tuple[RankReading, ...]:
    """Return a line for each rank of a job's instances that has a pod and GPUs, in the order of instances.

    A pod's GPUs are given to its ranks by their index, as torchrun and mpirun number them; where there
    are not as many of one as of the other, no rank is claimed. `nodes` helps where the source does not
    say whose a GPU is.
    """
    return tuple(line for instance in job.instances for line in _of_instance(job, instance, telemetry, nodes))


def _of_instance(
    job: Job, instance: Instance, telemetry: Telemetry, nodes: Sequence[NodeRow]
) -> Iterator[RankReading]:
    if not instance.pod or not (instance.gpus or instance.ranks):
        return
    read = telemetry.nodes.get(instance.node, NodeReadings(instance.node))
    gpus = [
        gpu for gpu in read.gpus if any(_is_pod(holder, job, instance) for holder in holders_of(gpu, nodes))
    ]
    if not gpus:
        for rank in instance.ranks or (None,):
            yield RankReading(instance, rank, None)
        return
    ranks: Sequence[int | None] = instance.ranks if len(instance.ranks) == len(gpus) else [None] * len(gpus)
    for rank, gpu in zip(ranks, gpus, strict=True):
        yield RankReading(instance, rank, gpu, is_assumed=not gpu.holders)


def _is_pod(holder: PodContainer, job: Job, instance: Instance) -> bool:
    return holder.namespace == job.ref.namespace and holder.pod == instance.pod
