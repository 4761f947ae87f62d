"""TrainJob, `trainer.kubeflow.org/v1alpha1`: a JobSet of the same name does its work.

It says what it wants of its nodes; how they come about is its runtime's. Its conditions know only
Suspended, Complete and Failed. Source: kubeflow/trainer v2.3.0, `pkg/apis/trainer/v1alpha1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import CreatableKind, DeclaredJob, Manifest, NeededObject, Replica
from k8s.kinds.job_set import SET_NAME, instance_in_set, read_suspendable
from k8s.kinds.kubeflow.train_manifest import TRAIN_SHAPE, runtime_of, spec_of_train, train_manifest
from k8s.kinds.parse import count_of, make_replica, nested, ranks_from, replica_count, text_of
from k8s.models import Pod
from k8s.models.resources import Resource

TRAIN_JOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")

_INITIALIZERS = (("dataset", "dataset-initializer"), ("model", "model-initializer"))
_METRICS_TOLD = 2


_OF_RUNTIME = "A TrainJob cannot say this: its runtime does, in the ClusterTrainingRuntime."
_NO_FETCHING = "A TrainJob cannot add the container that fetches code: have it in the image or a volume."
_OF_LAUNCHER = "The runtime of a TrainJob says how its launcher comes about."
_NOT_ELASTIC = "A TrainJob has as many nodes as it says, from start to end."


class TrainJob(CreatableKind):
    """Kubeflow Trainer's job: some nodes, each with the same processes."""

    title = "TrainJob"
    word = "trainjob"
    aliases = ("train",)
    resource = TRAIN_JOBS
    container = TRAIN_SHAPE.container
    suspend_field = "spec.suspend"
    operator = "trainer"
    lacks: Mapping[str, str] = {
        **dict.fromkeys(
            ("pull_policy", "device_claim", "priority_class", "scheduler", "host_network", "host_ipc"),
            _OF_RUNTIME,
        ),
        **dict.fromkeys(("host_pid", "retries", "restart_policy", "clean_pods"), _OF_RUNTIME),
        **dict.fromkeys(("sync_mode", "sync_source", "sync_branch", "sync_revision"), _NO_FETCHING),
        **dict.fromkeys(("sync_path", "git_secret", "sync_image"), _NO_FETCHING),
        "roles": "All nodes of a TrainJob are alike.",
        "worker_image": "All nodes of a TrainJob have the same image.",
        "launcher_policy": _OF_LAUNCHER,
        "mounts_on_launcher": _OF_LAUNCHER,
        "elastic_min": _NOT_ELASTIC,
        "elastic_max": _NOT_ELASTIC,
        "gpu_topology": "Alibaba Cloud's scheduler places MPI jobs by the links between GPUs, no others.",
        "kube_queue": "kube-queue knows no TrainJobs; Kueue does.",
        "ttl_s": "A TrainJob is kept until it is deleted.",
    }

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the TrainJob that asks for `spec`; with slots it is one of MPI."""
        return train_manifest(self.resource, self.supported(spec))

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for a TrainJob like this one, and what it leaves out."""
        return spec_of_train(obj)

    def needs(self, spec: JobSpec) -> tuple[NeededObject, ...]:
        """Return its runtime: without one a TrainJob fails."""
        return (NeededObject(*runtime_of(spec), "runtime"),)

    def unsupported(self, spec: JobSpec) -> dict[str, str]:
        """Return what such a job cannot have: all the keys of a Secret at once is one of them."""
        found = super().unsupported(spec)
        if any(not each.name for each in spec.env_from):
            found["env_from"] = "A TrainJob takes single keys: VARIABLE=secret/NAME/KEY."
        return found

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a TrainJob of Kubeflow Trainer v2, and the progress that its trainer reports."""
        job = read_suspendable(obj, self, succeeded="Complete")
        return replace(job, progress=_progress(nested(obj, "status", "trainerStatus")))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the nodes, then the pods that fetch the data and the model before.

        Ranks are assumed: the runtime, of which the job knows only the name, may be one for MPI.
        """
        trainer = nested(obj, "spec", "trainer")
        container = {"name": self.container, "resources": trainer.get("resourcesPerNode")}
        container |= {key: trainer[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
        node: Manifest = {"spec": {"containers": [container]}}
        processes = count_of(trainer.get("numProcPerNode")) or 0
        found = [
            make_replica(
                "node",
                index,
                node,
                is_chief=index == 0,
                ranks=ranks_from(index * processes, processes),
                ranks_proof="assumed",
            )
            for index in range(replica_count(trainer.get("numNodes")))
        ]
        asked = nested(obj, "spec", "initializer")
        found += [make_replica(role, 0, {}) for field, role in _INITIALIZERS if asked.get(field)]
        return tuple(found)

    def pod_selector(self, name: str) -> str:
        """Return the selector of the pods of the JobSet of the same name."""
        return f"{SET_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return nothing: its pods are its JobSet's, and the JobSet says whose it is."""
        return ""

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the group in the JobSet, and the number."""
        return instance_in_set(pod)


def _progress(trainer_status: Mapping[str, Any]) -> str:
    """Return how far the trainer says it is: `61 %, 24 min left, loss 0.31`."""
    found = []
    if (percent := count_of(trainer_status.get("progressPercentage"))) is not None:
        found.append(f"{percent} %")
    if (left_s := count_of(trainer_status.get("estimatedRemainingSeconds"))) is not None:
        found.append(f"{_duration(left_s)} left")
    metrics = [each for each in trainer_status.get("metrics") or () if text_of(each.get("name"))]
    found += [f"{each['name']} {text_of(each.get('value'))}" for each in metrics[:_METRICS_TOLD]]
    return ", ".join(found)


def _duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h {seconds % 3600 // 60} min"
