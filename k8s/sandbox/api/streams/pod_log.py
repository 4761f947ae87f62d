"""`GET pods/NAME/log`: selects a container's log, and follows it to its end.

The pod's status tells which run is the current one and when it is over.
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
from k8s.sandbox.api.queries import Count, read_query
from k8s.sandbox.api.store import Record, Store
from k8s.sandbox.api.streams.log_file import LogFile, format_time

# Between reads of a followed file: shorter while it grows, longer while it is idle.
MIN_WAIT_S, MAX_WAIT_S = 0.01, 0.08


class LogQuery(msgspec.Struct, frozen=True, rename="camel"):
    """Parameters of a log request."""

    container: str = ""
    previous: bool = False
    follow: bool = False
    timestamps: bool = False
    tail_lines: Count | None = None
    limit_bytes: Count | None = None
    since_seconds: Count | None = None
    since_time: datetime | None = None

    @property
    def since(self) -> str:
        """Return the earliest requested time in the form of a record; empty if there is none."""
        moment = self.since_time
        if self.since_seconds is not None:
            moment = datetime.now(UTC) - timedelta(seconds=self.since_seconds)
        return format_time(moment) if moment is not None else ""


def container_of(pod: Mapping[str, Any], requested: str) -> str:
    """Return the requested container, or the only one of the pod.

    Raises:
        ApiError: The request names none and the pod has several, or the pod lacks it.
    """
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [each["name"] for each in spec["containers"]]
    init_containers = [each["name"] for each in spec.get("initContainers") or ()]
    if not requested and len(containers) == 1:
        return str(containers[0])
    if not requested:
        choice = f"choose one of: [{' '.join(containers)}]"
        if init_containers:
            choice += f" or one of the init containers: [{' '.join(init_containers)}]"
        raise api_errors.bad_request(f"a container name must be specified for pod {name}, {choice}")
    if requested not in (*containers, *init_containers):
        raise api_errors.bad_request(f"container {requested} is not valid for pod {name}")
    return requested


def status_of(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return the status of a container; empty before there is one."""
    status = pod.get("status") or {}
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return next((each for each in statuses if each.get("name") == container), {})


def run_of(pod: Mapping[str, Any], container: str, *, previous: bool) -> int:
    """Return the number of the requested run; a container that waits shows its last one.

    Raises:
        ApiError: The container has had no such run.
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
    """Send a log as its process wrote it, and follow it if requested."""
    pod = record.obj
    uid = pod["metadata"]["uid"]
    query = read_query(request.query, LogQuery)
    container = container_of(pod, query.container)
    if not pod["spec"].get("nodeName"):
        return web.Response(status=204)
    run = run_of(pod, container, previous=query.previous)
    folder = pods_root / uid / container
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    remaining_bytes, since = query.limit_bytes, query.since
    log: LogFile | None = None
    wait_s = MIN_WAIT_S
    try:
        while not stopping.is_set():
            # Checked before reading, so that everything written before the end is read too.
            is_over = not query.follow or _is_over(store, record, container, run)
            if log is None:
                with suppress(FileNotFoundError):
                    log = LogFile.open(
                        folder, run, tail=query.tail_lines, timestamps=query.timestamps, since=since
                    )
            text = log.read() if log is not None else None
            if text:
                wait_s = MIN_WAIT_S
                await response.write(text if remaining_bytes is None else text[:remaining_bytes])
                remaining_bytes = None if remaining_bytes is None else remaining_bytes - len(text)
            if remaining_bytes is not None and remaining_bytes <= 0:
                break
            if text is None:
                if is_over:
                    break
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, MAX_WAIT_S)
    finally:
        if log is not None:
            log.close()
    await response.write_eof()
    return response


def current_status(store: Store, original: Record, container: str) -> Mapping[str, Any]:
    """Return the present status of a pod's container; empty once the pod is gone."""
    record = store.get("pods", original.namespace, original.name)
    if record is None or record.obj["metadata"]["uid"] != original.obj["metadata"]["uid"]:
        return {}
    return status_of(record.obj, container)


def _is_over(store: Store, original: Record, container: str, run: int) -> bool:
    status = current_status(store, original, container)
    return "running" not in (status.get("state") or {}) or int(status.get("restartCount") or 0) != run
