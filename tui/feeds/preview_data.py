"""What the preview of a job asks the cluster for: its last events, and the last lines of rank 0."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from k8s.client.client import Client
from k8s.client.transport import translated
from k8s.errors import KubeError
from k8s.logs.prefixes import RankReader
from k8s.models import LONG_AGO, Event, convert
from k8s.models.resources import EVENTS
from k8s.snapshot import Instance, Job
from k8s.status import Status
from tui.jobs.events import event_order, fold

MOST_EVENTS = 8
"""Events that are kept, the newest ones."""
MOST_LINES = 60
"""Lines of a log that are kept, the last ones."""
MOST_RANKS = 8
"""For so many ranks in one log lines are asked for, so that enough are left of one of them."""
MOST_BYTES = 512 * 1024
"""Of a log no more is read, however long its lines are."""
IDLE_S = 10.0
"""Longest silence of a log that is being read."""
_NOT_STARTED = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)


@dataclass(frozen=True, slots=True)
class PreviewData:
    """What was seen; where it could not be seen, why."""

    events: tuple[Event, ...] = ()
    """The newest first; those that say the same are one, with their number."""
    events_problem: str = ""
    log: tuple[bytes, ...] = ()
    """As they were written, the last one last."""
    log_of: str = ""
    """Whose lines these are, as in `rank 0 · master-0`; empty where nobody says anything yet."""
    log_problem: str = ""
    at: datetime = LONG_AGO
    """When it was seen, by our clock."""


async def fetch_preview(client: Client, job: Job) -> PreviewData:
    """Look at a job, behind whatever the user waits for. Three requests at most; it never raises."""
    (events, events_problem), (log, log_of, log_problem) = await asyncio.gather(
        _events(client, job), _log(client, job)
    )
    return PreviewData(events, events_problem, log, log_of, log_problem, datetime.now(UTC))


async def _events(client: Client, job: Job) -> tuple[tuple[Event, ...], str]:
    """Return the last events of a job and of the pod that tells most, or why there are none."""
    pod = _telling(job)
    names = [job.ref.name, *([pod.pod] if pod is not None and pod.pod != job.ref.name else [])]
    uids = {job.uid, *(each.pod_uid for each in job.instances), ""}
    try:
        answers = await asyncio.gather(
            *(
                client.list(EVENTS, job.ref.namespace, field_selector=f"involvedObject.name={name}")
                for name in names
            )
        )
    except KubeError as error:
        return (), said(error)
    found: dict[str, Event] = {}
    for obj in (each for answer in answers for each in answer):
        with suppress(msgspec.ValidationError):
            event: Event = convert(obj, Event)
            if event.involved_object.uid in uids:
                found[event.metadata.uid] = event
    return tuple(_fold_alike(found.values())[:MOST_EVENTS]), ""


def _fold_alike(events: Iterable[Event]) -> list[Event]:
    """Return events that say the same as one that counts them all, the newest first."""
    alike: dict[tuple[str | None, ...], list[tuple[str, Event]]] = {}
    for event in events:
        about = event.involved_object
        alike.setdefault((about.kind, event.type, event.reason, event.message), []).append(
            (about.name, event)
        )
    folded = sorted(map(fold, alike.values()), key=lambda each: event_order(each.newest), reverse=True)
    return [msgspec.structs.replace(each.newest, count=each.count) for each in folded]


def _telling(job: Job) -> Instance | None:
    """Return the instance with a pod that is not as it should be, else the chief."""
    with_pod = [each for each in job.instances if each.pod]
    bad = (each for each in with_pod if each.reason and each.status is not Status.SUCCEEDED)
    return next(bad, None) or _chief(job)


def _chief(job: Job) -> Instance | None:
    with_pod = [each for each in job.instances if each.pod]
    return next((each for each in with_pod if each.is_chief), with_pod[0] if with_pod else None)


async def _log(client: Client, job: Job) -> tuple[tuple[bytes, ...], str, str]:
    """Return the last lines of the first rank, whose they are, and why they cannot be read."""
    chief = _chief(job)
    if chief is None or (chief.status in _NOT_STARTED and not chief.restarts):
        return (), "", ""
    rank = min(chief.ranks, default=None)
    whose = chief.name if rank is None else f"rank {rank} · {chief.name}"
    is_launcher = chief.role == "launcher"  # it prints all ranks, and declares none
    ranks_here = MOST_RANKS if is_launcher else min(max(1, len(chief.ranks)), MOST_RANKS)
    shown = 0 if rank is None and is_launcher else rank
    body = bytearray()
    try:
        async with client.log(
            chief.pod,
            job.ref.namespace,
            container=chief.containers[0] if chief.containers else "",
            tail=MOST_LINES * ranks_here,
            idle_s=IDLE_S,
            is_urgent=False,
        ) as stream:
            with translated(f"read the log of {chief.pod}"):
                async for chunk in stream.iter_any():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        break
    except KubeError as error:
        return (), whose, said(error)
    reader = RankReader(chief.ranks, prints_all_ranks=is_launcher)
    lines = []
    for raw in bytes(body).removesuffix(b"\n").split(b"\n"):
        owner = reader.owner(raw)
        if shown is None or owner.rank in (None, shown):
            lines.append(raw[owner.prefix_bytes :])
    return tuple(lines[-MOST_LINES:]), whose, ""


def said(error: KubeError) -> str:
    """Return what could not be done and why, in one line."""
    return " ".join(part for part in (error.what, error.why) if part)
