"""PyTorchJob, `kubeflow.org/v1`, of Kubeflow's training-operator and the pytorch-operator before it.

Labels, environment and names: kubeflow/trainer v1.9.4, `pkg/controller.v1/pytorch/envvar.go`
and `pkg/controller.v1/common/pod.go`; the older labels: kubeflow/pytorch-operator v0.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from k8s.job_spec import JobSpec
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, ElasticSize, Manifest, Replica
from k8s.kinds.kubeflow.common import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    read_kubeflow_job,
)
from k8s.kinds.kubeflow.pytorch_manifest import MASTER_PORT, PYTORCH_SHAPE, pytorch_manifest, spec_of_pytorch
from k8s.kinds.parse import count_of, nested, ranks_from, replica_count
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.text.numbers import whole_number

PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")

_OLD_JOB_NAME, _OLD_TYPE, _OLD_INDEX = "pytorch-job-name", "pytorch-replica-type", "pytorch-replica-index"
_ROLES = ("Master", "Worker")
Pairs = tuple[tuple[str, str], ...]


_NO_MPI = "A PyTorchJob has no MPI launcher."


class PyTorchJob(CreatableKind):
    """Kubeflow's job for PyTorch: one master, any number of workers."""

    title = "PyTorchJob"
    word = "pytorch"
    aliases = ("pytorchjob",)
    resource = PYTORCH_JOBS
    container = PYTORCH_SHAPE.container
    lacks: Mapping[str, str] = {
        "slots": "A PyTorchJob starts processes by torchrun: say how many as processes.",
        "runtime": NO_RUNTIME,
        "launcher_policy": _NO_MPI,
        "mounts_on_launcher": _NO_MPI,
        "gpu_topology": "Alibaba Cloud's scheduler places MPI jobs by the links between GPUs, no others.",
    }
    suspend_field = "spec.runPolicy.suspend"
    role_names = ("master", "worker")
    operator = "training-operator"

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the PyTorchJob that asks for `spec`; the master is one of its workers."""
        return pytorch_manifest(self.resource, self.supported(spec))

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for a PyTorchJob like this one, and what it leaves out."""
        return spec_of_pytorch(obj)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a PyTorchJob; an elastic one can work with fewer pods than it would like."""
        fewest = count_of(nested(obj, "spec", "elasticPolicy").get("minReplicas"))
        return replace(read_kubeflow_job(obj, self.resource, self.replicas(obj)), enough=fewest)

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the master and the workers that a PyTorchJob asks for."""
        name = str((obj.get("metadata") or {}).get("name", ""))
        spec = obj.get("spec") or {}
        roles = spec.get("pytorchReplicaSpecs") or {}
        counts = {role: replica_count(roles[role].get("replicas")) for role in _ROLES if roles.get(role)}
        has_master = bool(counts.get("Master"))
        per_node = str(spec.get("nprocPerNode") or "auto")
        processes = int(per_node) if per_node.isdecimal() and len(per_node) < 4 else 0
        elastic = spec.get("elasticPolicy") or {}
        proof = "none" if not processes else "declared" if has_master and not elastic else "assumed"
        nodes = sum(counts.values())
        # Thousands of these are held for the large jobs of a large cluster: what is the same for all of
        # a job's pods is made once.
        env = _environment(name, roles, nodes, per_node, processes, has_master)
        env_of_all = tuple({**env, **_rendezvous(name, elastic, nodes)}.items())
        found = []
        for role, count in counts.items():
            kind = role.lower()
            labels: Pairs = ((JOB_NAME, name), (OPERATOR_NAME, "pytorchjob-controller"), (REPLICA_TYPE, kind))
            if role == "Master":
                labels = (*labels, (JOB_ROLE, "master"))
            template = roles[role].get("template") or {}
            restart_policy = roles[role].get("restartPolicy") or "OnFailure"
            before = 1 if has_master and role != "Master" else 0
            for index in range(count):
                node_rank = index + before
                rank = str(node_rank)
                first = node_rank * processes
                found.append(
                    Replica(
                        name=f"{name}-{kind}-{index}",
                        role=kind,
                        index=index,
                        is_chief=node_rank == 0,
                        ranks=ranks_from(first, processes),
                        ranks_proof=proof,
                        template=template,
                        restart_policy=restart_policy,
                        env=(*env_of_all, ("RANK", rank), ("PET_NODE_RANK", rank))
                        if has_master
                        else env_of_all,
                        labels=(*labels, (REPLICA_INDEX, str(index))),
                    )
                )
        return tuple(found)

    def elastic_size(self, obj: Manifest) -> ElasticSize | None:
        """Return how many workers an elastic PyTorchJob asks for; its master, if it has one, stays."""
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

    def pod_selector(self, name: str) -> str:
        """Return the selector that leaves out other operators' jobs of the same name."""
        return f"{JOB_NAME}={name},{OPERATOR_NAME}=pytorchjob-controller"

    def job_of(self, pod: Pod) -> str:
        """Return the PyTorchJob's name, from either operator's labels."""
        if pod.metadata.label(OPERATOR_NAME) == "pytorchjob-controller":
            return pod.metadata.label(JOB_NAME)
        return pod.metadata.label(_OLD_JOB_NAME)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return `master` or `worker`, and the number."""
        role = pod.metadata.label(REPLICA_TYPE) or pod.metadata.label(_OLD_TYPE)
        index = whole_number(pod.metadata.label(REPLICA_INDEX) or pod.metadata.label(_OLD_INDEX))
        return (role, index) if role and index is not None else None


def _rendezvous(name: str, elastic: Manifest, nodes: int) -> dict[str, str]:
    """Return what the operator tells every pod of an elastic job."""
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
    """Return what the operator tells every pod; their ranks come on top where there is a master."""
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
