"""What every controller of the sandbox is made of: informers, a recorder of events, and one loop.

A controller is level-triggered: whenever anything changed it looks at everything again and
does what is missing. So it may be killed at any point, and a lost message costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Protocol

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.models import Reader, meta_of
from k8s.models.resources import EVENTS, Resource
from k8s.watch.mirror import Mirror

Manifest = dict[str, Any]

PROCESSES = "gpuconsole.dev/processes"
"""Annotation of a pod: how many processes share its cores, where its own variables do not tell."""
SETTLE_S = 0.02
"""How long a controller waits for more changes after the first."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0
"""Between tries of a reconciliation that failed."""

log = logging.getLogger(__name__)


class Informer:
    """All objects of one resource, as the server has them, our own writes at once."""

    def __init__(self, mirror: Mirror[Manifest]) -> None:
        self.mirror = mirror
        """What keeps it."""
        self._written: dict[str, Manifest] = {}

    def __iter__(self) -> Iterator[Manifest]:
        for uid, obj in list(self.mirror.objects.items()):
            written = self._written.get(uid)
            if written is None:
                yield obj
            elif _version(written) > _version(obj):
                yield written
            else:
                del self._written[uid]
                yield obj

    def remember(self, obj: Manifest) -> None:
        """Take over what a write of ours returned, until the watch brings it or something newer."""
        self._written[str(obj["metadata"]["uid"])] = obj

    @property
    def is_ready(self) -> bool:
        """Tell whether everything was listed once."""
        return self.mirror.state.is_synced


class Informers:
    """The collections that the controllers of one process look at, each watched once."""

    def __init__(self, client: Client) -> None:
        self.client = client
        """The cluster."""
        self._informers: dict[Resource, Informer] = {}
        self._wakers: list[asyncio.Event] = []

    def of(self, resource: Resource) -> Informer:
        """Return the informer of a resource, over all namespaces."""
        if resource not in self._informers:
            reader: Reader[Manifest] = Reader(dict)
            self._informers[resource] = Informer(
                Mirror(self.client, resource, ("",), reader, meta_of, self._wake)
            )
        return self._informers[resource]

    def waker(self) -> asyncio.Event:
        """Return an event that is set after every change."""
        self._wakers.append(asyncio.Event())
        return self._wakers[-1]

    async def run(self) -> None:
        """Keep all informers, for ever."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.mirror.run())

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()


class Controller(Protocol):
    """Something that makes the cluster be as it was asked to be."""

    async def reconcile(self) -> float | None:
        """Do what is missing; return after how many seconds to do so again even if nothing changes."""


async def run_controller(controller: Controller, waker: asyncio.Event, *informers: Informer) -> None:
    """Let a controller reconcile after every change, for ever; what fails is tried later and later."""
    delay_s = FIRST_DELAY_S
    requeue_after_s: float | None = None
    while True:
        try:
            await asyncio.wait_for(waker.wait(), requeue_after_s)
        except TimeoutError:
            pass
        else:
            await asyncio.sleep(SETTLE_S)
        waker.clear()
        if not all(informer.is_ready for informer in informers):
            continue
        try:
            requeue_after_s = await controller.reconcile()
            delay_s = FIRST_DELAY_S
        except Exception as error:
            # An object that no one foresaw must not end the sandbox, and with it everybody's jobs.
            log.warning("%s: %s", type(controller).__name__, error, exc_info=not isinstance(error, KubeError))
            requeue_after_s = delay_s
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)


class Recorder:
    """Writes events about objects; one that cannot be written is only logged."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component

    async def record(
        self, of: Resource, obj: Manifest, reason: str, message: str, *, is_warning: bool = False
    ) -> None:
        """Write one event about an object, whose kind is `of`: objects in lists do not say theirs."""
        meta = obj["metadata"]
        namespace = str(meta.get("namespace") or "default")
        stamp = now_text()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": of.api_version,
                "kind": of.kind,
                "name": meta["name"],
                "namespace": meta.get("namespace") or "",
                "uid": meta.get("uid") or "",
                "resourceVersion": meta.get("resourceVersion") or "",
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if is_warning else "Normal",
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        try:
            await self._client.create(EVENTS, event, namespace)
        except KubeError as error:
            log.warning("event %s about %s is lost: %s", reason, meta["name"], error)


def now_text() -> str:
    """Return the time as the API writes it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str) -> float:
    """Return how long ago a time of the API was."""
    return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()


def controller_of(obj: Manifest) -> Manifest:
    """Return the owner reference that manages an object; empty when nothing does."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def by_controller(objects: Informer) -> dict[str, list[Manifest]]:
    """Return objects by the uid of what manages them."""
    found: dict[str, list[Manifest]] = {}
    for obj in objects:
        if uid := controller_of(obj).get("uid"):
            found.setdefault(str(uid), []).append(obj)
    return found


def _version(obj: Manifest) -> int:
    """Return the version as a number, which it is on every server since 1.0, if not by promise."""
    text = str(obj["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0
