"""Check a job against quotas, limit ranges and nodes, with the arithmetic of the diagnosis."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from k8s.client.client import Client
from k8s.job_spec import JobSpec
from k8s.kinds import CreatableKind, Manifest, Replica
from k8s.models import Node, PodSpec, convert
from k8s.models.namespace import Quota
from k8s.models.resources import NODES, QUOTAS
from k8s.reasons.cause import NEVER, REFUSED, Cause, error, warning
from k8s.reasons.fetcher import Fetcher
from k8s.reasons.objects import LIMIT_RANGES, LimitRange, LimitRangeItem
from k8s.reasons.phrases import amount, bare_amount, names
from k8s.reasons.shortage import (
    PodSet,
    Shortage,
    ShortageKind,
    describe_closed,
    find_shortage,
    is_never_feasible,
    pod_sets,
)
from k8s.scheduling import requests
from k8s.scheduling.predicates import ClusterCapacity, InfeasibleReason, NodeCapacity
from k8s.scheduling.scheduling_spec import SchedulingSpec, Toleration, spec_from_template

# Field that sets an amount; the GPUs' for all other resources.
_FIELDS = {"cpu": "cpu", "memory": "memory", requests.PODS: "workers"}
_COUNT_OF_PODS = "count/pods"


async def quota_findings(
    client: Client, kind: CreatableKind, spec: JobSpec, manifest: Manifest
) -> list[Cause]:
    """Return findings for quotas with too little left for all pods together.

    Raises:
        KubeError: Quotas cannot be listed.
    """
    pods = [requests.of_pod(_pod(replica)) for replica in kind.replicas(manifest)]
    at_once = pods_at_once(kind, manifest)
    quotas = [convert(each, Quota) for each in await client.list(QUOTAS, spec.namespace)]
    return [finding for quota in quotas for finding in _over(quota, pods, at_once, spec.namespace)]


def _over(
    quota: Quota, pods: Sequence[requests.ResourceList], at_once: int, namespace: str
) -> Iterator[Cause]:
    if quota.spec.scopes or quota.spec.scope_selector:
        return  # scoped quotas apply to some pods only
    total, needed = requests.add(pods), requests.add(pods[:at_once])
    hard, used = requests.from_quantities(quota.status.hard), requests.from_quantities(quota.status.used)
    for key, limit in hard.items():
        name = (
            requests.PODS if key == _COUNT_OF_PODS else key.removeprefix("requests.").removeprefix("limits.")
        )
        want, left = total.get(name), limit - used.get(key, 0)
        if want is None or want <= left:
            continue
        field, quota_name = _FIELDS.get(name, "gpus"), quota.metadata.name
        allows = f"quota {quota_name} allows {bare_amount(key, limit)}"
        if needed.get(name, 0) > limit:
            who = "all pods need" if at_once == len(pods) else "a pod needs"
            text = f"{NEVER}{who} {amount(name, needed[name])}, {allows}"
            yield error(field, text, f"ask for less, or for more quota in {namespace}")
        elif want > limit:
            text = f"would run a part at a time: all pods need {amount(name, want)}, {allows}"
            yield warning(field, text, f"ask for less, or for more quota in {namespace}")
        else:
            text = (
                f"would wait: all pods need {amount(name, want)}, quota {quota_name} has "
                f"{bare_amount(key, left)} of {bare_amount(key, limit)} left"
            )
            yield warning(field, text, f"ask for less, or end other jobs in {namespace}")


def pods_at_once(kind: CreatableKind, manifest: Manifest) -> int:
    """Return the number of pods that must fit at once; those of a Job may run one after another."""
    try:
        enough = kind.parse(manifest).min_instances
    except (AttributeError, KeyError, TypeError, ValueError):
        enough = None
    pods = max(1, len(kind.replicas(manifest)))
    return pods if enough is None else max(1, min(pods, enough))


_NODES_HOLD_S = 30.0
# Nodes of each cluster as last listed: the form checks after each change.
_NODES_OF: WeakKeyDictionary[Client, tuple[float, Sequence[Node]]] = WeakKeyDictionary()


async def placement_findings(client: Client, kind: CreatableKind, manifest: Manifest) -> list[Cause]:
    """Return findings for pods that the nodes could not hold even if no other pod ran.

    A shortage of GPUs alone is left to the form's capacity line, which knows the free ones, but no affinity.
    """
    nodes = await _nodes_of(client)
    capacity = ClusterCapacity({node.metadata.name: NodeCapacity.of(node, {}) for node in nodes})
    replicas = kind.replicas(manifest)[: pods_at_once(kind, manifest)]
    pods = pod_sets(_named_specs(replicas))
    if not nodes or not pods:
        return []
    if (never := find_shortage(pods, capacity, is_never_feasible)) is not None:
        # Devices of resource claims are in no node's allocatable.
        is_offered = any(each.allocatable.get(never.main) for each in capacity.nodes.values())
        if never.is_about_accelerators and (never.pod_set.spec.affinity is None or not is_offered):
            return []
        return [error(_field_of(never), f"{NEVER}{_why(never)}", _remedy(never))]
    shut = find_shortage(pods, capacity)
    if shut is None or shut.kind is not ShortageKind.CLOSED:
        return []
    text = f"would wait: no open node can take {_subject(shut.pod_set)} ({describe_closed(shut.closed)})"
    return [warning("node_selector", text, f"wait for {names(each.name for each in shut.closed)}")]


async def _nodes_of(client: Client) -> Sequence[Node]:
    listed_at_s, nodes = _NODES_OF.get(client, (0.0, ()))
    if not nodes or time.monotonic() - listed_at_s > _NODES_HOLD_S:
        nodes = await Fetcher(client).list_all(NODES, Node) or ()
        _NODES_OF[client] = time.monotonic(), nodes
    return nodes


def _named_specs(replicas: Collection[Replica]) -> Iterator[tuple[str, SchedulingSpec]]:
    for replica in replicas:
        spec = spec_from_template(replica.template)
        # Many clusters add tolerations for taints named after a requested device.
        # Source: the admission plugin ExtendedResourceToleration.
        devices = [name for name in requests.of_pod(spec) if "/" in name]
        own = [Toleration(key=name, operator="Exists") for name in devices]
        name = replica.role if replica.index is None else f"{replica.role}-{replica.index}"
        yield name, replace(spec, tolerations=[*(spec.tolerations or ()), *own])


def _field_of(shortage: Shortage) -> str:
    match shortage.kind:
        case ShortageKind.NO_MATCH:
            return "node_selector" if shortage.pod_set.spec.node_selector else "excluded_nodes"
        case ShortageKind.CLOSED:
            return "tolerations"
        case _:
            return _FIELDS.get(shortage.main, "gpus")


def _why(shortage: Shortage) -> str:
    match shortage.kind:
        case ShortageKind.CLOSED:
            return f"no node that is large enough takes {_subject(shortage.pod_set)} ({_taints(shortage)})"
        case ShortageKind.BUSY:
            return shortage.beyond_empty_cluster
        case _:
            text = shortage.brief.removeprefix("Too big: ")
            return text[:1].lower() + text[1:]


def _remedy(shortage: Shortage) -> str:
    match shortage.kind:
        case ShortageKind.NO_MATCH:
            return "choose labels that a node has, or exclude fewer nodes"
        case ShortageKind.CLOSED:
            return "tolerate the taint, if these nodes are meant for you"
        case ShortageKind.BUSY:
            return "ask for fewer or smaller pods"
        case _:
            return "ask for less in each pod"


def _subject(pod_set: PodSet) -> str:
    return pod_set.instances[0] if len(pod_set.instances) == 1 else f"{len(pod_set.instances)} pods"


def _taints(shortage: Shortage) -> str:
    return names(
        dict.fromkeys(each.detail for each in shortage.closed if each.reason is InfeasibleReason.TAINTED)
    )


async def limit_findings(
    client: Client, kind: CreatableKind, spec: JobSpec, manifest: Manifest
) -> list[Cause]:
    """Return findings for limit ranges that do not allow the pods.

    Raises:
        KubeError: Limit ranges cannot be listed.
    """
    ranges = [convert(each, LimitRange) for each in await client.list(LIMIT_RANGES, spec.namespace)]
    found: dict[str, Cause] = {}
    for replica in kind.replicas(manifest):
        containers = [requests.of_container(each) for each in _pod(replica).containers]
        requested = {"Container": containers, "Pod": [requests.add(containers)]}
        for limit_range in ranges:
            for limit in limit_range.spec.limits or ():
                for words in filter(None, (beyond(limit, each) for each in requested.get(limit.type, ()))):
                    wants, allowed = words
                    resource = wants.rpartition(" ")[2]
                    text = (
                        f"{REFUSED}{replica.role} needs {wants}, LimitRange "
                        f"{limit_range.metadata.name} allows {allowed} a {limit.type.lower()}"
                    )
                    field = _FIELDS.get(resource, "gpus")
                    found.setdefault(text, error(field, text, "ask for an amount within the limits"))
    return list(found.values())


def beyond(limit: LimitRangeItem, requested: requests.ResourceList) -> tuple[str, str] | None:
    """Return the requested and the allowed amount in words; None if within the limits."""
    for word, bounds, sign in (("at most", limit.max, 1), ("at least", limit.min, -1)):
        for key, bound in requests.from_quantities(bounds).items():
            if key in requested and (requested[key] - bound) * sign > 0:
                return amount(key, requested[key]), f"{word} {bare_amount(key, bound)}"
    return None


def _pod(replica: Replica) -> PodSpec:
    spec: PodSpec = convert(replica.template.get("spec") or {}, PodSpec, strict=False)
    return spec
