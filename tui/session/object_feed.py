"""Live view of one object through a watch of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from k8s.client.client import Client
from k8s.cluster.backoff import ServerProbe
from k8s.models.resources import Resource
from k8s.text.errors import Expired, Forbidden, Invalid, KubeError, NotFound, ServerFailed, from_status

# Shortest interval between two versions handed over.
REST_S = 1.0
Take = Callable[[Mapping[str, Any] | None], None]
"""Called with the current object; None if it is gone."""


async def follow_object(
    client: Client, resource: Resource, name: str, namespace: str, take: Take, probe: ServerProbe
) -> None:
    """Call `take` with each version of an object, at most one per second, until cancelled.

    Raises:
        NotFound: The object does not exist.
        Forbidden: The user may not read the object; or may not watch it, after it was handed over once.
        Invalid: The server does not support watching this resource.
    """
    delays = probe.backoff.delays()
    woken = asyncio.Event()
    while True:
        try:
            obj = await client.get(resource, name, namespace)
            take(obj)
            delays = probe.backoff.delays()
            await _watch(client, resource, obj, take, probe.backoff.watch_s)
        except Expired:
            continue
        except (NotFound, Forbidden, Invalid):
            raise
        except KubeError as error:
            await probe.wait(error, delays, woken)


async def _watch(
    client: Client, resource: Resource, obj: Mapping[str, Any], take: Take, watch_s: int
) -> None:
    # Each version after `obj`, until the server ends the watch.
    meta = obj.get("metadata") or {}
    version, is_gone = str(meta.get("resourceVersion") or ""), False
    while not is_gone:
        lines = client.watch(
            resource,
            str(meta.get("namespace") or ""),
            version=version,
            field_selector=f"metadata.name={meta.get('name')}",
            timeout_s=watch_s,
        )
        async with aclosing(lines):
            async for line in lines:
                event = _read(line, resource)
                found = event.get("object") or {}
                version = str((found.get("metadata") or {}).get("resourceVersion") or version)
                if event.get("type") == "DELETED":
                    take(None)
                    is_gone = True
                    break
                if event.get("type") in ("ADDED", "MODIFIED"):
                    take(found)
                    await asyncio.sleep(REST_S)
        if not is_gone:
            await asyncio.sleep(REST_S)
    await asyncio.Event().wait()


def _read(line: bytes, resource: Resource) -> Mapping[str, Any]:
    doing = f"watch {resource.kind}"
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ServerFailed(f"Could not {doing}.", f"The server sent a broken line: {error}") from error
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ServerFailed(f"Could not {doing}.", "The server sent a line that is not an event.")
    if event.get("type") == "ERROR":
        code = event["object"].get("code")
        raise from_status(code if isinstance(code, int) else 500, event["object"], doing)
    return event
