"""Recognition and counting of accelerators in pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import lru_cache

from k8s.models import Container, PodSpec, Quantities, Resources, quantity

KNOWN = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*",
    "nvidia.com/[A-Z]*_*",  # KubeVirt: GRID_T4-8Q, GH100_H100_SXM5_80GB
    "volcano.sh/vgpu-number", "volcano.sh/gpu-mem.128Mi", "volcano.sh/gpu-core.percentage",
    "tke.cloud.tencent.com/qgpu-*", "alpha.kubernetes.io/nvidia-gpu", "amd.com/gpu",
    "amd.com/?px_nps*",  # partitions: cpx_nps4
    "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi*", "huawei.com/[Aa]scend*",
    "google.com/tpu", "aws.amazon.com/neuron", "aws.amazon.com/neuron[cd]*", "cambricon.com/mlu",
    "cambricon.com/mlu[0-9]*", "cambricon.com/vmlu", "hygon.com/dcu", "hygon.com/dcunum",
    "mthreads.com/gpu", "mthreads.com/vgpu", "iluvatar.*/gpu", "enflame.com/gcu", "kunlunxin.com/xpu",
    "metax-tech.com/gpu", "aliyun.com/gpu", "aliyun.com/gpu-mem",
    # Drivers of resource claims, which stand for the devices they manage.
    "gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", "tpu.google.com",
    "gpu.example.com",
)  # fmt: skip
"""Patterns of accelerator resources, for `fnmatch`."""
_WILDCARDS = frozenset("*?[")
# Prefixes of resources that are certainly not NVIDIA's.
_OTHER_VENDORS = (
    "amd.com/", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", "habana.ai/", "huawei.com/",
    "google.com/", "tpu.google.com", "aws.amazon.com/", "cambricon.com/", "metax-tech.com/",
    "hygon.com/", "mthreads.com/", "iluvatar.", "enflame.com/", "kunlunxin.com/",
)  # fmt: skip
Counts = dict[str, int]
# Container lists to remember, so that those of a job's pods are counted once.
_MAX_CACHED = 4096
_COUNTED: dict[tuple[int, int, tuple[str, ...]], tuple[object, object, Counts]] = {}
_ADDED: ContextVar[tuple[str, ...]] = ContextVar("added accelerators", default=())


@contextmanager
def recognising(patterns: Iterable[str]) -> Iterator[None]:
    """Count resources that match any of `patterns` as accelerators too, in this context only."""
    token = _ADDED.set((*_ADDED.get(), *patterns))
    try:
        yield
    finally:
        _ADDED.reset(token)


def is_accelerator(resource: str) -> bool:
    """Return True if a resource name stands for GPUs or other accelerators."""
    return _is_like(resource, _ADDED.get())


@lru_cache(maxsize=4096)
def _is_like(resource: str, added: tuple[str, ...]) -> bool:
    patterns = (*KNOWN, *added)
    if resource in patterns:
        return True
    # Most have no wildcard, and each would be compiled.
    return any(fnmatchcase(resource, each) for each in patterns if not _WILDCARDS.isdisjoint(each))


def may_be_nvidia(resources: Iterable[str]) -> bool:
    """Return True if any resource may be an NVIDIA GPU; DCGM and nvidia-smi know no others."""
    return any(not each.startswith(_OTHER_VENDORS) for each in resources)


# Memory of shared GPUs, and the number of its units in a GiB.
UNITS_IN_GIB = {
    "aliyun.com/gpu-mem": 1,
    "tke.cloud.tencent.com/qgpu-memory": 1,
    "volcano.sh/gpu-mem.128Mi": 8,
}
PERCENT_OF_GPU = ("tke.cloud.tencent.com/qgpu-core", "volcano.sh/gpu-core.percentage")


def is_countable(resource: str) -> bool:
    """Return True if a resource counts devices; `aliyun.com/gpu-mem` counts gigabytes."""
    return not resource.endswith(("-mem", "-memory")) and resource not in _UNITS


_UNITS = frozenset((*UNITS_IN_GIB, *PERCENT_OF_GPU))


def gib(counts: Mapping[str, int]) -> int:
    """Return the memory of shared GPUs in a count of resources, in GiB, rounded up."""
    return sum(-(-counts[name] // size) for name, size in UNITS_IN_GIB.items() if name in counts)


def count(counts: Counts) -> int:
    """Return the number of devices in all resources together."""
    number = 0
    for name, each in counts.items():
        if is_countable(name):
            number += each
        elif name in PERCENT_OF_GPU:
            number += each // 100
    return number


def in_quantities(quantities: Quantities | Mapping[str, object] | None) -> Counts:
    """Return the accelerators among the quantities of a node or container, without zeros."""
    return {
        name: number
        for name, value in (quantities or {}).items()
        if is_accelerator(name)
        and isinstance(value, (str, int, float))
        and (number := quantity.count(value)) > 0
    }


def asked(resources: Resources | None) -> Counts:
    """Return the requested accelerators: the limits, or the requests where there is no limit."""
    if resources is None:
        return {}
    return {**in_quantities(resources.requests), **in_quantities(resources.limits)}


def of_container(container: Container) -> Counts:
    """Return the accelerators of one container: its limits, or its requests where it has no limits."""
    return asked(container.resources)


def of_pod(spec: PodSpec) -> Counts:
    """Return the accelerators that a pod holds once it is bound.

    The larger of two sums: all containers with the sidecars, or any one init container
    with the sidecars that started before it. Pod-level resources replace this sum, devices of resource
    claims replace the limits that they serve, and the overhead of the runtime class is added.

    Source: Kubernetes, "Init Containers: resource sharing within containers", "Pod
    Overhead" and "Pod-level resources".
    """
    # Pods that are alike share their lists of containers, see `k8s.models`; kept, a list keeps its id.
    key = (id(spec.containers), id(spec.init_containers), _ADDED.get())
    if key not in _COUNTED:
        if len(_COUNTED) >= _MAX_CACHED:
            _COUNTED.clear()
        _COUNTED[key] = (spec.containers, spec.init_containers, _of_containers(spec))
    held = _COUNTED[key][-1]
    if spec.resources is not None:
        held = {**held, **asked(spec.resources)}
    if spec.claimed_limits:
        held = {name: number for name, number in held.items() if name not in spec.claimed_limits}
    if spec.overhead or spec.claimed:
        held = total((held, in_quantities(spec.overhead), spec.claimed or {}))
    return held


def _of_containers(spec: PodSpec) -> Counts:
    if len(spec.containers) == 1 and not spec.init_containers:
        return of_container(spec.containers[0])
    containers = total(of_container(container) for container in spec.containers)
    if not spec.init_containers:
        return containers
    sidecars: Counts = {}
    peak: Counts = {}
    for init in spec.init_containers:
        requested = of_container(init)
        if init.restart_policy == "Always":
            sidecars = total((sidecars, requested))
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, total((sidecars, requested)))
    return _larger(peak, total((containers, sidecars)))


def total(counts: Iterable[Mapping[str, int]]) -> Counts:
    """Add up device counts by resource."""
    added: Counts = {}
    for each in counts:
        for name, number in each.items():
            added[name] = added.get(name, 0) + number
    return added


def _larger(one: Counts, other: Counts) -> Counts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
