"""PyTorchJob, `kubeflow.org/v1`, of Kubeflow's training-operator and the pytorch-operator before it.

Labels, environment and names: kubeflow/trainer v1.9.4, `pkg/controller.v1/pytorch/envvar.go`
and `pkg/controller.v1/common/pod.go`; the older labels: kubeflow/pytorch-operator v0.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from k8s.kinds import building
from k8s.kinds import job_spec as job_specs
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, ElasticSize, Manifest, Replica
from k8s.kinds.kubeflow.kubeflow_job import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    OperatorPods,
    read_kubeflow_job,
    replica_specs,
    run_policy_of,
)
from k8s.kinds.parse import count_of, nested, ranks_from, replica_count
from k8s.models.resources import Resource

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

# Default of the operator, unless the master's container has a port `pytorchjob-port`.
MASTER_PORT = 23456
_ROLES = ("Master", "Worker")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")

Pairs = tuple[tuple[str, str], ...]
_NO_MPI = "A PyTorchJob has no MPI launcher."


class PyTorchJob(OperatorPods, CreatableKind):
    """PyTorchJob of Kubeflow: one master, any number of workers."""

    title = "PyTorchJob"
    word = "pytorch"
    aliases = ("pytorchjob",)
    resource = PYTORCH_JOBS
    container = "pytorch"
    lacks: Mapping[str, str] = {
        "slots": "A PyTorchJob starts processes with torchrun: set processes instead.",
        "runtime": NO_RUNTIME,
        "launcher_policy": _NO_MPI,
        "mounts_on_launcher": _NO_MPI,
        "gpu_topology": "Alibaba Cloud's scheduler supports GPU topology for MPI jobs only.",
    }
    suspend_field = "spec.runPolicy.suspend"
    role_names = ("master", "worker")
    operator = "training-operator"
    operator_name = "pytorchjob-controller"
    old_labels = ("pytorch-job-name", "pytorch-replica-type", "pytorch-replica-index")

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the PyTorchJob that requests `spec`.

        The master is one of its workers; an elastic job, which may lose any of its pods, has none.
        """
        spec = self.supported(spec)
        fewest = spec.elastic[0] if spec.elastic is not None else spec.workers
        body: Manifest = {
            "nprocPerNode": str(spec.processes),
            "runPolicy": run_policy_of(spec, spec.clean_pods, fewest),
        }
        if spec.elastic is not None:
            body["elasticPolicy"] = _elastic_policy(spec, *spec.elastic)
            roles = {"Worker": _role(spec, "worker", spec.workers)}
        else:
            roles = {"Master": _role(spec, "master", 1)}
            labels = roles["Master"]["template"]["metadata"]["labels"]
            labels.setdefault(building.MASTER_POD, f"{spec.name}-master-0")
            if spec.workers > 1:
                roles["Worker"] = _role(spec, "worker", spec.workers - 1)
        metadata = building.job_metadata(spec, building.PYTORCH_CHART)
        return building.job_object(self.resource, metadata, {**body, "pytorchReplicaSpecs": roles})

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a PyTorchJob; an elastic one runs with fewer pods than it requests."""
        fewest = count_of(nested(obj, "spec", "elasticPolicy").get("minReplicas"))
        return replace(read_kubeflow_job(obj, self.resource, self.replicas(obj)), min_instances=fewest)

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the master and the workers."""
        name = str((obj.get("metadata") or {}).get("name", ""))
        spec = obj.get("spec") or {}
        roles = replica_specs(obj, "pytorchReplicaSpecs")
        counts = {role: replica_count(roles[role].get("replicas")) for role in _ROLES if roles.get(role)}
        has_master = bool(counts.get("Master"))
        per_node = str(spec.get("nprocPerNode") or "auto")
        processes = int(per_node) if per_node.isdecimal() and len(per_node) < 4 else 0
        elastic = spec.get("elasticPolicy") or {}
        proof = "none" if not processes else "declared" if has_master and not elastic else "assumed"
        nodes = sum(counts.values())
        # A large cluster has thousands of replicas: values common to a job's pods are built once.
        env = _environment(name, roles, nodes, per_node, processes, has_master)
        env_of_all = tuple({**env, **_rendezvous(name, elastic, nodes)}.items())
        found = []
        for role, count in counts.items():
            kind = role.lower()
            labels: Pairs = ((JOB_NAME, name), (OPERATOR_NAME, self.operator_name), (REPLICA_TYPE, kind))
            if role == "Master":
                labels = (*labels, (JOB_ROLE, "master"))
            template = roles[role].get("template") or {}
            restart_policy = roles[role].get("restartPolicy") or "OnFailure"
            before = 1 if has_master and role != "Master" else 0
            for index in range(count):
                node_rank = index + before
                rank = str(node_rank)
                first = node_rank * processes
                own = (("RANK", rank), ("PET_NODE_RANK", rank)) if has_master else ()
                replica = Replica(
                    f"{name}-{kind}-{index}", kind, index, not node_rank, ranks_from(first, processes), proof,
                    template, restart_policy, (*env_of_all, *own), (*labels, (REPLICA_INDEX, str(index))),
                )  # fmt: skip
                found.append(replica)
        return tuple(found)

    def elastic_size(self, obj: Manifest) -> ElasticSize | None:
        """Return the number of workers of an elastic PyTorchJob; a master is not counted."""
        policy = nested(obj, "spec", "elasticPolicy")
        worker = nested(obj, "spec", "pytorchReplicaSpecs", "Worker")
        if not policy or not worker:
            return None
        return ElasticSize(
            "spec.pytorchReplicaSpecs.Worker.replicas",
            replica_count(worker.get("replicas")),
            count_of(policy.get("minReplicas")),
            count_of(policy.get("maxReplicas")),
        )


def _rendezvous(name: str, elastic: Manifest, nodes: int) -> dict[str, str]:
    if not elastic:
        return {}
    backend = str(elastic.get("rdzvBackend") or "")
    host = str(elastic.get("rdzvHost") or f"{name}-worker-0")
    found = {
        "PET_NNODES": f"{elastic.get('minReplicas') or nodes}:{elastic.get('maxReplicas') or nodes}",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ENDPOINT": f"{host}:{elastic.get('rdzvPort') or MASTER_PORT}" if backend else "",
        "PET_RDZV_ID": str(elastic.get("rdzvId") or ""),
        "PET_MAX_RESTARTS": str(elastic.get("maxRestarts") or ""),
    }
    return {key: value for key, value in found.items() if value}


def _environment(
    name: str, roles: Manifest, nodes: int, per_node: str, processes: int, has_master: bool
) -> dict[str, str]:
    env = {"PYTHONUNBUFFERED": "1"}
    if has_master:
        address, port = f"{name}-master-0", str(_master_port(roles["Master"]))
        env |= {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,
            "MASTER_ADDR": address,
            "PET_MASTER_ADDR": address,
            "WORLD_SIZE": str(nodes * max(processes, 1)),
        }
    return {**env, "PET_NPROC_PER_NODE": per_node, "PET_NNODES": str(nodes)}


def _master_port(role: Manifest) -> int:
    for container in ((role.get("template") or {}).get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == "pytorchjob-port" and isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return MASTER_PORT


def _role(spec: JobSpec, name: str, replicas: int) -> Manifest:
    of_role = job_specs.role_spec(spec, name)
    # The operator sets these for elastic jobs.
    env = building.rendezvous_env(spec, f"{spec.name}-master-0:{MASTER_PORT}") if spec.elastic is None else ()
    chart = building.PYTORCH_CHART
    template = building.pod_template(of_role, PyTorchJob.container, "pytorchjob", chart, env=env, job=spec)
    return {"replicas": replicas, "restartPolicy": building.restarts(of_role), "template": template}


def _elastic_policy(spec: JobSpec, least: int, most: int) -> Manifest:
    found: Manifest = {
        "minReplicas": least,
        "maxReplicas": most,
        "rdzvBackend": spec.rdzv_backend or building.DYNAMIC,
    }
    if spec.max_restarts:
        found["maxRestarts"] = spec.max_restarts
    return found
