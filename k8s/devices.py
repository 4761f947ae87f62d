"""Which resources are accelerators, and how many of them a pod holds or a node has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from k8s import quantity
from k8s.models import Container, PodSpec, Quantities

_ACCELERATOR = re.compile(
    r"nvidia\.com/(gpu|gpu\.shared|mig-.+)|amd\.com/gpu|gpu\.intel\.com/\w+|habana\.ai/gaudi"
    r"|huawei\.com/Ascend.*|google\.com/tpu|aliyun\.com/gpu(-mem)?"
)
Counts = dict[str, int]
"""Resource name to a number of devices."""


@lru_cache(maxsize=1024)
def is_accelerator(resource: str) -> bool:
    """Tell whether a resource name stands for GPUs or their like."""
    return _ACCELERATOR.fullmatch(resource) is not None


def is_countable(resource: str) -> bool:
    """Tell whether a resource's numbers are devices; `aliyun.com/gpu-mem` counts gigabytes."""
    return not resource.endswith("-mem")


def count(counts: Counts) -> int:
    """Return the devices among all resources together."""
    return sum(number for name, number in counts.items() if is_countable(name))


def in_quantities(quantities: Quantities | Mapping[str, object] | None) -> Counts:
    """Return the accelerators among a node's or a container's quantities."""
    return {
        name: quantity.count(value)
        for name, value in (quantities or {}).items()
        if is_accelerator(name) and isinstance(value, (str, int, float))
    }


def of_container(container: Container) -> Counts:
    """Return what one container asks for: its limits, or its requests where it has no limit."""
    if container.resources is None:
        return {}
    return {**in_quantities(container.resources.requests), **in_quantities(container.resources.limits)}


def of_pod(spec: PodSpec) -> Counts:
    """Return what a pod holds once it is bound.

    The larger of two sums: all containers with the sidecars, or any one init container
    with the sidecars that started before it.

    Source: Kubernetes, "Init Containers: resource sharing within containers".
    """
    if len(spec.containers) == 1 and not spec.init_containers:
        return of_container(spec.containers[0])
    containers = total(of_container(container) for container in spec.containers)
    if not spec.init_containers:
        return containers
    sidecars: Counts = {}
    peak: Counts = {}
    for init in spec.init_containers:
        asked = of_container(init)
        if init.restart_policy == "Always":
            sidecars = total((sidecars, asked))
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, total((sidecars, asked)))
    return _larger(peak, total((containers, sidecars)))


def total(counts: Iterable[Mapping[str, int]]) -> Counts:
    """Add numbers of devices, resource by resource."""
    added: Counts = {}
    for each in counts:
        for name, number in each.items():
            added[name] = added.get(name, 0) + number
    return added


def _larger(one: Counts, other: Counts) -> Counts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
