"""Nodes and jobs of a cluster of make-believe, as JSON."""

from __future__ import annotations

import msgspec

from tests.load.pods import CHANGED, CREATED, GPU, STARTED, JobState, Object, pod_template

GPUS_PER_NODE = 8


def node_json(name: str, number: int) -> bytes:
    """Return a node as its API server would send it: one in a hundred is cordoned or has lost a GPU."""
    healthy = GPUS_PER_NODE - (number % 100 == 17)
    is_cordoned = number % 100 == 42
    quantities = {"cpu": "128", "ephemeral-storage": "3514Gi", "memory": "2014Gi", "pods": "110"}
    capacity = {**quantities, GPU: str(GPUS_PER_NODE), "rdma/hca": "8"}
    pressure = ("MemoryPressure", "DiskPressure", "PIDPressure")
    times = {"lastHeartbeatTime": CHANGED, "lastTransitionTime": CREATED}
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": f"Kubelet{kind}",
            "message": f"{kind} is {status}",
            **times,
        }
        for kind, status in {**dict.fromkeys(pressure, "False"), "Ready": "True"}.items()
    ]
    images = [
        {"names": [f"registry.example.com/train@sha256:{each:064x}"], "sizeBytes": 9_000_000_000 + each}
        for each in range(20)
    ]
    return msgspec.json.encode(
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "uid": f"{number:08x}-0000-4000-8000-000000000000",
                "resourceVersion": "1",
                "creationTimestamp": CREATED,
                "labels": {
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "gpu-pool": "a100",
                    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                    "nvidia.com/gpu.memory": "81920",
                    "topology.kubernetes.io/zone": f"zone-{number % 3}",
                },
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {"podCIDR": f"10.{number % 250}.0.0/24"}
            | ({"unschedulable": True} if is_cordoned else {}),
            "status": {
                "capacity": capacity,
                "allocatable": {**capacity, GPU: str(healthy)},
                "conditions": conditions,
                "addresses": [
                    {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250 + 1}"},
                    {"type": "Hostname", "address": name},
                ],
                "nodeInfo": {
                    **dict.fromkeys(("machineID", "systemUUID", "bootID"), f"{number:032x}"),
                    "kubeProxyVersion": "",
                    "kernelVersion": "6.8.0-generic",
                    "osImage": "Ubuntu 24.04.2 LTS",
                    "containerRuntimeVersion": "containerd://2.1.9",
                    "kubeletVersion": "v1.36.2",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
                "images": images,
            },
        }
    )


def healthy_gpus(number: int) -> int:
    """Return the number of GPUs of a node that pods may use."""
    return GPUS_PER_NODE - (number % 100 == 17)


def job_json(job: JobState) -> bytes:
    """Return a job as its API server would send it."""
    roles = {role: [pod for pod in job.pods if pod.role == role] for role in _roles(job)}
    return msgspec.json.encode(
        {
            "kind": job.kind,
            "apiVersion": job.api_version,
            "metadata": {
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
                "resourceVersion": str(job.version),
                "generation": 1,
                "creationTimestamp": CREATED,
                "labels": {"team": job.namespace},
                "annotations": {"arena.kubeflow.org/username": job.namespace},
            },
            "spec": _job_spec(job, {role: len(pods) for role, pods in roles.items()}),
            "status": _job_status(job),
        }
    )


def _roles(job: JobState) -> list[str]:
    return list(dict.fromkeys(pod.role for pod in job.pods))


def _job_spec(job: JobState, counts: dict[str, int]) -> Object:
    if job.kind == "Job":
        counts = dict.fromkeys(("completions", "parallelism"), len(job.pods))
        how = {"completionMode": "Indexed", "backoffLimit": 6, "suspend": False}
        return {**counts, **how, "template": pod_template(job, job.gpus)}
    replicas = {
        role.capitalize(): {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": pod_template(job, 0 if role == "launcher" else job.gpus),
        }
        for role, count in counts.items()
    }
    policy = {"cleanPodPolicy": "None", "backoffLimit": 3, "suspend": False}
    if job.kind == "MPIJob":
        return {"slotsPerWorker": job.gpus, "runPolicy": policy, "mpiReplicaSpecs": replicas}
    return {"nprocPerNode": str(job.gpus), "runPolicy": policy, "pytorchReplicaSpecs": replicas}


def _job_status(job: JobState) -> Object:
    over = {"Succeeded": "Complete", "Failed": "Failed"} if job.kind == "Job" else {}
    names = [] if job.kind == "Job" else ["Created", "Running"]
    if job.outcome:
        names.append(over.get(job.outcome, job.outcome))
    conditions = [
        {
            "type": name,
            "status": "False" if name == "Running" and job.outcome else "True",
            "reason": f"{job.kind}{name}",
            "message": f"{job.kind} {job.name} is {name.lower()}.",
            **dict.fromkeys(("lastUpdateTime", "lastTransitionTime"), STARTED),
        }
        for name in names
    ]
    ended = {"completionTime": CHANGED} if job.outcome == "Succeeded" else {}
    return {"conditions": conditions, "startTime": STARTED, **ended}
