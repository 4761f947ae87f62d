"""GPUs that each namespace holds, waits for and may still request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from k8s.models import accelerators, quantity
from k8s.models.namespace import Namespace, Quota
from k8s.snapshot import Job, NodeRow, shares_by_pod

# Stands for all namespaces, in commands too.
ALL = "all"
_REQUESTS = "requests."


class QuotaUsage(msgspec.Struct, frozen=True):
    """GPU quota of a namespace."""

    used: int
    hard: int
    resource: str

    @property
    def left(self) -> int:
        """Return the number that may still be requested; at least 0, because a quota may be added later."""
        return max(0, self.hard - self.used)


class NamespaceUsage(msgspec.Struct, frozen=True):
    """Usage of one namespace, or of all."""

    name: str
    """Empty for the total."""
    phase: str = ""
    """Active or Terminating; empty if unknown."""
    created: datetime | None = None
    jobs: int = 0
    gpus_held: int = 0
    """GPUs held by all pods, with or without a job."""
    gpus_waiting: int = 0
    shares_held: int = 0
    """Those of `gpus_held` that are parts of GPUs."""
    limit: QuotaUsage | None = None
    """The tightest GPU quota; None without one, or if quotas may not be read."""


def namespace_usages(
    namespaces: Iterable[Namespace],
    jobs: Iterable[Job],
    nodes: Collection[NodeRow],
    quotas: Iterable[Quota],
    known: Sequence[str] = (),
) -> list[NamespaceUsage]:
    """Return the namespaces, sorted by name.

    Args:
        namespaces: The cluster's namespaces; empty if they may not be listed.
        jobs: All readable jobs.
        nodes: All nodes, with the holders of their GPUs.
        quotas: The readable quotas.
        known: Names of further namespaces that probably exist.
    """
    listed = {each.metadata.name: each for each in namespaces}
    unfinished: dict[str, int] = {}
    held: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for job in jobs:
        namespace = job.ref.namespace
        unfinished[namespace] = unfinished.get(namespace, 0) + (not job.status.is_final)
        waiting[namespace] = waiting.get(namespace, 0) + job.gpus_waiting
    shares: dict[str, int] = {}
    for (namespace, _pod), amount in shares_by_pod(nodes).items():
        shares[namespace] = shares.get(namespace, 0) + amount
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
                shares.get(name, 0),
                limits.get(name),
            )
        )
    return found


def total_usage(each: Sequence[NamespaceUsage]) -> NamespaceUsage:
    """Return the total of all namespaces."""
    return NamespaceUsage(
        "",
        jobs=sum(place.jobs for place in each),
        gpus_held=sum(place.gpus_held for place in each),
        gpus_waiting=sum(place.gpus_waiting for place in each),
        shares_held=sum(place.shares_held for place in each),
    )


def recent_first(each: Sequence[NamespaceUsage], recent: Sequence[str]) -> list[NamespaceUsage]:
    """Return the namespaces with recently used ones first, the newest on top."""
    rank = {name: place for place, name in enumerate(recent)}
    return sorted(each, key=lambda place: rank.get(place.name, len(rank)))


def limits_by_namespace(quotas: Iterable[Quota]) -> Mapping[str, QuotaUsage]:
    """Return each namespace's tightest GPU quota."""
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
