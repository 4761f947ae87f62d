"""Placement of a job's pods on nodes, all or none: capacity, choice of GPUs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from k8s import models
from k8s.gpus.gpu_set import best_set, split
from k8s.gpus.links import LinkMatrix
from k8s.gpus.network import neighbourhoods, network_path
from k8s.models import Node
from k8s.models.accelerators import is_accelerator
from k8s.reasons.scheduling import requests
from k8s.reasons.scheduling.predicates import InfeasibleReason, NodeCapacity, infeasible_node, untolerated
from k8s.reasons.scheduling.requests import PODS, Amount, ResourceList
from k8s.reasons.scheduling.scheduling_spec import SchedulingSpec
from k8s.sandbox.controller_runtime import ENDED, Manifest
from k8s.sandbox.controllers.reconcile import phase_of

# Both name the same GPUs; the node's label `ack.node.gpu.schedule` decides which one is offered.
SAME_GPUS = ("nvidia.com/gpu", "aliyun.com/gpu")


@dataclass(frozen=True, slots=True)
class PendingPod:
    """Pod without a node."""

    name: str
    spec: SchedulingSpec
    requested: ResourceList


def pending_pod(pod: Mapping[str, Any]) -> PendingPod:
    """Return the scheduling requirements of a pod.

    Raises:
        msgspec.ValidationError: The pod's spec is invalid.
    """
    spec: SchedulingSpec = models.convert(pod["spec"], SchedulingSpec)
    return PendingPod(str(pod["metadata"]["name"]), spec, requests.of_pod(spec))


def node_capacity(node: Mapping[str, Any], pods: Iterable[Manifest]) -> NodeCapacity:
    """Return the capacity of a node, less the requests of the running pods bound to it."""
    requested = requests.add(pending_pod(pod).requested for pod in pods if phase_of(pod) not in ENDED)
    held = sum((requested.get(name, 0) for name in SAME_GPUS), Fraction(0))
    return NodeCapacity.of(models.convert(node, Node), requested | dict.fromkeys(SAME_GPUS, held))


@dataclass(frozen=True, slots=True)
class LinkedGpus:
    """Free GPUs of a node, and the links between all its GPUs."""

    matrix: LinkMatrix
    free: tuple[int, ...]


_UNKNOWN_LINKS: Mapping[str, LinkedGpus] = {}


def place(
    pods: Sequence[PendingPod],
    nodes: Sequence[NodeCapacity],
    links: Mapping[str, LinkedGpus] = _UNKNOWN_LINKS,
) -> tuple[dict[str, str], str]:
    """Place all pods or none: on one node if possible, else within a rack, a block, a zone.

    Between equal nodes or racks the fastest bottleneck link between the job's GPUs decides, if links are
    known; then the fullest node.

    Returns:
        Node name by pod name, and an empty string; or an empty dict and the reason.
    """
    by_name = {node.name: node for node in nodes}
    paths = {name: network_path(node.node.metadata.labels) for name, node in by_name.items()}
    placed: dict[str, str] = {}
    for groups in neighbourhoods(paths):
        packed = [_pack(pods, [node for node in nodes if node.name in group]) for group in groups]
        if found := [each for each in packed if len(each) == len(pods)]:
            return max(found, key=lambda each: _rank(pods, each, by_name, links)), ""
        placed = packed[-1] if packed else {}
    return {}, _explain(pods, nodes, placed)


def choose_gpus(pods: Sequence[PendingPod], gpus: LinkedGpus) -> dict[str, tuple[int, ...]]:
    """Return the GPUs of a node for each of a job's pods there: the best set, divided among them.

    Pods without GPUs are left out. Empty if too few GPUs are free.
    """
    sizes = {pod.name: size for pod in pods if (size := int(_devices(pod.requested)))}
    best = best_set(gpus.matrix, gpus.free, sum(sizes.values()))
    parts = split(gpus.matrix, best.gpus, list(sizes.values())) if best is not None else None
    return dict(zip(sizes, parts, strict=True)) if parts is not None else {}


def _rank(
    pods: Sequence[PendingPod],
    placed: Mapping[str, str],
    nodes: Mapping[str, NodeCapacity],
    links: Mapping[str, LinkedGpus],
) -> tuple[int, float, Amount]:
    used = set(placed.values())
    slowest = 0.0
    if used <= links.keys():
        wanted = {
            name: sum(int(_devices(pod.requested)) for pod in pods if placed[pod.name] == name)
            for name in used
        }
        sets = (best_set(links[name].matrix, links[name].free, wanted[name]) for name in used)
        slowest = min((each.bottleneck if each is not None else 0.0 for each in sets), default=0.0)
    return -len(used), slowest, -sum((_devices(nodes[name].free) for name in used), 0)


def infeasible_text(pod: PendingPod, node: NodeCapacity) -> str:
    """Return the reason why a pod cannot run on a node, in kube-scheduler's words; empty if it can."""
    infeasible = infeasible_node(pod.spec, pod.requested, node)
    if infeasible is None:
        return ""
    match infeasible.reason:
        case InfeasibleReason.MISMATCH:
            return "node(s) didn't match Pod's node affinity/selector"
        case InfeasibleReason.CORDONED:
            return "node(s) were unschedulable"
        case InfeasibleReason.NOT_READY:
            return "node(s) were not ready"
        case InfeasibleReason.TAINTED:
            taint = untolerated(pod.spec.tolerations or (), node.node)[0]
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        case InfeasibleReason.TOO_SMALL | InfeasibleReason.BUSY:
            return "Too many pods" if infeasible.detail == PODS else f"Insufficient {infeasible.detail}"


def _pack(pods: Sequence[PendingPod], nodes: Sequence[NodeCapacity]) -> dict[str, str]:
    """Fill nodes one by one: always the one that takes most of the remaining pods, then the fullest.

    On each node the pods with the fewest possible nodes come first, then the large ones.
    """
    placed: dict[str, str] = {}
    choices = {pod.name: sum(not infeasible_text(pod, node) for node in nodes) for pod in pods}
    left = sorted(pods, key=lambda pod: (-choices[pod.name], _size(pod)), reverse=True)
    open_nodes = list(nodes)
    while left and open_nodes:
        fits = [(node, _fitting(left, node)) for node in open_nodes]
        node, chosen = max(fits, key=lambda fit: (len(fit[1]), -_devices(fit[0].free)))
        if not chosen:
            break
        placed |= {pod.name: node.name for pod in chosen}
        left = [pod for pod in left if pod.name not in placed]
        open_nodes.remove(node)
    return placed


def _fitting(pods: Sequence[PendingPod], node: NodeCapacity) -> list[PendingPod]:
    chosen = []
    for pod in pods:
        if not infeasible_text(pod, node):
            node = node.less(pod.requested)
            chosen.append(pod)
    return chosen


def _explain(pods: Sequence[PendingPod], nodes: Sequence[NodeCapacity], placed: Mapping[str, str]) -> str:
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        if pod.name in placed:
            by_name[placed[pod.name]] = by_name[placed[pod.name]].less(pod.requested)
    unschedulable = next(pod for pod in pods if pod.name not in placed)
    reasons = Counter(infeasible_text(unschedulable, node) for node in by_name.values())
    counts = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    sentence = f"0/{len(nodes)} nodes are available: {counts or 'there are no nodes'}."
    if len(pods) == 1:
        return sentence
    return f"{sentence} All {len(pods)} pods of the job start together or none does; {len(placed)} would fit."


def _size(pod: PendingPod) -> tuple[Amount, Amount]:
    return _devices(pod.requested), pod.requested.get("cpu", 0)


def _devices(amounts: ResourceList) -> Amount:
    return sum((amount for name, amount in amounts.items() if is_accelerator(name)), 0)
