"""Descriptions of volume claims: owner, size, pending reason, users."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import ValidationError

from k8s.client.client import Client
from k8s.models import convert
from k8s.models.event import Event
from k8s.models.namespace import Claim
from k8s.models.resources import CLAIMS, EVENTS, PODS
from k8s.text.errors import KubeError
from tui.tables.events import event_order
from tui.tables.volumes import owner_of
from tui.text.format import local_time, plural

CLAIM_EVENTS = "involvedObject.kind=PersistentVolumeClaim"
_FIRST_USE = "WaitForFirstConsumer"
_NO_REASON = "The cluster has reported no reason yet."
_PENDING = ("Pending", "Lost")


def newest_by_claim(events: Iterable[Event]) -> dict[str, Event]:
    """Return the newest event of each claim, by the claim's UID."""
    found: dict[str, Event] = {}
    for event in events:
        uid = event.involved_object.uid
        if uid not in found or event_order(event) >= event_order(found[uid]):
            found[uid] = event
    return found


def why_pending(claim: Claim, event: Event | None) -> str:
    """Explain why a claim has no volume; empty if it has one.

    Args:
        claim: The claim.
        event: The newest event of the claim.
    """
    if claim.state not in _PENDING:
        return ""
    if event is not None and event.reason == _FIRST_USE:
        return "It gets a volume when the first pod that uses it is placed on a node."
    if claim.state == "Lost":
        return "Its volume is gone, with the data on it."
    if event is None or not event.message:
        return _NO_REASON
    return event.message


async def describe(client: Client, namespace: str, name: str) -> str:
    """Describe a claim as plain text, with the pods that use it.

    Raises:
        KubeError: The claim cannot be read.
    """
    claim: Claim = convert(await client.get(CLAIMS, name, namespace), Claim)
    event, used_by = await asyncio.gather(_last_message(client, claim), _used_by(client, claim))
    meta, spec = claim.metadata, claim.spec
    created = local_time(meta.creation_timestamp)
    parts = (
        ("name", f"{namespace}/{name}"),
        ("status", claim.state),
        ("why", why_pending(claim, event)),
        ("size", claim.size),
        ("access", ", ".join(claim.access_modes)),
        ("class", spec.storage_class_name),
        ("volume", spec.volume_name),
        ("owner", owner_of(claim)),
        ("description", meta.annotation("description")),
        ("created", created),
        ("last event", f"{event.reason}: {event.message}" if event is not None else ""),
    )
    return "\n".join([*(f"{key:<11} {words}" for key, words in parts if words), "", *used_by])


async def _last_message(client: Client, claim: Claim) -> Event | None:
    selector = f"{CLAIM_EVENTS},involvedObject.name={claim.metadata.name}"
    try:
        found = await client.list(EVENTS, claim.metadata.namespace, field_selector=selector)
        return newest_by_claim([convert(each, Event) for each in found]).get(claim.metadata.uid)
    except (KubeError, ValidationError):
        return None


async def _used_by(client: Client, claim: Claim) -> list[str]:
    # Servers cannot select pods by volume, so all running pods are listed.
    running = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        pods = await client.list(PODS, claim.metadata.namespace, field_selector=running)
    except KubeError as error:
        return ["Could not list the pods that use it.", *(f"  {line}" for line in str(error).splitlines())]
    users = [words for pod in pods if (words := _use(pod, claim.metadata.name))]
    return [f"Used by {plural(len(users), 'pod')}{':' if users else '.'}", *(f"  {each}" for each in users)]


def _use(pod: Mapping[str, Any], name: str) -> str:
    # Empty if the pod does not mount the claim.
    spec = pod.get("spec") or {}
    volumes = {
        each.get("name")
        for each in spec.get("volumes") or ()
        if (each.get("persistentVolumeClaim") or {}).get("claimName") == name
    }
    if not volumes:
        return ""
    mounts = [
        f"{mount.get('mountPath')}{' (read only)' * bool(mount.get('readOnly'))}"
        for container in spec.get("containers") or ()
        for mount in container.get("volumeMounts") or ()
        if mount.get("name") in volumes
    ]
    who = (pod.get("metadata") or {}).get("name")
    phase, node = (pod.get("status") or {}).get("phase"), spec.get("nodeName") or "no node yet"
    return f"{who}  {phase} on {node}, at {', '.join(dict.fromkeys(mounts)) or 'nowhere'}"
