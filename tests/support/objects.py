"""Pods, nodes and jobs as a server would send them, built in one line each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from k8s.cluster.joiner import Joiner, Rows
from k8s.kinds import KINDS
from k8s.kinds.base import DeclaredJob
from k8s.kinds.parse import JobReader
from k8s.models import Meta, Node, Pod, Reader
from k8s.snapshot import Job, NodeRow
from tests import FIXTURES

RECORDED = FIXTURES / "cluster-1.36"  # answers of a real 1.36 cluster
Object = dict[str, Any]
GPU = "nvidia.com/gpu"


def join(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    jobs: Iterable[DeclaredJob],
    owners: Mapping[str, Meta] | None = None,
    **more: Any,
) -> Rows:
    return join_again(Joiner(), nodes, pods, jobs, owners or {}, **more)


def join_again(joiner: Joiner, *objects: Any, **more: Any) -> Rows:
    for _ in joiner.steps(*objects, **more):
        pass
    return joiner.rows


def node(name: str, gpus: int = 8, *, capacity: int | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "resourceVersion": "1"},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "64", GPU: str(gpus)},
            "capacity": {"cpu": "64", GPU: str(gpus if capacity is None else capacity)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pytorch_job(name: str, workers: int = 1, gpus: int = 8, **meta: Any) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "resources": {"limits": {GPU: gpus}}}]}}
    roles: Object = {"Master": {"replicas": 1, "template": template}}
    if workers > 1:
        roles["Worker"] = {"replicas": workers - 1, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"job-{name}",
            "resourceVersion": "1",
            **meta,
        },
        "spec": {"nprocPerNode": str(max(gpus, 1)), "pytorchReplicaSpecs": roles},
    }


def elastic_job(
    name: str, workers: int = 2, processes: int = 1, nproc: str = "", **meta: Any
) -> tuple[Object, list[Object]]:
    """Return a PyTorchJob of torchrun, whose ranks can only be assumed, and its running pods."""
    made = pytorch_job(name, gpus=processes, **meta)
    template = made["spec"]["pytorchReplicaSpecs"].pop("Master")["template"]
    template["spec"]["containers"][0]["name"] = "main"
    made["spec"] |= {"elasticPolicy": {"minReplicas": 1}, "nprocPerNode": nproc or str(processes)}
    made["spec"]["pytorchReplicaSpecs"]["Worker"] = {"replicas": workers, "template": template}
    runs = {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": "2026-11-20T18:00:00Z"}}}
    pods = [
        pod_of(made, f"worker-{index}", on="a", gpus=processes, containerStatuses=[runs])
        for index in range(workers)
    ]
    for pod in pods:
        pod["spec"]["containers"][0]["name"] = "main"
    return made, pods


def collided(name: str) -> tuple[Object, list[Object], list[bytes]]:
    """Return a failed job, its pods, and their logs: rank 1 failed first, and rank 0 because of it."""
    job = pytorch_job(name, workers=2, gpus=1)
    job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "JobFailed"}]}
    errors = ("RuntimeError: Connection closed by peer [10.0.0.7]:4022", "IndexError: row 12 of shard 5")
    pods, logs = [], []
    for place, second, error in zip(("master-0", "worker-0"), (7, 5), errors, strict=True):
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:00}:0{second}"  # old ones are hidden
        end = {"exitCode": 1, "reason": "Error", "finishedAt": f"{at}Z"}
        status = {"name": "pytorch", "restartCount": 0, "state": {"terminated": end}}
        pods.append(pod_of(job, place, on="a", phase="Failed", gpus=1, containerStatuses=[status]))
        said = ("Traceback (most recent call last):", '  File "fit.py", line 3, in <module>', error)
        rank = "[rank0]: " if place == "master-0" else "[rank1]: "
        logs.append("".join(f"{at}.000000000Z {rank}{line}\n" for line in said).encode())
    return job, pods, logs


def batch_job(name: str, pods: int = 1, gpus: int = 1, *, indexed: bool = False, **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: gpus}}}]}}
    mode = "Indexed" if indexed else "NonIndexed"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "uid": f"job-{name}", "resourceVersion": "1"},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": mode,
            "template": template,
            **spec,
        },
    }


def pod_of(
    job: Object,
    place: str,
    *,
    on: str = "",
    phase: str = "Running",
    gpus: int = 8,
    uid: str = "",
    **status: Any,
) -> Object:
    """Return the pod of a job at `master-0`, `worker-1`, or of a batch Job at an index or any word.

    With a `startTime` its container has run since then, unless `containerStatuses` say otherwise.
    """
    if phase == "Running" and (since := status.get("startTime")):
        runs = {"name": "pytorch", "restartCount": 0, "state": {"running": {"startedAt": since}}}
        status.setdefault("containerStatuses", [runs])
    meta = job["metadata"]
    role, _, index = place.rpartition("-")
    labels = (
        {
            "training.kubeflow.org/job-name": meta["name"],
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": index,
        }
        if job["kind"] == "PyTorchJob"
        else {"batch.kubernetes.io/job-name": meta["name"]}
        | ({"batch.kubernetes.io/job-completion-index": place} if place.isdecimal() else {})
    )
    name = f"{meta['name']}-{place}"
    return {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "uid": uid or f"pod-{name}",
            "resourceVersion": "1",
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": job["apiVersion"],
                    "kind": job["kind"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "pytorch", "resources": {"limits": {GPU: str(gpus)}}}],
        },
        "status": {"phase": phase, **status},
    }


def listed(*items: object) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()


def read_jobs(*jobs: Object) -> list[DeclaredJob]:
    """Read jobs of any kind as the console does."""
    found: list[DeclaredJob] = []
    for kind in KINDS:
        made_as = (kind.resource.kind, kind.resource.api_version)
        mine = [job for job in jobs if (job["kind"], job.get("apiVersion", made_as[1])) == made_as]
        _, parsed, unreadable = JobReader(kind).read_list(listed(*mine))
        assert unreadable == 0
        found.extend(parsed)
    return found


def joined(
    nodes: list[Object], pods: list[Object], jobs: list[Object], **more: Any
) -> tuple[dict[str, NodeRow], dict[str, Job]]:
    node_rows, job_rows = join(
        Reader[Node](Node).read_list(listed(*nodes))[1],
        Reader[Pod](Pod).read_list(listed(*pods))[1],
        read_jobs(*jobs),
        **more,
    )
    return {row.name: row for row in node_rows}, {job.ref.name: job for job in job_rows}


def recorded(name: str) -> list[Object]:
    items: list[Object] = json.loads((RECORDED / f"{name}.json").read_bytes())["items"]
    for item in items:
        if name == "pytorchjobs":
            item.setdefault("kind", "PyTorchJob")
    return items


def merged(obj: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    return {**obj, **{key: merged(obj.get(key) or {}, value) for key, value in patch.items()}}
