"""Gang scheduler: binds all pods of a job or none, and reports the reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from k8s import models
from k8s.gpus.gpu_links import fetch_known_links
from k8s.gpus.gpu_set import best_set, split
from k8s.gpus.links import LinkMatrix
from k8s.models import Node
from k8s.models.accelerators import is_accelerator
from k8s.models.gpu_sharing import GPU_GROUP, GPU_VISIBLE, given_gpus
from k8s.models.node import neighbourhoods, network_path
from k8s.models.resources import CLAIMS, NODES, PODS
from k8s.reasons import requests
from k8s.reasons.predicates import InfeasibleReason, NodeCapacity, infeasible_node, untolerated
from k8s.reasons.requests import Amount, ResourceList, SchedulingSpec
from k8s.sandbox.controller_runtime import ENDED, Informer, Informers, Manifest, Recorder, controller_of
from k8s.sandbox.controllers.reconcile import GANG, phase_of, set_condition
from k8s.text.errors import Conflict, NotFound

# Both name the same GPUs; the node's label `ack.node.gpu.schedule` decides which one is offered.
SAME_GPUS = ("nvidia.com/gpu", "aliyun.com/gpu")
# `schedulerName` of pods on a real cluster that use this scheduler.
NAME = "gpuconsole"
OURS = frozenset({NAME, "default-scheduler", ""})
log = logging.getLogger(__name__)


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
            return (
                "Too many pods" if infeasible.detail == requests.PODS else f"Insufficient {infeasible.detail}"
            )


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


class Scheduler:
    """Controller that binds pods to nodes."""

    def __init__(self, informers: Informers, names: Collection[str] = OURS) -> None:
        """Watch pods, nodes and claims; pods whose scheduler is not in `names` are left alone."""
        self._client = informers.client
        self._pods = informers.of(PODS)
        self._nodes = informers.of(NODES)
        self._claims = informers.of(CLAIMS)
        self._names = names
        self._bound: dict[str, str] = {}
        self._gpus: dict[str, tuple[int, ...]] = {}
        self._links: dict[str, LinkMatrix] = {}
        self._requested: frozenset[str] = frozenset()
        self._recorder = Recorder(informers.client, "gpuconsole-scheduler")

    @property
    def informers(self) -> list[Informer]:
        """Return the informers that must be synced first."""
        return [self._pods, self._nodes, self._claims]

    async def reconcile(self) -> None:
        """Bind jobs that fit, by priority and then age; a job that does not fit blocks no other."""
        pods = list(self._pods)
        by_node: dict[str, list[Manifest]] = {}
        for pod in pods:
            by_node.setdefault(self._node_of(pod), []).append(pod)
        uids = {str(pod["metadata"]["uid"]) for pod in pods}
        self._bound = {uid: node for uid, node in self._bound.items() if uid in uids}
        self._gpus = {uid: gpus for uid, gpus in self._gpus.items() if uid in uids}
        capacities = [
            node_capacity(node, by_node.get(str(node["metadata"]["name"]), ())) for node in self._nodes
        ]
        nodes = {capacity.name: capacity for capacity in sorted(capacities, key=lambda each: each.name)}
        await self._read_links(frozenset(nodes))
        for gang in sorted(self._gangs(pods, by_node.get("", [])), key=_priority_key):
            await self._schedule(gang, nodes, by_node)

    async def _read_links(self, nodes: frozenset[str]) -> None:
        if nodes != self._requested:
            self._requested = nodes
            self._links = await fetch_known_links(self._client, {})

    def _linked_gpus(self, by_node: dict[str, list[Manifest]]) -> dict[str, LinkedGpus]:
        found = {}
        for node, matrix in self._links.items():
            running = (pod for pod in by_node.get(node, ()) if phase_of(pod) not in ENDED)
            taken = {gpu for pod in running for gpu in self._gpus_of(pod)}
            found[node] = LinkedGpus(matrix, tuple(gpu for gpu in matrix.gpus if gpu not in taken))
        return found

    def _gpus_of(self, pod: Manifest) -> tuple[int, ...]:
        # The watch may lag behind our own bindings.
        uid = pod["metadata"]["uid"]
        return self._gpus[uid] if uid in self._gpus else given_gpus(pod["metadata"])

    def _node_of(self, pod: Manifest) -> str:
        return str(pod["spec"].get("nodeName") or self._bound.get(pod["metadata"]["uid"], ""))

    def _gangs(self, pods: list[Manifest], unbound: list[Manifest]) -> list[list[Manifest]]:
        # A job that lacks pods or has a gated one waits.
        present: dict[str, int] = {}
        for pod in pods:
            if phase_of(pod) != "Failed" and not pod["metadata"].get("deletionTimestamp"):
                key = _gang_key(pod)
                present[key] = present.get(key, 0) + 1
        found: dict[str, list[Manifest]] = {}
        for pod in unbound:
            if not _is_over(pod) and str(pod["spec"].get("schedulerName") or "") in self._names:
                found.setdefault(_gang_key(pod), []).append(pod)
        gated = {_gang_key(pod) for pod in unbound if pod["spec"].get("schedulingGates")}
        return [
            gang
            for key, gang in found.items()
            if key not in gated and present[key] >= max(map(_gang_size, gang))
        ]

    async def _schedule(
        self, gang: list[Manifest], nodes: dict[str, NodeCapacity], by_node: dict[str, list[Manifest]]
    ) -> None:
        try:
            pending = [pending_pod(pod) for pod in gang]
        except msgspec.ValidationError as error:
            log.warning("invalid pod %s: %s", gang[0]["metadata"]["name"], error)
            return
        links = self._linked_gpus(by_node)
        placed, why = place(pending, list(nodes.values()), links)
        if missing := self._missing_claims(gang):
            placed = {}
            why = f'0/{len(nodes)} nodes are available: persistentvolumeclaim "{missing}" not found.'
        chosen: dict[str, tuple[int, ...]] = {}
        for node in set(placed.values()) & links.keys():
            chosen |= choose_gpus([pod for pod in pending if placed[pod.name] == node], links[node])
        for manifest, pod in zip(gang, pending, strict=True):
            if pod.name in placed:
                node = placed[pod.name]
                nodes[node] = nodes[node].less(pod.requested)
                by_node.setdefault(node, []).append(manifest)
                self._gpus[manifest["metadata"]["uid"]] = chosen.get(pod.name, ())
                await self._bind(manifest, node, chosen.get(pod.name, ()))
            else:
                await self._write_why(manifest, why)

    def _missing_claims(self, gang: list[Manifest]) -> str:
        known = {(claim["metadata"]["namespace"], claim["metadata"]["name"]) for claim in self._claims}
        for pod in gang:
            for volume in pod["spec"].get("volumes") or ():
                name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
                if name and (pod["metadata"]["namespace"], name) not in known:
                    return str(name)
        return ""

    async def _bind(self, pod: Manifest, node: str, gpus: tuple[int, ...]) -> None:
        meta = pod["metadata"]
        numbers = ",".join(map(str, gpus))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                **{key: meta[key] for key in ("name", "namespace", "uid")},
                "annotations": {GPU_GROUP: numbers, GPU_VISIBLE: numbers} if gpus else {},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(
                PODS, binding, meta["namespace"], of=str(meta["name"]), subresource="binding"
            )
        except (NotFound, Conflict) as error:
            log.info("pod %s is not bound: %s", meta["name"], error.why)
            return
        self._bound[meta["uid"]] = node
        message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        await self._recorder.record(PODS, pod, "Scheduled", message)

    async def _write_why(self, pod: Manifest, why: str) -> None:
        meta = pod["metadata"]
        conditions = list((pod.get("status") or {}).get("conditions") or ())
        written = [each.get("message") for each in conditions if each.get("type") == "PodScheduled"]
        if written == [why]:
            return
        others = [each for each in conditions if each.get("type") != "PodScheduled"]
        status = {"conditions": set_condition(others, "PodScheduled", False, "Unschedulable", why)}
        change = {"metadata": {"uid": meta["uid"]}, "status": status}
        try:
            patched = await self._client.patch(
                PODS, str(meta["name"]), change, meta["namespace"], subresource="status"
            )
        except (NotFound, Conflict):
            return
        self._pods.remember(patched)
        await self._recorder.record(PODS, pod, "FailedScheduling", why, is_warning=True)


def _gang_key(pod: Manifest) -> str:
    return str(controller_of(pod).get("uid") or pod["metadata"]["uid"])


def _gang_size(pod: Manifest) -> int:
    text = str((pod["metadata"].get("annotations") or {}).get(GANG, ""))
    return int(text) if text.isdecimal() else 1


def _is_over(pod: Manifest) -> bool:
    # A pod that is being deleted will soon hold nothing.
    return phase_of(pod) in ENDED or bool(pod["metadata"].get("deletionTimestamp"))


def _priority_key(gang: list[Manifest]) -> tuple[int, str, str]:
    first = min(gang, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    return (
        -int(first["spec"].get("priority") or 0),
        str(first["metadata"].get("creationTimestamp")),
        str(first["metadata"]["name"]),
    )
