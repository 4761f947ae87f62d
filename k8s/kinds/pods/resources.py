"""Resources of each pod of a job: GPUs, other devices, cores and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from k8s.kinds.base import Manifest
from k8s.kinds.parse import ParsedPart, named
from k8s.models.accelerators import is_accelerator
from k8s.models.quantity import parse

if TYPE_CHECKING:
    from k8s.job_spec import JobSpec

RDMA_DEVICE = "rdma/hca"
# Lets a process pin the memory that RDMA reads.
_LOCK_MEMORY: Manifest = {"capabilities": {"add": ["IPC_LOCK"]}}
_CLAIM = "devices"
_AMOUNTS = ("cpu", "memory")


def add_resources(pod: Manifest, container: Manifest, spec: JobSpec) -> None:
    """Add the resources of `spec` to a pod and its container."""
    devices = {spec.gpu_resource: str(spec.gpus)} if spec.gpus else {}
    devices |= spec.devices
    if spec.rdma:
        devices[RDMA_DEVICE] = "1"
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    limits = devices | _given(cpu=spec.cpu, memory=spec.memory)
    requests = devices | _given(cpu=spec.cpu_request or spec.cpu, memory=spec.memory_request or spec.memory)
    resources: Manifest = {
        **({"limits": limits} if limits else {}),
        **({"requests": requests} if requests else {}),
    }
    if spec.device_claim:
        resources["claims"] = [{"name": _CLAIM}]
        pod["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": spec.device_claim}]
    if resources:
        container["resources"] = resources


def pop_resources(pod: Manifest, container: Manifest) -> ParsedPart:
    """Remove the resources that a spec can express: the first device is the GPU, others are devices."""
    resources = container.pop("resources", None) or {}
    limits, requests = resources.pop("limits", None) or {}, resources.pop("requests", None) or {}
    requested = {**requests, **limits}
    fields: dict[str, Any] = {"gpus": 0, "gpu_resource": "nvidia.com/gpu", "devices": {}, "rdma": False}
    if str(requested.get(RDMA_DEVICE)) == "1" and container.get("securityContext") == _LOCK_MEMORY:
        fields["rdma"] = True
        del container["securityContext"], requested[RDMA_DEVICE]
        limits.pop(RDMA_DEVICE, None), requests.pop(RDMA_DEVICE, None)
    devices = sorted((name for name in requested if "/" in name), key=lambda name: not is_accelerator(name))
    for name in devices:
        amount = str(requested[name])
        if name == devices[0] and amount.isdecimal():
            fields |= {"gpus": int(amount), "gpu_resource": name if int(amount) else fields["gpu_resource"]}
        else:
            fields["devices"][name] = amount
        _drop_request(requests, name, limits.pop(name, None))
    for name in _AMOUNTS:
        limit = limits.pop(name, None)
        _drop_request(requests, name, limit)
        fields[name] = str(limit or "")
        fields[f"{name}_request"] = str(requests.pop(name, None) or "")
    fields["device_claim"] = _parse_claim(pod, resources)
    lost = named(limits, prefix="limits.") + named(requests, prefix="requests.")
    return ParsedPart(fields, lost + named(resources, prefix="resources."))


def _given(**amounts: str) -> dict[str, str]:
    return {name: amount for name, amount in amounts.items() if amount}


def _drop_request(requests: Manifest, name: str, limit: str | int | float | None) -> None:
    # A request equal to the limit is implied.
    if name in requests and _is_as_much(requests[name], limit):
        del requests[name]


def _parse_claim(pod: Manifest, resources: Manifest) -> str:
    # Anything but one claim used by the container stays.
    claims = pod.get("resourceClaims") or [{}]
    name, template = claims[0].get("name"), claims[0].get("resourceClaimTemplateName")
    if len(claims) > 1 or not isinstance(template, str) or len(claims[0]) > 2:
        return ""
    if resources.get("claims") != [{"name": name}]:
        return ""
    del pod["resourceClaims"], resources["claims"]
    return template


def _is_as_much(one: str | int | float, other: str | int | float | None) -> bool:
    if other is None:
        return False
    try:
        return str(one) == str(other) or parse(one) == parse(other)
    except ValueError:
        return False
