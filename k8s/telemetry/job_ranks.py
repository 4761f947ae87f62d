"""Assignment of GPU readings to pods and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from k8s.snapshot import Instance, Job, NodeRow
from k8s.telemetry.readings import GpuReading, NodeReadings, PodContainer, Telemetry


@dataclass(frozen=True, slots=True)
class RankReading:
    """The GPU of one rank of a job, or of an instance with unknown ranks."""

    instance: Instance
    rank: int | None
    """None if it is unknown which rank uses the GPU."""
    gpu: GpuReading | None
    """None if there is no reading."""
    is_assumed: bool = False
    """The GPU was attributed by the scheduler's count, not by the source."""


def holders_of(gpu: GpuReading, nodes: Sequence[NodeRow]) -> tuple[PodContainer, ...]:
    """Return the holders of a GPU: from the source, else from allocations if they are unambiguous."""
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
    """Return one entry per rank of each instance that has a pod and GPUs, in the order of instances.

    A pod's GPUs are assigned to its ranks by index, as torchrun and mpirun do; if the numbers
    differ, the rank is None. `nodes` attributes GPUs for which the source names no holder.
    """
    return tuple(line for instance in job.instances for line in _of_instance(job, instance, telemetry, nodes))


def _of_instance(
    job: Job, instance: Instance, telemetry: Telemetry, nodes: Sequence[NodeRow]
) -> Iterator[RankReading]:
    if not instance.pod or not (instance.gpus or instance.ranks):
        return
    read = telemetry.nodes.get(instance.node, NodeReadings(instance.node))
    pod = (job.ref.namespace, instance.pod)
    gpus = [gpu for gpu in read.gpus if any(each[:2] == pod for each in holders_of(gpu, nodes))]
    if not gpus:
        for rank in instance.ranks or (None,):
            yield RankReading(instance, rank, None)
        return
    ranks: Sequence[int | None] = instance.ranks if len(instance.ranks) == len(gpus) else [None] * len(gpus)
    for rank, gpu in zip(ranks, gpus, strict=True):
        yield RankReading(instance, rank, gpu, is_assumed=not gpu.holders)
