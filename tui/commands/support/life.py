"""Signs of life and losses for commands, read once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from k8s.client.client import Client
from k8s.snapshot import ClusterSnapshot, Job
from tui.commands.support.connect import server_clock
from tui.runs.store import RunStore
from tui.session.life_feed import FIRST_LINES, read_life
from tui.settings.options import ConsoleOptions
from tui.tables.jobs import JobsNow


async def read_jobs_now(
    options: ConsoleOptions, client: Client, jobs: Iterable[Job]
) -> tuple[tuple[Job, ...], JobsNow]:
    """Return these jobs with the signs of life in their logs, and the time and their losses."""
    runs, jobs = RunStore(options.state_folder), tuple(jobs)
    life = await read_life(client, jobs, runs)
    return tuple(life.jobs.get(each.uid, each) for each in jobs), JobsNow(
        server_clock(client), life.losses, runs.get
    )


async def with_silence(
    options: ConsoleOptions, client: Client, job: Job, snapshot: ClusterSnapshot
) -> tuple[Job, ClusterSnapshot]:
    """Return a job with its silence and its slow ranks, also in the snapshot."""
    life = await read_life(client, [job], RunStore(options.state_folder), lines=FIRST_LINES)
    found = life.jobs.get(job.uid, job)
    return found, replace(snapshot, jobs=tuple(found if each is job else each for each in snapshot.jobs))
