"""Last events of a job, for its preview."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from k8s.client.client import Client
from k8s.jobs.permissions import Permissions, ResourceAttributes
from k8s.models import convert
from k8s.models.event import Event
from k8s.models.resources import EVENTS
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.text.errors import KubeError, join_sentences
from tui.tables.events import event_order, fold

MAX_EVENTS = 8


class PreviewData(msgspec.Struct, frozen=True):
    """Events of a job, or the reason that there are none."""

    events: tuple[Event, ...] = ()
    """The newest first; identical events are merged, with their count."""
    events_problem: str = ""


async def fetch_preview(client: Client, job: Job, permissions: Permissions | None = None) -> PreviewData:
    """Fetch the events of a job with background priority. At most two requests; raises no `KubeError`.

    Args:
        client: The cluster.
        job: The job.
        permissions: Permissions of the user; a forbidden request is not sent.
    """
    if permissions is not None:
        found = await permissions.ask(ResourceAttributes.of("list", EVENTS), job.ref.namespace)
        if found.is_allowed is False:
            return PreviewData(events_problem=f"{found.why[:1].upper()}{found.why[1:]}.")
    return PreviewData(*await _events(client, job))


async def _events(client: Client, job: Job) -> tuple[tuple[Event, ...], str]:
    # Events of the job and of its most relevant pod, or the reason that there are none.
    pod = _most_relevant(job)
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
        return (), error_line(error)
    found: dict[str, Event] = {}
    for obj in (each for answer in answers for each in answer):
        with suppress(msgspec.ValidationError):
            event: Event = convert(obj, Event)
            if event.involved_object.uid in uids:
                found[event.metadata.uid] = event
    return tuple(_fold_alike(found.values())[:MAX_EVENTS]), ""


def _fold_alike(events: Iterable[Event]) -> list[Event]:
    alike: dict[tuple[str | None, ...], list[tuple[str, Event]]] = {}
    for event in events:
        about = event.involved_object
        alike.setdefault((about.kind, event.type, event.reason, event.message), []).append(
            (about.name, event)
        )
    folded = sorted(map(fold, alike.values()), key=lambda each: event_order(each.newest), reverse=True)
    return [msgspec.structs.replace(each.newest, count=each.count) for each in folded]


def _most_relevant(job: Job) -> Instance | None:
    # A pod with a problem, else the chief's.
    with_pod = [each for each in job.instances if each.pod]
    bad = (each for each in with_pod if each.reason and each.status is not Status.SUCCEEDED)
    return next(bad, None) or _chief(job)


def _chief(job: Job) -> Instance | None:
    with_pod = [each for each in job.instances if each.pod]
    return next((each for each in with_pod if each.is_chief), with_pod[0] if with_pod else None)


def error_line(error: KubeError) -> str:
    """Format an error as one line."""
    return join_sentences(error.what, error.why)
