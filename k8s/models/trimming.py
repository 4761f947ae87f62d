"""Keeps ten thousand objects small: what nobody reads is dropped, what they share is held once."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

KEPT_ANNOTATIONS = (
    "ALIYUN_COM_GPU",
    "ack.",
    "aliyun.com/",
    "arena.kubeflow.org/",
    "batch.kubernetes.io/",
    "description",
    "gpuconsole.dev/",
    "jobset.sigs.k8s.io/",
    "kai.scheduler/",
    "kueue.x-k8s.io/",
    "notebooks.kubeflow.org/creator",
    "opendatahub.io/username",
    "owner",
    "ray.io/",
    "requestGPUsOfJobOwner",
    "runai/",
    "scheduler.framework.gpushare.",
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "scheduling.x-k8s.io/",
    "tensorstack.dev/",
    "topology.kubernetes.io/",
    "trainer.kubeflow.org/",
    "volcano.sh/",
)
"""How the annotations begin that are kept; the others are often larger than all the rest of an object."""
MOST_SHARED = 4096
"""Values that are remembered so that equal ones are one."""

T = TypeVar("T")
_SHARED: dict[Hashable, Any] = {}


def shared(key: Hashable, value: T) -> T:
    """Return the value that was first seen with this key."""
    if len(_SHARED) >= MOST_SHARED:
        _SHARED.clear()
    found: T = _SHARED.setdefault(key, value)
    return found


def interned(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the same texts, each held once however many objects have it."""
    return {sys.intern(key): sys.intern(text) for key, text in texts.items()}


def kept(annotations: Mapping[str, str]) -> dict[str, str] | None:
    """Return the annotations that are read here; None instead of none."""
    return {key: text for key, text in annotations.items() if key.startswith(KEPT_ANNOTATIONS)} or None
