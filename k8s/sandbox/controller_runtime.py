"""Building blocks of controllers: informers, event recorder, reconcile loop.

Controllers are level-triggered: after any change they compare everything again and do what is missing. So
they can be killed at any point, and a lost message does no harm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from k8s.client.client import Client
from k8s.cluster.mirror import Mirror
from k8s.models import Reader, meta_of
from k8s.models.resources import EVENTS, Resource
from k8s.text.errors import KubeError

Manifest = dict[str, Any]

# Annotation of a pod: number of processes that share its cores, if its own variables do not tell.
PROCESSES = "gpuconsole.dev/processes"
# Phases of a pod that has ended: its GPUs are free.
ENDED = ("Succeeded", "Failed")
# Pause after a change, to handle the changes that follow it together.
SETTLE_S = 0.02
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 30.0

log = logging.getLogger(__name__)


class Informer:
    """All objects of one resource as on the server, including our own writes at once."""

    def __init__(self, mirror: Mirror[Manifest]) -> None:
        self.mirror = mirror
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
        """Use the result of our own write until the watch delivers it or something newer."""
        self._written[str(obj["metadata"]["uid"])] = obj

    @property
    def is_ready(self) -> bool:
        """Return True once all objects were listed."""
        return self.mirror.state.is_synced


class Informers:
    """Informers of one process; each resource is watched once."""

    def __init__(self, client: Client) -> None:
        self.client = client
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
        """Run all informers forever."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.mirror.run())

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()


class Controller(Protocol):
    """Object that brings the cluster to its desired state."""

    async def reconcile(self) -> float | None:
        """Do what is missing; return the seconds until the next call if nothing changes, or None."""


async def run_controller(controller: Controller, waker: asyncio.Event, *informers: Informer) -> None:
    """Reconcile after every change, forever; after an error, retry with backoff."""
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
    """Writer of events about objects; an event that cannot be written is only logged."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component

    async def record(
        self, of: Resource, obj: Manifest, reason: str, message: str, *, is_warning: bool = False
    ) -> None:
        """Write one event about an object of the resource `of`; objects in lists carry no kind."""
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


def now_text(later_s: int = 0) -> str:
    """Return the time now, or `later_s` later, in the API's format, in whole seconds."""
    return (datetime.now(UTC) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str) -> float:
    """Return the seconds since a time in the API's format."""
    return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()


def controller_of(obj: Manifest) -> Manifest:
    """Return the controlling owner reference of an object; empty if it has none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def by_controller(objects: Informer) -> dict[str, list[Manifest]]:
    """Return objects by the uid of their controller."""
    found: dict[str, list[Manifest]] = {}
    for obj in objects:
        if uid := controller_of(obj).get("uid"):
            found.setdefault(str(uid), []).append(obj)
    return found


def _version(obj: Manifest) -> int:
    # The API calls versions opaque, but they are numbers on every server since 1.0.
    text = str(obj["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0
