"""Facts of jobs that end, restart or are deleted, read once and kept in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from k8s.client.client import Client
from k8s.logs import LogHub
from k8s.models import Pod, convert
from k8s.models.event import Event
from k8s.models.resources import EVENTS
from k8s.snapshot import Job
from k8s.text.errors import KubeError
from tui.runs.journal.kept_facts import keep_events
from tui.runs.journal.kept_logs import keep_logs
from tui.runs.run_records import NOTHING_KNOWN, NodesAndPods, as_deleted, job_record, read_run
from tui.runs.store import RunStore
from tui.tables.events import JobEventFilter, select_job_events

if TYPE_CHECKING:
    from tui.runs.journal.database import Journal

# Limit for all reads before jobs are deleted.
BEFORE_DELETE_S = 3.0


async def fetch_events(client: Client, namespace: str) -> list[Event]:
    """Return the events of a namespace.

    Raises:
        KubeError: They cannot be read.
    """
    found = []
    for obj in await client.list(EVENTS, namespace):
        with suppress(msgspec.ValidationError):
            found.append(convert(obj, Event))
    return found


async def keep_job_events(
    client: Client, journal: Journal, jobs: Sequence[Job], pods: Mapping[str, Pod], others: Iterable[Job] = ()
) -> None:
    """Keep the events of jobs and their dependents, with one request for each namespace.

    `pods` and `others` are those of `JobEventFilter`. Events that cannot be read are left out.
    """
    for namespace in dict.fromkeys(job.ref.namespace for job in jobs):
        with suppress(KubeError):
            events = await fetch_events(client, namespace)
            for job in jobs:
                if job.ref.namespace == namespace:
                    found = select_job_events(events, JobEventFilter(job, pods, others), job.created)
                    await asyncio.to_thread(keep_events, journal, job.uid, list(found))


async def record_runs(
    client: Client,
    jobs: Sequence[Job],
    store: RunStore,
    place: NodesAndPods = NOTHING_KNOWN,
    hub: LogHub | None = None,
) -> None:
    """Record jobs that are about to be deleted, their logs, curves and events, in `BEFORE_DELETE_S` seconds.

    What takes longer is left out.
    """
    logs = hub or LogHub(client)

    async def read(job: Job) -> None:
        if job.uid not in store:
            store.add(as_deleted(job_record(job, client.config.context)))
            store.add(as_deleted(await read_run(client, job, place, logs, store.journal)))
        await keep_logs(store.journal, job, logs.read_tail, logs.streamed_lines)

    with suppress(TimeoutError):
        async with asyncio.timeout(BEFORE_DELETE_S):
            events = keep_job_events(client, store.journal, jobs, place.pods)
            await asyncio.gather(events, *map(read, jobs))
