"""Clusters of few and of very many nodes, for what home looks like: nodes full, free, cordoned or gone."""

from __future__ import annotations

from typing import Any

from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.sample_cluster import ago, lab

_MODELS = {
    "a100": "NVIDIA-A100-SXM4-80GB",
    "h100": "NVIDIA-H100-80GB-HBM3",
    "l40s": "NVIDIA-L40S",
    "v100": "Tesla-V100-SXM2-32GB",
}


def cluster_of(nodes: int, *, has_jobs: bool = True) -> dict[str, Any]:
    """Return the objects of a cluster with so many nodes that have GPUs, as `console_on` takes them."""
    if nodes < 3:
        return _small(nodes, has_jobs=has_jobs)
    found = lab()
    some = [_machine(number) for number in range(1, nodes - 9)]
    found["nodes"] += some
    # Of each eight nodes there is a job on four; those that take no pods have none.
    for first in range(0, len(some) - 7, 8):
        job = pytorch_job(f"train-{first // 8 + 1:03}", 4, 8, creationTimestamp=ago(days=1))
        job["metadata"]["annotations"] = {"gpuconsole.dev/user": ("li", "chen", "maria")[first % 3]}
        found["jobs"].append(job)
        for place, on in zip(("master-0", "worker-0", "worker-1", "worker-2"), some[first:], strict=False):
            found["pods"].append(_pod(job, place, on["metadata"]["name"], 8))
    return found


def _small(nodes: int, *, has_jobs: bool) -> dict[str, Any]:
    names = [f"gpu-{number + 1}" for number in range(nodes)]
    bert = pytorch_job("bert-large-ft", 2, 4, creationTimestamp=ago(hours=2, minutes=15))
    waits = pytorch_job("llm-70b-eval", 1, 4, creationTimestamp=ago(minutes=9))
    jobs = [each for each in (bert, waits) if has_jobs]
    pods = []
    if has_jobs:
        on = names[0] if names else ""
        pods = [_pod(bert, place, on, 4) for place in ("master-0", "worker-0")]
        pods.append(_pod(waits, "master-0", "", 4))
    return {"nodes": [node(name, 8) for name in names], "pods": pods, "jobs": jobs}


def _pod(job: Object, place: str, on: str, gpus: int) -> Object:
    """Return a pod that runs on a node, or that waits where none is named."""
    if not on:
        return pod_of(job, place, phase="Pending", gpus=gpus, conditions=[_WAITS])
    since = ago(hours=2, minutes=13)
    runs = {"name": "pytorch", "restartCount": 0, "state": {"running": {"startedAt": since}}}
    pod = pod_of(job, place, on=on, gpus=gpus, startTime=since, containerStatuses=[runs])
    pod["metadata"]["creationTimestamp"] = since
    return pod


_WAITS = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no nodes available to schedule pods",
}


def _machine(number: int) -> Object:
    short = ("a100", "a100", "h100", "a100", "h100", "l40s", "a100", "h100", "a100", "v100")[number % 10]
    bad = int(number % 53 == 0)
    found = node(
        f"{short}-{number + 20}", 8 - bad, capacity=8, **({"unschedulable": True} if number % 31 == 5 else {})
    )
    found["metadata"]["labels"] = {"nvidia.com/gpu.product": _MODELS[short]}
    if number % 41 == 7:
        found["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        ]
    return found
