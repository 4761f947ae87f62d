"""Where the pods of a job fit: all of them together, or none. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec

from k8s.devices.accelerators import is_accelerator, of_pod
from k8s.models import PodSpec
from k8s.models.quantity import parse

Amounts = dict[str, Fraction]
"""Resource name to how much of it, in its base unit."""


@dataclass(slots=True)
class Room:
    """A node, and what is free on it."""

    name: str
    free: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()
    is_unschedulable: bool = False
    is_ready: bool = True

    @property
    def free_devices(self) -> Fraction:
        """Return how many accelerators are free, of all sorts."""
        return sum((amount for name, amount in self.free.items() if is_accelerator(name)), Fraction(0))


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that wants a node."""

    name: str
    asked: Amounts
    spec: Mapping[str, Any]


def asked_by(spec: Mapping[str, Any]) -> Amounts:
    """Return what a pod takes of its node, itself included."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        for name, amount in _of_container(container).items():
            total[name] = total.get(name, Fraction(0)) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _of_container(container).items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    devices = of_pod(msgspec.convert(spec, PodSpec))
    return {**total, **{name: Fraction(number) for name, number in devices.items()}, "pods": Fraction(1)}


def room_of(node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Room:
    """Return what is free on a node that holds these pods; those that ended hold nothing."""
    status, spec = node.get("status") or {}, node.get("spec") or {}
    free = _amounts(status.get("allocatable") or status.get("capacity") or {})
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            for name, amount in asked_by(pod["spec"]).items():
                free[name] = free.get(name, Fraction(0)) - amount
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    return Room(
        str(node["metadata"]["name"]),
        free,
        node["metadata"].get("labels") or {},
        spec.get("taints") or (),
        bool(spec.get("unschedulable")),
        conditions.get("Ready") == "True",
    )


def why_not(wish: PendingPod, room: Room) -> str:
    """Return why a pod cannot be on a node, in kube-scheduler's words; empty when it can."""
    if room.is_unschedulable:
        return "node(s) were unschedulable"
    if not room.is_ready:
        return "node(s) were not ready"
    for taint in room.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _is_tolerated(taint, wish.spec):
            value = f": {taint['value']}" if taint.get("value") else ": "
            return f"node(s) had untolerated taint {{{taint.get('key')}{value}}}"
    selector = wish.spec.get("nodeSelector") or {}
    if any(room.labels.get(key) != value for key, value in selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    for name, amount in wish.asked.items():
        if amount > room.free.get(name, Fraction(0)):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return ""


def place(wishes: Sequence[PendingPod], rooms: Sequence[Room]) -> tuple[dict[str, str], str]:
    """Place all pods or none, on as few nodes as possible.

    Returns:
        Pod name to node name, and nothing; or an empty dict, and why it cannot be.
    """
    placed = _pack(wishes, rooms)
    return (placed, "") if len(placed) == len(wishes) else ({}, _explain(wishes, rooms, placed))


def take(room: Room, wish: PendingPod) -> None:
    """Put a pod on a node."""
    for name, amount in wish.asked.items():
        room.free[name] = room.free.get(name, Fraction(0)) - amount


def copies(rooms: Sequence[Room]) -> list[Room]:
    """Return rooms that can be filled without touching these."""
    return [replace(room, free=dict(room.free)) for room in rooms]


def _pack(wishes: Sequence[PendingPod], rooms: Sequence[Room]) -> dict[str, str]:
    """Fill one node after the other: the one that takes most of what is left, of those the fullest.

    On each node the pods that few nodes would take come first, then the large ones.
    """
    placed: dict[str, str] = {}
    choices = {wish.name: sum(not why_not(wish, room) for room in rooms) for wish in wishes}
    left = sorted(wishes, key=lambda wish: (-choices[wish.name], _size(wish)), reverse=True)
    open_rooms = copies(rooms)
    while left and open_rooms:
        fits = [(room, _fit(left, room)) for room in open_rooms]
        room, chosen = max(fits, key=lambda fit: (len(fit[1]), -fit[0].free_devices))
        if not chosen:
            break
        placed |= {wish.name: room.name for wish in chosen}
        left = [wish for wish in left if wish.name not in placed]
        open_rooms.remove(room)
    return placed


def _fit(wishes: Sequence[PendingPod], room: Room) -> list[PendingPod]:
    """Return the pods that fit on a node together."""
    trial = copies([room])[0]
    chosen = []
    for wish in wishes:
        if not why_not(wish, trial):
            take(trial, wish)
            chosen.append(wish)
    return chosen


def _explain(wishes: Sequence[PendingPod], rooms: Sequence[Room], placed: Mapping[str, str]) -> str:
    """Say why, as kube-scheduler does, of the first pod that finds no node beside its siblings."""
    trial = copies(rooms)
    by_name = {room.name: room for room in trial}
    for wish in wishes:
        if wish.name in placed:
            take(by_name[placed[wish.name]], wish)
    unplaced = next(wish for wish in wishes if wish.name not in placed)
    reasons = Counter(why_not(unplaced, room) for room in trial)
    words = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    sentence = f"0/{len(rooms)} nodes are available: {words or 'there are no nodes'}."
    if len(wishes) == 1:
        return sentence
    return (
        f"{sentence} All {len(wishes)} pods of the job start together or none does; {len(placed)} would fit."
    )


def _size(wish: PendingPod) -> tuple[Fraction, Fraction]:
    devices = sum((amount for name, amount in wish.asked.items() if is_accelerator(name)), Fraction(0))
    return devices, wish.asked.get("cpu", Fraction(0))


def _of_container(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(quantities: Mapping[str, Any]) -> Amounts:
    found: Amounts = {}
    for name, quantity in quantities.items():
        try:
            found[name] = parse(quantity)
        except ValueError:
            continue
    return found


def _is_tolerated(taint: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    for toleration in spec.get("tolerations") or ():
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        if toleration.get("operator") == "Exists":
            if toleration.get("key") in (None, "", taint.get("key")):
                return True
        elif toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (
            taint.get("value") or ""
        ):
            return True
    return False
