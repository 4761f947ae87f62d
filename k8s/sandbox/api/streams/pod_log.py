"""`GET pods/NAME/log`: which of a container's logs is meant, and following it to its end.

The pod's status says which run is the current one and when it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.queries import Whole, read_query
from k8s.sandbox.api.storage.store import Record, Store
from k8s.sandbox.api.streams.log_file import LogFile, time_words

SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.01, 0.08
"""Between looks at a followed file: shorter while it grows, longer while it is quiet."""


class LogQuery(msgspec.Struct, frozen=True, rename="camel"):
    """What is asked of a log."""

    container: str = ""
    previous: bool = False
    follow: bool = False
    timestamps: bool = False
    tail_lines: Whole | None = None
    limit_bytes: Whole | None = None
    since_seconds: Whole | None = None
    since_time: datetime | None = None

    @property
    def since(self) -> str:
        """Return the time before which nothing is wanted, as it stands in a record."""
        moment = self.since_time
        if self.since_seconds is not None:
            moment = datetime.now(UTC) - timedelta(seconds=self.since_seconds)
        return time_words(moment) if moment is not None else ""


def container_of(pod: Mapping[str, Any], asked: str) -> str:
    """Return the container that a request means.

    Raises:
        ApiError: It names none although the pod has several, or one that the pod lacks.
    """
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [each["name"] for each in spec["containers"]]
    init_containers = [each["name"] for each in spec.get("initContainers") or ()]
    if not asked and len(containers) == 1:
        return str(containers[0])
    if not asked:
        choice = f"choose one of: [{' '.join(containers)}]"
        if init_containers:
            choice += f" or one of the init containers: [{' '.join(init_containers)}]"
        raise api_errors.bad_request(f"a container name must be specified for pod {name}, {choice}")
    if asked not in (*containers, *init_containers):
        raise api_errors.bad_request(f"container {asked} is not valid for pod {name}")
    return asked


def status_of(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return a container's status; empty before there is one."""
    status = pod.get("status") or {}
    for each in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        if each.get("name") == container:
            found: Mapping[str, Any] = each
            return found
    return {}


def run_of(pod: Mapping[str, Any], container: str, *, previous: bool) -> int:
    """Return the number of the run whose log is meant; a container that waits shows its last one.

    Raises:
        ApiError: That run has not happened.
    """
    name, status = pod["metadata"]["name"], status_of(pod, container)
    state, restarts = status.get("state") or {}, int(status.get("restartCount") or 0)
    ended_before = bool((status.get("lastState") or {}).get("terminated"))
    is_waiting = "running" not in state and "terminated" not in state
    if previous and not ended_before:
        raise api_errors.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if is_waiting and not ended_before:
        reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
        raise api_errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return restarts if is_waiting or not previous else restarts - 1


async def send_log(
    request: web.Request, store: Store, record: Record, pods_root: Path, stopping: asyncio.Event
) -> web.StreamResponse:
    """Send a log as its process wrote it, and go on while it grows if that is asked."""
    pod = record.obj
    uid = pod["metadata"]["uid"]
    asked = read_query(request.query, LogQuery)
    container = container_of(pod, asked.container)
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)
    run = run_of(pod, container, previous=asked.previous)
    folder = pods_root / uid / container
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    left, since = asked.limit_bytes, asked.since
    log: LogFile | None = None
    wait_s = SHORTEST_WAIT_S
    try:
        while not stopping.is_set():
            # Asked before reading: what was written before the end is then read too.
            is_over = not asked.follow or _is_over(store, record, container, run)
            if log is None:
                with suppress(FileNotFoundError):
                    log = LogFile.open(
                        folder, run, tail=asked.tail_lines, timestamps=asked.timestamps, since=since
                    )
            text = log.read() if log is not None else None
            if text:
                wait_s = SHORTEST_WAIT_S
                await response.write(text if left is None else text[:left])
                left = None if left is None else left - len(text)
            if left is not None and left <= 0:
                break
            if text is None:
                if is_over:
                    break
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
    finally:
        if log is not None:
            log.close()
    await response.write_eof()
    return response


def _is_over(store: Store, asked_for: Record, container: str, run: int) -> bool:
    """Tell whether a run has ended, or its pod is gone."""
    record = store.get("pods", asked_for.namespace, asked_for.name)
    if record is None or record.obj["metadata"]["uid"] != asked_for.obj["metadata"]["uid"]:
        return True
    status = status_of(record.obj, container)
    return "running" not in (status.get("state") or {}) or int(status.get("restartCount") or 0) != run
