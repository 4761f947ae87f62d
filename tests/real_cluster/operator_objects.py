"""Jobs and their pods as each operator makes them: this cluster runs no operator, so the tests do its part.

Labels and owners: kubeflow/trainer v1.9.4 and v2.3.0, kubeflow/mpi-operator v0.8.0,
kubernetes-sigs/jobset v0.12.0.
"""

from __future__ import annotations

from typing import Any

from k8s.client.client import Client
from k8s.kinds.job_set import JOB_SETS
from k8s.kinds.kubeflow.mpi_job import MPI_JOBS
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.kinds.kubeflow.train_job import TRAIN_JOBS
from k8s.models.resources import JOBS, PODS, Resource
from tests.support.objects import GPU
from tests.support.real_cluster import BUSYBOX

Object = dict[str, Any]
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")


def container(name: str, gpus: int, command: str = "sleep 600") -> Object:
    asked = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    return {"name": name, "command": ["sh", "-c", f"trap exit TERM; {command} & wait"], **BUSYBOX, **asked}


def pod_spec(name: str, gpus: int, command: str = "sleep 600") -> Object:
    """Return a pod's spec that ends within a second of being deleted."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container(name, gpus, command)],
    }


def template(name: str, gpus: int, labels: dict[str, str] | None = None) -> Object:
    return {"metadata": {"labels": labels or {}}, "spec": pod_spec(name, gpus)}


async def make(client: Client, resource: Resource, name: str, spec: Object, **meta: Any) -> Object:
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **meta},
        "spec": spec,
    }
    return await client.create(resource, body, client.config.namespace)


def owned_by(owner: Object) -> list[Object]:
    meta = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


async def make_pod(
    client: Client, owner: Object, name: str, labels: dict[str, str], gpus: int, container_name: str = "main"
) -> Object:
    return await make(
        client, PODS, name, pod_spec(container_name, gpus), labels=labels, ownerReferences=owned_by(owner)
    )


async def pytorch_job(client: Client, name: str, workers: int, gpus: int) -> Object:
    roles: Object = {"Master": {"replicas": 1, "template": template("pytorch", gpus)}}
    places = [("master", 0)]
    if workers > 1:
        roles["Worker"] = {"replicas": workers - 1, "template": template("pytorch", gpus)}
        places += [("worker", index) for index in range(workers - 1)]
    job = await make(client, PYTORCH_JOBS, name, {"nprocPerNode": "1", "pytorchReplicaSpecs": roles})
    for role, index in places:
        labels = {
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": str(index),
        }
        await make_pod(client, job, f"{name}-{role}-{index}", labels, gpus, "pytorch")
    return job


async def mpi_job(client: Client, name: str, workers: int, gpus: int) -> Object:
    """Make an MPIJob v2beta1: worker pods, and a Job whose pod is the launcher."""
    roles = {
        "Launcher": {"replicas": 1, "template": template("mpi", 0)},
        "Worker": {"replicas": workers, "template": template("mpi", gpus)},
    }
    job = await make(client, MPI_JOBS, name, {"slotsPerWorker": gpus, "mpiReplicaSpecs": roles})
    common = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/operator-name": "mpi-operator"}
    for index in range(workers):
        labels = {
            **common,
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-index": str(index),
        }
        await make_pod(client, job, f"{name}-worker-{index}", labels, gpus, "mpi")
    launcher = template("mpi", 0, {**common, "training.kubeflow.org/job-role": "launcher"})
    await make(
        client, JOBS, f"{name}-launcher", {"template": launcher}, labels=common, ownerReferences=owned_by(job)
    )
    return job


async def job_set(
    client: Client, name: str, pods: int, gpus: int, role: str = "node", owner: Object | None = None
) -> Object:
    """Make a JobSet of one replicated Job, and that Job; Kubernetes makes its pods."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    job_spec = {"parallelism": pods, "completions": pods, "template": template("main", gpus, labels)}
    owners = {"ownerReferences": owned_by(owner)} if owner else {}
    spec = {"replicatedJobs": [{"name": role, "replicas": 1, "template": {"spec": job_spec}}]}
    found = await make(client, JOB_SETS, name, spec, **owners)
    await make(client, JOBS, f"{name}-{role}-0", job_spec, labels=labels, ownerReferences=owned_by(found))
    return found


async def train_job(client: Client, name: str, nodes: int, gpus: int) -> Object:
    """Make a TrainJob and the JobSet below it."""
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": nodes, "resourcesPerNode": {"limits": {GPU: str(gpus)}}},
    }
    job = await make(client, TRAIN_JOBS, name, spec)
    await job_set(client, name, nodes, gpus, owner=job)
    return job
