"""Signs of life and losses for commands, read once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from k8s.client.client import Client
from k8s.snapshot import ClusterSnapshot, Job
from tui.commands.support.connect import server_clock
from tui.feeds.life_feed import FIRST_LINES, read_life
from tui.options import ConsoleOptions
from tui.runs.store import RunStore
from tui.tables.jobs import JobsNow


async def read_jobs_now(options: ConsoleOptions, client: Client, jobs: Iterable[Job]) -> JobsNow:
    """Return the time, and the age of the newest line and the loss of each of these jobs."""
    runs = RunStore(options.state_folder)
    life = await read_life(client, list(jobs), runs)
    return JobsNow(server_clock(client), life.losses, runs.get, life.newest_s)


async def with_silence(
    options: ConsoleOptions, client: Client, job: Job, snapshot: ClusterSnapshot
) -> tuple[Job, ClusterSnapshot]:
    """Return a job with its silence and its slow ranks, also in the snapshot."""
    life = await read_life(client, [job], RunStore(options.state_folder), lines=FIRST_LINES)
    found = life.jobs.get(job.uid, job)
    return found, replace(snapshot, jobs=tuple(found if each is job else each for each in snapshot.jobs))
