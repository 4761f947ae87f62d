"""Objects of clusters of 1.34 to 1.37, and the sums and rows that they become.

Each line of a case is a node, `n1: 2 of 4, bert 2`, or a job, `bert: Running 2 of 2`, with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from k8s.models import Node, Pod, Reader, convert
from k8s.models.dra import DeviceClaims, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from k8s.reasons.evidence import Evidence
from k8s.reasons.objects import FullPod
from k8s.reasons.rules import explain
from k8s.snapshot import Job, NodeRow, format_sums
from tests.support.evidence import NOW
from tests.support.objects import GPU, RECORDED, Object, join, listed, node, read_jobs

AMD, NVIDIA = "gpu.amd.com", "gpu.nvidia.com"
_TYPES: dict[str, Any] = {
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
}


class Case(NamedTuple):
    title: str
    objects: list[Object]
    lines: list[str]


def shown(objects: Iterable[Object], *asked: str) -> list[str]:
    """Return the rows of nodes, pods, devices and jobs, and why some jobs are so.

    Nodes and pods may lack a kind.
    """
    objects = list(objects)
    kinds: dict[str, list[Object]] = {}
    for each in objects:
        default = "Pod" if "containers" in each["spec"] else "Node"
        kinds.setdefault(each.get("kind", default), []).append(each)
    nodes = Reader[Node](Node).read_list(listed(*kinds.pop("Node", [])))[1]
    pods = Reader[Pod](Pod).read_list(listed(*kinds.pop("Pod", [])))[1]
    devices = [convert(each, type_) for kind, type_ in _TYPES.items() for each in kinds.pop(kind, [])]
    merged_nodes, merged_pods = DeviceClaims().merge(nodes, pods, devices)
    jobs = read_jobs(*(each for of_kind in kinds.values() for each in of_kind))
    node_rows, job_rows = join(merged_nodes, merged_pods, jobs)
    full = {
        each["metadata"]["name"]: convert(each, FullPod) for each in objects if "containers" in each["spec"]
    }
    rows = {row.name: row for row in node_rows}
    evidence = [
        Evidence(job=job, now=NOW, node_rows=rows, nodes=tuple(merged_nodes), pods=full)
        for job in job_rows
        if job.ref.name in asked
    ]
    return [
        *map(node_line, node_rows),
        *map(job_line, sorted(job_rows, key=lambda job: job.ref.name)),
        *map(why_line, evidence),
    ]


def why_line(evidence: Evidence) -> str:
    answer = explain(evidence)
    facts = [fact.text for fact in answer.facts if fact.kind in ("gpu", "nodes")]
    return " | ".join((f"why {evidence.job.ref.name}: {answer.sentence}", *facts))


def node_line(row: NodeRow) -> str:
    bad = f", {row.gpus_unhealthy} out of order" if row.gpus_unhealthy else ""
    bad += f", {row.trouble}" if row.trouble else ""
    bad += "".join(f", {each} is not counted" for each in row.uncounted)
    held = [f"{job} {amount}" for _, job, amount in row.jobs]
    sums = format_sums([row], is_short=True)
    if row.shared is not None:
        sums = f"{row.shared.allocated_gib} of {row.shared.total_gib}G of {row.shared.devices} GPUs"
    mode = f" ({row.mode})" if row.mode not in ("exclusive", "dra", "normal", "share") else ""
    return ", ".join((f"{row.name}: {sums}{mode}{bad}", *held))


def job_line(job: Job) -> str:
    reason = f" ({job.reason})" if job.reason else ""
    amount = f"{job.gpu_fraction:g} of a GPU" if job.gpu_fraction else ""
    amount = amount or f"{job.gpus_allocated} of {job.gpus_requested}"
    return f"{job.ref.name}: {job.status} {amount}{reason}"


def check(cases: Iterable[Case]) -> None:
    failures = [
        (title, found, lines)
        for title, objects, lines in cases
        for asked in ([line[4:].partition(":")[0] for line in lines if line.startswith("why ")],)
        if (found := shown(objects, *asked)) != lines
    ]
    assert not failures, "\n".join(f"{title}:\n  {found}\n  {lines}" for title, found, lines in failures)


def device(name: str, *, of: str = "", kind: str = "", taint: str = "") -> Object:
    """Return a device; a partition of the card `of`, if that is given."""
    found: Object = {"name": name, "attributes": {"type": {"string": kind}} if kind else {}}
    if of:
        found["consumesCounters"] = [{"counterSet": of, "counters": {"memory": {"value": "10Gi"}}}]
    if taint:
        found["taints"] = [{"key": "lab.io/xid", "value": "79", "effect": taint}]
    return found


def slice_of(on: str, *devices: Object | str, driver: str = AMD) -> Object:
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{on}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": on,
            "pool": {"name": on, "generation": 1, "resourceSliceCount": 1},
            "devices": [device(each) if isinstance(each, str) else each for each in devices],
        },
    }


def taint_rule(name: str, chosen: dict[str, Any] | None, effect: str = "NoSchedule") -> Object:
    taint = {"key": "ops/drain", "effect": effect, "timeAdded": "2026-11-20T08:00:00Z"}
    spec = {"taint": taint} | ({} if chosen is None else {"deviceSelector": chosen})
    return {"kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def claim(name: str, pool: str, devices: str, *users: str, driver: str = AMD, group: str = "") -> Object:
    """Return a claim that got `devices`, reserved for the pods of some uids, or for a PodGroup."""
    results = [
        {"request": "r", "driver": driver, "pool": pool, "device": each} for each in devices.split(",")
    ]
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    if group:
        reserved = [
            {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": f"g-{group}"}
        ]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def class_of(resource: str, driver: str, *types: str) -> Object:
    """Return the class of a driver's devices that limits on `resource` get."""
    expression = " && ".join(
        [f"device.driver == '{driver}'"]
        + [f"device.attributes['{driver}'].type == '{each}'" for each in types]
    )
    return {
        "kind": "DeviceClass",
        "metadata": {"name": f"{resource.partition('/')[2]}.{driver}"},
        "spec": {"extendedResourceName": resource, "selectors": [{"cel": {"expression": expression}}]},
    }


def lone(name: str, on: str, limits: dict[str, int] | None = None, **spec: Any) -> Object:
    """Return a running pod without an owner."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "m", "resources": {"limits": limits or {}}}],
            **spec,
        },
        "status": {"phase": "Running"},
    }


def served(pod: Object, *resources: str) -> Object:
    """Add the claim that the scheduler made for the limits of a pod."""
    mappings = [
        {"containerName": "m", "resourceName": each, "requestName": f"container-0-request-{n}"}
        for n, each in enumerate(resources)
    ]
    pod["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": f"{pod['metadata']['name']}-extended-resources-x7",
        "requestMappings": mappings,
    }
    return pod


def bare(name: str) -> Object:
    """Return a node whose kubelet has no device plugin."""
    found = node(name)
    for amounts in ("allocatable", "capacity"):
        del found["status"][amounts][GPU]
    return found


def in_group(pod: Object, group: str, claim_name: str) -> Object:
    """Make a pod one of a PodGroup, and let it use a claim."""
    pod["spec"] |= {"schedulingGroup": {"podGroupName": group}, "resourceClaims": [{"name": "gpu"}]}
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim_name}]
    return pod


def recorded(name: str) -> list[Object]:
    found: Object = json.loads((RECORDED / f"{name}.json").read_bytes())
    items: list[Object] = found.get("items", [found])
    return items
