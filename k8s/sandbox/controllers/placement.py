"""Finds nodes for the pods of a job, for all of them together or for none, and GPUs of these nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from k8s import models
from k8s.devices.accelerators import is_accelerator
from k8s.models import Node
from k8s.sandbox.controllers import pod_affinity
from k8s.scheduling import requests
from k8s.scheduling.predicates import NodeCapacity, UnfitReason, unfit_node, untolerated
from k8s.scheduling.requests import PODS, Amount, ResourceList
from k8s.scheduling.scheduling_spec import SchedulingSpec
from k8s.topology.gpu_set import best_set, split
from k8s.topology.links import LinkMatrix
from k8s.topology.network import neighbourhoods, network_path

SAME_GPUS = ("nvidia.com/gpu", "aliyun.com/gpu")
"""As what the GPUs of a node are offered, by its label `ack.node.gpu.schedule`."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node."""

    name: str
    spec: SchedulingSpec
    requested: ResourceList
    beside: frozenset[str] | None = None
    """The nodes that its affinity to other pods allows; None: all."""


def pending_pod(pod: Mapping[str, Any], beside: frozenset[str] | None = None) -> PendingPod:
    """Read a pod; `beside` are the nodes that its affinity to other pods allows.

    Raises:
        msgspec.ValidationError: Its spec makes no sense.
    """
    spec: SchedulingSpec = models.convert(pod["spec"], SchedulingSpec)
    return PendingPod(str(pod["metadata"]["name"]), spec, requests.of_pod(spec), beside)


def node_capacity(node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> NodeCapacity:
    """Return what is free on a node beside the pods bound to it; those that ended hold nothing.

    A GPU that is held under one of its names cannot be had under the other.
    """
    running = (pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"))
    requested = requests.add(pending_pod(pod).requested for pod in running)
    held = sum((requested.get(name, 0) for name in SAME_GPUS), Fraction(0))
    return NodeCapacity.of(models.convert(node, Node), requested | dict.fromkeys(SAME_GPUS, held))


@dataclass(frozen=True, slots=True)
class LinkedGpus:
    """The GPUs of a node that nobody has, and how they are linked."""

    matrix: LinkMatrix
    free: tuple[int, ...]


_UNKNOWN_LINKS: Mapping[str, LinkedGpus] = {}


def place(
    pods: Sequence[PendingPod],
    nodes: Sequence[NodeCapacity],
    links: Mapping[str, LinkedGpus] = _UNKNOWN_LINKS,
) -> tuple[dict[str, str], str]:
    """Place all pods or none: on one node if it takes them all, else within a rack, a block, a zone.

    Of nodes or racks that are as good the one wins where the slowest link between the job's GPUs is the
    fastest, as far as links are known, then the fullest.

    Returns:
        Pod name to node name, and nothing; or an empty dict, and why it cannot be.
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
    """Return which GPUs of a node each of a job's pods there gets: the best set, divided among them.

    Pods without GPUs are left out; nothing where there are not so many free.
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
    """Return how good a placement is: few nodes, fast links, little left over."""
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


def unfit_words(pod: PendingPod, node: NodeCapacity) -> str:
    """Return why a pod cannot be on a node, in kube-scheduler's words; empty when it can."""
    if pod.beside is not None and node.name not in pod.beside:
        return pod_affinity.MISMATCH
    unfit = unfit_node(pod.spec, pod.requested, node)
    if unfit is None:
        return ""
    match unfit.reason:
        case UnfitReason.MISMATCH:
            return "node(s) didn't match Pod's node affinity/selector"
        case UnfitReason.CORDONED:
            return "node(s) were unschedulable"
        case UnfitReason.NOT_READY:
            return "node(s) were not ready"
        case UnfitReason.TAINTED:
            taint = untolerated(pod.spec.tolerations or (), node.node)[0]
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        case UnfitReason.TOO_SMALL | UnfitReason.BUSY:
            return "Too many pods" if unfit.detail == PODS else f"Insufficient {unfit.detail}"


def _pack(pods: Sequence[PendingPod], nodes: Sequence[NodeCapacity]) -> dict[str, str]:
    """Fill one node after the other: the one that takes most of what is left, of those the fullest.

    On each node the pods that few nodes would take come first, then the large ones.
    """
    placed: dict[str, str] = {}
    choices = {pod.name: sum(not unfit_words(pod, node) for node in nodes) for pod in pods}
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
    """Return the pods that fit on a node together."""
    chosen = []
    for pod in pods:
        if not unfit_words(pod, node):
            node = node.less(pod.requested)
            chosen.append(pod)
    return chosen


def _explain(pods: Sequence[PendingPod], nodes: Sequence[NodeCapacity], placed: Mapping[str, str]) -> str:
    """Say why, as kube-scheduler does, of the first pod that finds no node beside its siblings."""
    by_name = {node.name: node for node in nodes}
    for pod in pods:
        if pod.name in placed:
            by_name[placed[pod.name]] = by_name[placed[pod.name]].less(pod.requested)
    unschedulable = next(pod for pod in pods if pod.name not in placed)
    reasons = Counter(unfit_words(unschedulable, node) for node in by_name.values())
    words = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    sentence = f"0/{len(nodes)} nodes are available: {words or 'there are no nodes'}."
    if len(pods) == 1:
        return sentence
    return f"{sentence} All {len(pods)} pods of the job start together or none does; {len(placed)} would fit."


def _size(pod: PendingPod) -> tuple[Amount, Amount]:
    return _devices(pod.requested), pod.requested.get("cpu", 0)


def _devices(amounts: ResourceList) -> Amount:
    return sum((amount for name, amount in amounts.items() if is_accelerator(name)), 0)
