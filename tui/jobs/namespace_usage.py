"""What each namespace holds and waits for, and how much of its quota is left. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from k8s.devices import accelerators
from k8s.models import quantity
from k8s.models.namespace import Namespace, Quota
from k8s.snapshot import Job, NodeRow

ALL = "all"
"""What stands for all namespaces, in commands too."""
_REQUESTS = "requests."


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """How many GPUs a namespace may ask for."""

    used: int
    hard: int
    resource: str
    """Of which kind: `nvidia.com/gpu`."""

    @property
    def left(self) -> int:
        """Return how many more may be asked for; a quota may come after what it limits."""
        return max(0, self.hard - self.used)


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """One namespace, or all of them."""

    name: str
    """Empty for all."""
    phase: str = ""
    """Active or Terminating; empty where nobody says."""
    created: datetime | None = None
    jobs: int = 0
    """Those that have not ended."""
    gpus_held: int = 0
    """By whatever runs there, jobs or not."""
    gpus_waiting: int = 0
    """Asked for by jobs that have not got them."""
    limit: QuotaUsage | None = None
    """The tightest quota of GPUs, where there is one that may be read."""


def namespace_usages(
    namespaces: Iterable[Namespace],
    jobs: Iterable[Job],
    nodes: Iterable[NodeRow],
    quotas: Iterable[Quota],
    known: Sequence[str] = (),
) -> list[NamespaceUsage]:
    """Return the namespaces by name.

    Args:
        namespaces: Those that the cluster lists, none where it may not be asked.
        jobs: All jobs that may be read.
        nodes: All nodes, with who holds their GPUs.
        quotas: The quotas that may be read.
        known: Names of further ones that are there as far as anybody knows.
    """
    listed = {each.metadata.name: each for each in namespaces}
    unfinished: dict[str, int] = {}
    held: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for job in jobs:
        namespace = job.ref.namespace
        unfinished[namespace] = unfinished.get(namespace, 0) + (not job.status.is_final)
        waiting[namespace] = waiting.get(namespace, 0) + job.gpus_waiting
    for node in nodes:
        for holder in node.holders:
            held[holder.namespace] = held.get(holder.namespace, 0) + holder.gpus
    limits = limits_by_namespace(quotas)
    seen = {name for name in (*known, *unfinished, *held) if name} if not listed else set()
    found = []
    for name in sorted(seen | set(listed)):
        here = listed.get(name)
        found.append(
            NamespaceUsage(
                name,
                here.status.phase if here else "",
                here.metadata.creation_timestamp if here else None,
                unfinished.get(name, 0),
                held.get(name, 0),
                waiting.get(name, 0),
                limits.get(name),
            )
        )
    return found


def total_usage(each: Sequence[NamespaceUsage]) -> NamespaceUsage:
    """Return what all namespaces come to."""
    return NamespaceUsage(
        "",
        jobs=sum(place.jobs for place in each),
        gpus_held=sum(place.gpus_held for place in each),
        gpus_waiting=sum(place.gpus_waiting for place in each),
    )


def recent_first(each: Sequence[NamespaceUsage], recent: Sequence[str]) -> list[NamespaceUsage]:
    """Return the namespaces with those used lately first, the newest of them on top."""
    rank = {name: place for place, name in enumerate(recent)}
    return sorted(each, key=lambda place: rank.get(place.name, len(rank)))


def limits_by_namespace(quotas: Iterable[Quota]) -> Mapping[str, QuotaUsage]:
    """Return of each namespace the quota of GPUs that leaves least."""
    found: dict[str, QuotaUsage] = {}
    for quota in quotas:
        hard, used = quota.status.hard or {}, quota.status.used or {}
        for name, amount in hard.items():
            resource = name.removeprefix(_REQUESTS)
            if resource == name or not accelerators.is_accelerator(resource):
                continue
            limit = QuotaUsage(quantity.count(used.get(name, 0)), quantity.count(amount), resource)
            before = found.get(quota.metadata.namespace)
            if before is None or limit.left < before.left:
                found[quota.metadata.namespace] = limit
    return found
