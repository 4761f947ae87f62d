"""Volume claims in words: whose they are, how large, why one waits, and which pods use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import ValidationError

from k8s.client.client import Client
from k8s.errors import KubeError
from k8s.job_spec import USER_ANNOTATION
from k8s.models import Event, convert, quantity
from k8s.models.claim import Claim
from k8s.models.resources import CLAIMS, EVENTS, PODS
from tui.jobs.events import event_order
from tui.text.format import plural

CLAIM_EVENTS = "involvedObject.kind=PersistentVolumeClaim"
"""Selects the events that are about claims."""
_FIRST_USE = "WaitForFirstConsumer"
_UNSAID = "Nothing on this cluster has said yet what it waits for."
_PENDING = ("Pending", "Lost")


def owner_of(claim: Claim) -> str:
    """Return whose it is, by Arena's annotation or by ours; empty when nobody says."""
    return claim.metadata.annotation("owner") or claim.metadata.annotation(USER_ANNOTATION)


def bytes_of(claim: Claim) -> float | None:
    """Return how much it holds; None when nobody says, or it makes no sense."""
    try:
        return float(quantity.parse(claim.size)) if claim.size else None
    except (ValueError, OverflowError):
        return None


def newest_by_claim(events: Iterable[Event]) -> dict[str, Event]:
    """Return what was last said of each claim, by the claim's uid."""
    found: dict[str, Event] = {}
    for event in events:
        uid = event.involved_object.uid
        if uid not in found or event_order(event) >= event_order(found[uid]):
            found[uid] = event
    return found


def why_pending(claim: Claim, event: Event | None) -> str:
    """Say why a claim has no volume yet, or no more; nothing where it has one.

    Args:
        claim: The claim.
        event: What was last said of it.
    """
    if claim.state not in _PENDING:
        return ""
    if event is not None and event.reason == _FIRST_USE:
        return "It gets a volume when the first pod that uses it is placed on a node."
    if claim.state == "Lost":
        return "Its volume is gone, with the data on it."
    if event is None or not event.message:
        return _UNSAID
    return event.message


async def describe(client: Client, namespace: str, name: str) -> str:
    """Return all that the cluster tells of a claim as plain text, with the pods that use it.

    Raises:
        KubeError: The claim cannot be read.
    """
    claim: Claim = convert(await client.get(CLAIMS, name, namespace), Claim)
    said, used_by = await asyncio.gather(_last_said(client, claim), _used_by(client, claim))
    meta, spec = claim.metadata, claim.spec
    created = (
        f"{meta.creation_timestamp.astimezone():%Y-%m-%d %H:%M:%S %Z}" if meta.creation_timestamp else ""
    )
    parts = (
        ("name", f"{namespace}/{name}"),
        ("status", claim.state),
        ("why", why_pending(claim, said)),
        ("size", claim.size),
        ("access", ", ".join(claim.access_modes)),
        ("class", spec.storage_class_name),
        ("volume", spec.volume_name),
        ("owner", owner_of(claim)),
        ("description", meta.annotation("description")),
        ("created", created),
        ("last event", f"{said.reason}: {said.message}" if said is not None else ""),
    )
    return "\n".join([*(f"{key:<11} {words}" for key, words in parts if words), "", *used_by])


async def _last_said(client: Client, claim: Claim) -> Event | None:
    selector = f"{CLAIM_EVENTS},involvedObject.name={claim.metadata.name}"
    try:
        found = await client.list(EVENTS, claim.metadata.namespace, field_selector=selector)
        return newest_by_claim([convert(each, Event) for each in found]).get(claim.metadata.uid)
    except (KubeError, ValidationError):
        return None


async def _used_by(client: Client, claim: Claim) -> list[str]:
    """Say which pods mount a claim and have not ended: servers cannot select pods by their volumes."""
    running = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        pods = await client.list(PODS, claim.metadata.namespace, field_selector=running)
    except KubeError as error:
        return ["Could not list the pods that use it.", *(f"  {line}" for line in str(error).splitlines())]
    users = [words for pod in pods if (words := _use(pod, claim.metadata.name))]
    return [f"Used by {plural(len(users), 'pod')}{':' if users else '.'}", *(f"  {each}" for each in users)]


def _use(pod: Mapping[str, Any], name: str) -> str:
    """Say where a pod mounts a claim; nothing where it does not."""
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
