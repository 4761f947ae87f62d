"""Gang scheduler: binds all pods of a job or none, and reports the reason."""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec

from k8s.gpus.ack import GPU_GROUP, GPU_VISIBLE, given_gpus
from k8s.gpus.gpu_links import fetch_known_links
from k8s.gpus.links import LinkMatrix
from k8s.models.resources import CLAIMS, NODES, PODS
from k8s.reasons.scheduling.predicates import NodeCapacity
from k8s.sandbox.controller_runtime import (
    ENDED,
    Informer,
    Informers,
    Manifest,
    Recorder,
    controller_of,
)
from k8s.sandbox.controllers.placement import (
    LinkedGpus,
    choose_gpus,
    node_capacity,
    pending_pod,
    place,
)
from k8s.sandbox.controllers.reconcile import GANG, phase_of, set_condition
from k8s.text.errors import Conflict, NotFound

# `schedulerName` of pods on a real cluster that use this scheduler.
NAME = "gpuconsole"
OURS = frozenset({NAME, "default-scheduler", ""})

log = logging.getLogger(__name__)


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
