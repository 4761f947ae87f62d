"""Nodes of the sandbox, one with this machine's GPUs or several with simulated GPUs, and what they allocate.

Pods are given GPUs, jobs are given ports. Metrics of real GPUs are written as a DCGM exporter writes them;
values that the driver does not report are left out, and so are XID errors, which NVML reports only as events.

Source: NVML API reference, "Device Queries"; NVIDIA/dcgm-exporter, `internal/pkg/rendermetrics`.
"""

from __future__ import annotations

import os
import platform
import random
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from k8s.gpus.links import MACHINES, LinkMatrix
from k8s.gpus.nvml import handles_of, query_driver, read_nvml, text_of, visible_gpus
from k8s.models import PodSpec
from k8s.models.accelerators import of_pod
from k8s.models.gpu_sharing import SCHEDULE_LABEL, TOPOLOGY
from k8s.sandbox.controller_runtime import now_text
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize

GPU, TOPOLOGY_GPU = "nvidia.com/gpu", "aliyun.com/gpu"
SIMULATED = "gpuconsole.dev/simulated"
SANDBOX = "gpuconsole.dev/sandbox"
GPU_LABELS = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", SIMULATED)
PODS_PER_NODE = 110
# Nodes claim at least this much per simulated GPU, so that jobs written for real nodes fit.
CORES_PER_GPU, MEMORY_PER_GPU_KI = 8, 32 * 2**20
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT, _HIGHEST_PORT = 10_000, 64_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """Names and GPUs of the sandbox's nodes."""

    names: tuple[str, ...]
    gpus: int
    model: str
    is_simulated: bool
    links: str = ""
    """Name in `MACHINES` whose links the simulated GPUs have; empty for none."""
    notice: str = ""
    """Explains that GPUs are simulated that CUDA_VISIBLE_DEVICES names; or empty."""

    def matrix(self) -> LinkMatrix | None:
        """Return the GPU links of each node; None if unknown."""
        if not self.gpus:
            return None
        if self.is_simulated:
            return MACHINES[self.links].matrix(self.gpus) if self.links in MACHINES else None
        return read_nvml()


def shape_of(nodes: int = 0, gpus_per_node: int = -1, links: str = "") -> Shape:
    """Return the nodes to create; by default one with this machine's GPUs, else two with simulated ones.

    With `links`, a name in `MACHINES`, the GPUs are simulated, as many as that machine has.

    Raises:
        KubeError: CUDA_VISIBLE_DEVICES names GPUs, but none of this machine.
    """
    notice = ""
    if not links and not nodes and gpus_per_node < 0:
        models = real_gpus()
        if models:
            return Shape(("sandbox-0",), len(models), models[0], is_simulated=False)
        if visible_gpus():
            listed = sanitize(os.environ["CUDA_VISIBLE_DEVICES"])
            notice = (
                f"CUDA_VISIBLE_DEVICES is {listed}, but no NVIDIA driver answers: the GPUs are simulated."
            )
    names = tuple(f"sandbox-{index}" for index in range(nodes or 2))
    usual = MACHINES[links].gpus if links else 4
    gpus = usual if gpus_per_node < 0 else gpus_per_node
    return Shape(names, gpus, "simulated", is_simulated=True, links=links, notice=notice)


def real_gpus(nvml: Any = None) -> list[str]:
    """Return the models of this machine's GPUs that may be used; empty without a driver.

    Raises:
        KubeError: CUDA_VISIBLE_DEVICES names GPUs, but none of this machine.
    """
    return query_driver(_models, nvml) or []


def _models(nvml: Any) -> list[str]:
    names = [text_of(nvml.nvmlDeviceGetName(handle)) for handle in handles_of(nvml)]
    if not names and visible_gpus() and nvml.nvmlDeviceGetCount():
        listed = sanitize(os.environ["CUDA_VISIBLE_DEVICES"])
        raise KubeError(
            "The sandbox cannot offer this machine's GPUs.",
            f"CUDA_VISIBLE_DEVICES is {listed}, and no GPU or MIG instance here has that name.",
            "Correct or unset it, or ask for simulated GPUs: gpuconsole sandbox start --gpus-per-node 4",
        )
    return [name.replace(" ", "-") for name in names]


def manifest(name: str, shape: Shape) -> dict[str, Any]:
    """Return the Node object of one node."""
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
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_resource(labels: Mapping[str, str] | None) -> str:
    """Return the resource name of a node's GPUs; ACK's topology label changes it."""
    return TOPOLOGY_GPU if (labels or {}).get(SCHEDULE_LABEL) == TOPOLOGY else GPU


def status(shape: Shape, since: str, resource: str = GPU) -> dict[str, Any]:
    """Return the status of a ready node whose GPUs are called `resource`.

    Every node has all cores and memory of the machine, or more if its simulated GPUs need them.
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
    """Allocation of GPUs to pods."""

    def __init__(self, shape: Shape) -> None:
        self._free = {name: set(range(shape.gpus)) for name in shape.names}
        self._held: dict[str, tuple[str, tuple[int, ...]]] = {}

    def allocate(
        self, pod_uid: str, node: str, count: int, wanted: Sequence[int] = ()
    ) -> tuple[int, ...] | None:
        """Allocate `count` GPUs of a node to a pod; None if too few are free.

        Takes `wanted`, the scheduler's choice, if it has the right size and is free; else the first ones.
        """
        free = self._free.get(node, set())
        if count > len(free):
            return None
        is_chosen = len(set(wanted)) == count and free.issuperset(wanted)
        chosen = tuple(sorted(set(wanted) if is_chosen else free)[:count])
        self._free[node] = free - set(chosen)
        self._held[pod_uid] = (node, chosen)
        return chosen

    def release(self, pod_uid: str) -> None:
        """Free the GPUs of a pod."""
        node, indices = self._held.pop(pod_uid, ("", ()))
        if indices:
            self._free[node] |= set(indices)

    def held(self, node: str) -> dict[str, tuple[int, ...]]:
        """Return the allocated GPUs of a node, by pod uid."""
        return {uid: indices for uid, (name, indices) in self._held.items() if name == node and indices}

    def free(self, node: str) -> int:
        """Return the number of free GPUs of a node."""
        return len(self._free.get(node, ()))


def gpu_requests(spec: Mapping[str, Any]) -> int:
    """Return the number of NVIDIA GPUs that a pod requests."""
    held = of_pod(msgspec.convert(spec, PodSpec))
    return held.get(GPU, 0) + held.get(TOPOLOGY_GPU, 0)


class Ports:
    """Allocation of a port to each job, by its uid: two jobs must not meet on this machine's loopback."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def of(self, owner: str) -> int:
        """Return the port of a job: free when chosen, and outside the kernel's ephemeral range."""
        if owner not in self._of:
            self._of[owner] = self._choose()
        return self._of[owner]

    def keep(self, owners: Collection[str]) -> None:
        """Forget the ports of all other jobs."""
        self._of = {owner: port for owner, port in self._of.items() if owner in owners}

    def _choose(self) -> int:
        first, last = ephemeral()
        taken = set(self._of.values())
        fixed = [
            port
            for port in range(_LOWEST_PORT, _HIGHEST_PORT)
            if not first <= port <= last and port not in taken
        ]
        for port in random.sample(fixed, min(len(fixed), 200)):
            if _is_free(port):
                return port
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            return int(found.getsockname()[1])


def ephemeral() -> tuple[int, int]:
    """Return the kernel's ephemeral port range, both ends included."""
    try:
        first, last = _PORT_RANGE.read_text().split()
    except (OSError, ValueError):
        return 32768, 60999
    return int(first), int(last)


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


class GpuHolder(NamedTuple):
    """Container that has a GPU."""

    namespace: str
    pod: str
    container: str


def exporter_text(node: str, holders: Mapping[int, GpuHolder], nvml: Any = None) -> str:
    """Return the metrics of all GPUs of this machine; empty without a driver or GPUs.

    Args:
        node: Name of the node.
        holders: Holder of each allocated GPU, by index.
        nvml: NVML bindings; `pynvml` by default.
    """
    lines = query_driver(lambda nvml: list(_lines(nvml, node, holders)), nvml)
    return "\n".join([*sorted(lines, key=lambda line: line.partition("{")[0]), ""]) if lines else ""


def _lines(nvml: Any, node: str, holders: Mapping[int, GpuHolder]) -> Iterator[str]:
    for index, handle in enumerate(handles_of(nvml)):
        for labels, (name, value) in _of_gpu(nvml, index, handle, node, holders.get(index)):
            yield f"{name}{{{labels}}} {value}"


def _of_gpu(
    nvml: Any, index: int, handle: Any, node: str, holder: GpuHolder | None
) -> Iterator[tuple[str, tuple[str, float]]]:
    labels = {
        "gpu": str(index),
        "UUID": text_of(nvml.nvmlDeviceGetUUID(handle)),
        "device": f"nvidia{index}",
        "modelName": text_of(nvml.nvmlDeviceGetName(handle)),
        "hostname": node,
    }
    if holder is not None:
        labels |= holder._asdict()
    written = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    for name, ask in _QUESTIONS.items():
        try:
            yield written, (name, ask(nvml, handle))
        except (nvml.NVMLError, AttributeError):  # the GPU, or this release of pynvml, knows nothing of it
            continue


def _ecc(nvml: Any, handle: Any) -> float:
    uncorrected, volatile = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return float(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile))


_QUESTIONS: Mapping[str, Callable[[Any, Any], float]] = {
    "DCGM_FI_DEV_GPU_UTIL": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "DCGM_FI_DEV_FB_USED": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / _MIB,
    "DCGM_FI_DEV_FB_TOTAL": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total / _MIB,
    "DCGM_FI_DEV_POWER_USAGE": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "DCGM_FI_DEV_GPU_TEMP": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "DCGM_FI_DEV_SM_CLOCK": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(
        gpu
    ),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[3],
}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
