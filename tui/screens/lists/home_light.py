"""What the panes of home point at in each other: a job's GPUs, the blocks it could take, a node's jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from k8s.snapshot import ClusterSnapshot, Job
from tui.text.format import plural
from tui.text.gpu_bar import LIT, OFFERED
from tui.widgets.home.gpu_strip import StripLight, where_words

if TYPE_CHECKING:
    from k8s.diagnosis.free_blocks import FreeBlocks

MOST_NAMES = 3
"""Jobs of a node that are named; more are counted."""


class HomeLight:
    """Finds what to point at for the job under the cursor, again and again."""

    def __init__(self) -> None:
        """Start without any job."""
        self._blocks: FreeBlocks | None = None

    def of(self, job: Job | None, snapshot: ClusterSnapshot) -> StripLight:
        """Return the GPUs of a job; while it waits the free ones it could take, or the reason for none."""
        return _light_of(job, lambda waits: self._free_blocks(waits, snapshot))

    def _free_blocks(self, job: Job, snapshot: ClusterSnapshot) -> dict[str, int] | None:
        if self._blocks is None:
            # Slow to import, and in a quiet cluster nothing waits.
            from k8s.diagnosis.free_blocks import FreeBlocks

            self._blocks = FreeBlocks()
        return self._blocks.find(job, snapshot.nodes)


def _light_of(job: Job | None, free_blocks: Callable[[Job], dict[str, int] | None]) -> StripLight:
    if job is None:
        return StripLight()
    key = (job.ref.namespace, job.ref.name)
    held: dict[str, int] = {}
    for each in job.instances:
        if each.node and not each.status.is_final:
            held[each.node] = held.get(each.node, 0) + each.gpus
    if not job.gpus_waiting or held:
        return StripLight(frozenset({key}), held, words=where_words(LIT, list(held)))
    offered = free_blocks(job)
    if offered is None:
        return StripLight(is_dim=True, words=job.reason or "There is no room for all of its pods.")
    if not offered:
        return StripLight(words=job.reason)
    amount = plural(sum(offered.values()), "free GPU")
    return StripLight(offered=offered, words=where_words(f"{OFFERED} {amount}", list(offered)))


def light_of_jobs(jobs: Collection[Job]) -> StripLight:
    """Return what to point at for all jobs of a node: their GPUs, wherever they are."""
    names = ", ".join(job.ref.name for job in jobs) if len(jobs) <= MOST_NAMES else plural(len(jobs), "job")
    keys = frozenset((job.ref.namespace, job.ref.name) for job in jobs)
    return StripLight(jobs=keys, words=f"{LIT} {names}" if jobs else "no job here")


def jobs_on(nodes: Collection[str], snapshot: ClusterSnapshot) -> list[Job]:
    """Return the jobs that have a pod on one of these nodes, and that is not over."""
    return [
        job
        for job in snapshot.jobs
        if any(each.node in nodes and not each.status.is_final for each in job.instances)
    ]
