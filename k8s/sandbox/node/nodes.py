"""The sandbox's nodes: this machine with its GPUs under one name, or under several with simulated ones."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from k8s.devices.accelerators import of_pod
from k8s.devices.nvml import ask_driver, handles_of, text_of
from k8s.models import PodSpec
from k8s.sandbox.controller_runtime import now_text
from k8s.topology.ack import SCHEDULE_LABEL, TOPOLOGY
from k8s.topology.links import LinkMatrix
from k8s.topology.machines import MACHINES
from k8s.topology.nvml import read_nvml

GPU, TOPOLOGY_GPU = "nvidia.com/gpu", "aliyun.com/gpu"
SIMULATED = "gpuconsole.dev/simulated"
"""Label of a node whose GPUs do not exist."""
SANDBOX = "gpuconsole.dev/sandbox"
"""Label of every node that a sandbox made."""
GPU_LABELS = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", SIMULATED)
"""Labels that a node has or has not, by the sandbox's shape."""
PODS_PER_NODE = 110
CORES_PER_GPU, MEMORY_PER_GPU_KI = 8, 32 * 2**20
"""What a node has at least beside each simulated GPU, so that jobs written for real nodes fit."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What nodes the sandbox has."""

    names: tuple[str, ...]
    gpus: int
    """GPUs of each node."""
    model: str
    is_simulated: bool
    links: str = ""
    """As in which machine of `k8s.topology.machines` its simulated GPUs are linked; empty for not at all."""

    def matrix(self) -> LinkMatrix | None:
        """Return how the GPUs of each node are linked, by NVML where they are real; None where unknown."""
        if not self.gpus:
            return None
        if self.is_simulated:
            return MACHINES[self.links].matrix(self.gpus) if self.links in MACHINES else None
        return read_nvml()


def shape_of(nodes: int = 0, gpus_per_node: int = -1, links: str = "") -> Shape:
    """Return the nodes asked for; by default one with this machine's GPUs, else two with simulated ones.

    With `links`, a name of `k8s.topology.machines`, GPUs are simulated, as many as such a machine has.
    """
    if links:
        gpus = MACHINES[links].gpus if gpus_per_node < 0 else gpus_per_node
        names = tuple(f"sandbox-{index}" for index in range(nodes or 2))
        return Shape(names, gpus, "simulated", is_simulated=True, links=links)
    if not nodes and gpus_per_node < 0:
        models = real_gpus()
        if models:
            return Shape(("sandbox-0",), len(models), models[0], is_simulated=False)
    names = tuple(f"sandbox-{index}" for index in range(nodes or 2))
    return Shape(names, 4 if gpus_per_node < 0 else gpus_per_node, "simulated", is_simulated=True)


def real_gpus() -> list[str]:
    """Return the models of this machine's GPUs; empty without a driver."""
    return ask_driver(_models) or []


def _models(nvml: Any) -> list[str]:
    names = (text_of(nvml.nvmlDeviceGetName(handle)) for handle in handles_of(nvml))
    return [name.replace(" ", "-") for name in names]


def manifest(name: str, shape: Shape) -> dict[str, Any]:
    """Return the Node object for one of the nodes."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
        SANDBOX: "true",
    }
    if shape.gpus:
        labels |= {"nvidia.com/gpu.product": shape.model, "nvidia.com/gpu.count": str(shape.gpus)}
    if shape.is_simulated:
        labels[SIMULATED] = "true"
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def cores() -> int:
    """Return how many cores of this machine its processes may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_resource(labels: Mapping[str, str] | None) -> str:
    """Return as what a node offers its GPUs: with ACK's label for topology as ACK's component does."""
    return TOPOLOGY_GPU if (labels or {}).get(SCHEDULE_LABEL) == TOPOLOGY else GPU


def status(shape: Shape, since: str, resource: str = GPU) -> dict[str, Any]:
    """Return the status of a node that works since then, and offers its GPUs as `resource`.

    Each has the whole machine's cores and memory, or what nodes have with as many GPUs as are simulated.
    """
    memory_ki = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    simulated = shape.gpus if shape.is_simulated else 0
    capacity: dict[str, str | None] = {
        "cpu": str(max(cores(), simulated * CORES_PER_GPU)),
        "memory": f"{max(memory_ki, simulated * MEMORY_PER_GPU_KI)}Ki",
        "pods": str(PODS_PER_NODE),
    }
    if shape.gpus:
        capacity |= {GPU: None, TOPOLOGY_GPU: None, resource: str(shape.gpus)}
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "SandboxReady",
                "message": "the sandbox runs pods as processes",
                "lastHeartbeatTime": now_text(),
                "lastTransitionTime": since,
            }
        ],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "nodeInfo": {
            "architecture": platform.machine(),
            "containerRuntimeVersion": "gpuconsole-sandbox://1",
            "kernelVersion": platform.release(),
            "kubeletVersion": "gpuconsole-sandbox",
            "operatingSystem": "linux",
            "osImage": "processes on this machine",
        },
    }


class Devices:
    """Which GPU of which node belongs to which pod."""

    def __init__(self, shape: Shape) -> None:
        self._free = {name: set(range(shape.gpus)) for name in shape.names}
        self._held: dict[str, tuple[str, tuple[int, ...]]] = {}

    def take(self, pod_uid: str, node: str, count: int, wanted: Sequence[int] = ()) -> tuple[int, ...] | None:
        """Give a pod `count` GPUs of a node; None when there are not enough.

        Those that the scheduler chose, `wanted`, if they are as many and free; else neighbours if there are.
        """
        free = self._free.get(node, set())
        if count > len(free):
            return None
        is_chosen = len(set(wanted)) == count and free.issuperset(wanted)
        chosen = tuple(sorted(set(wanted))) if is_chosen else neighbours(free, count)
        self._free[node] = free - set(chosen)
        self._held[pod_uid] = (node, chosen)
        return chosen

    def give_back(self, pod_uid: str) -> None:
        """Free what a pod held."""
        node, indices = self._held.pop(pod_uid, ("", ()))
        if indices:
            self._free[node] |= set(indices)

    def held(self, node: str) -> dict[str, tuple[int, ...]]:
        """Return the uid of each pod that has GPUs of a node, and their indices."""
        return {uid: indices for uid, (name, indices) in self._held.items() if name == node and indices}

    def free(self, node: str) -> int:
        """Return how many GPUs of a node are free."""
        return len(self._free.get(node, ()))


def neighbours(free: set[int], count: int) -> tuple[int, ...]:
    """Choose `count` of the free indices: the tightest run of neighbours that fits, else the lowest.

    Neighbouring GPUs share switches and links on most machines.
    """
    runs: list[list[int]] = []
    for index in sorted(free):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    fitting = [run for run in runs if len(run) >= count]
    best = min(fitting, key=len) if fitting else sorted(free)
    return tuple(best[:count])


def asked_gpus(spec: Mapping[str, Any]) -> int:
    """Return how many of this machine's GPUs a pod asks for."""
    held = of_pod(msgspec.convert(spec, PodSpec))
    return held.get(GPU, 0) + held.get(TOPOLOGY_GPU, 0)
