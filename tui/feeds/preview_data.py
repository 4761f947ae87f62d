"""What the preview of a job asks the cluster for: its last events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.jobs.permissions import Permissions, ResourceAttributes
from k8s.models import Event, convert
from k8s.models.resources import EVENTS
from k8s.snapshot import Instance, Job
from k8s.status import Status
from tui.jobs.events import event_order, fold

MOST_EVENTS = 8
"""Events that are kept, the newest ones."""


@dataclass(frozen=True, slots=True)
class PreviewData:
    """What was seen; where it could not be seen, why."""

    events: tuple[Event, ...] = ()
    """The newest first; those that say the same are one, with their number."""
    events_problem: str = ""


async def fetch_preview(client: Client, job: Job, permissions: Permissions | None = None) -> PreviewData:
    """Look at a job, behind whatever the user waits for. Two requests at most; it never raises.

    Args:
        client: The cluster.
        job: The job.
        permissions: What the user may do there; what is known to be refused is not asked for.
    """
    if permissions is not None:
        found = await permissions.ask(ResourceAttributes.of("list", EVENTS), job.ref.namespace)
        if found.is_allowed is False:
            return PreviewData(events_problem=f"{found.why[:1].upper()}{found.why[1:]}.")
    return PreviewData(*await _events(client, job))


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


def said(error: KubeError) -> str:
    """Return what could not be done and why, in one line."""
    return " ".join(part for part in (error.what, error.why) if part)
