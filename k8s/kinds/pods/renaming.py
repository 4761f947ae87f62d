"""Gives a manifest another name and another user wherever kinds write them, beyond the name itself."""

from __future__ import annotations

from typing import Any

from k8s.kinds.base import Manifest
from k8s.kinds.pods.labels import ARENA_UID, ARENA_USER, GPU_TOPOLOGY, MASTER_POD, POD_GROUP, arena_uid

_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
"""Variables that hold the name of a job's first pod."""
_FIRST_PODS = ("{0}-master-0", "{0}-0.{0}", "{0}-node-0-0.{0}")


def renamed(value: Any, old: str, new: str, user: str = "") -> Any:
    """Return a manifest, or a part of one, in which what was made of a job's name is made of another.

    Args:
        value: It is left as it is.
        old: The job's name.
        new: The other name.
        user: Whose it is now; empty leaves it whose it was.
    """
    if isinstance(value, list):
        return [renamed(each, old, new, user) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: renamed(each, old, new, user) for key, each in value.items()}
    if found.get("subdomain") == old:
        found["subdomain"] = new
    if found.get("name") in _ADDRESSES and isinstance(found.get("value"), str):
        found["value"] = _renamed_address(found["value"], old, new)
    for key, rename in (("labels", _renamed_labels), ("annotations", _renamed_annotations)):
        if isinstance(found.get(key), dict):
            found[key] = rename(found[key], old, new, user)
    return found


def _renamed_labels(labels: Manifest, old: str, new: str, user: str) -> Manifest:
    found = dict(labels)
    for key in ("release", GPU_TOPOLOGY):
        if found.get(key) == old:
            found[key] = new
    if found.get(MASTER_POD) == f"{old}-master-0":
        found[MASTER_POD] = f"{new}-master-0"
    group = str(found.get(POD_GROUP, ""))
    if group.endswith(f"job-{old}"):
        found[POD_GROUP] = group.removesuffix(old) + new
    if user and ARENA_UID in found:
        found[ARENA_UID] = arena_uid(user)
    return found


def _renamed_annotations(annotations: Manifest, old: str, new: str, user: str) -> Manifest:
    return {**annotations, ARENA_USER: user} if user and ARENA_USER in annotations else annotations


def _renamed_address(value: str, old: str, new: str) -> str:
    host, colon, port = value.partition(":")
    pattern = next((each for each in _FIRST_PODS if each.format(old) == host), None)
    return f"{pattern.format(new)}{colon}{port}" if pattern else value
