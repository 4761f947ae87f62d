"""MPIJob, `kubeflow.org/v1alpha1`, which `arena submit mpi` makes.

The launcher is a batch Job `<job>-launcher`, the workers a StatefulSet `<job>-worker`; the status
is one word and has no times. Source: kubeflow/mpi-operator v0.2.3, `pkg/controllers/v1alpha1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import CreatableKind, DeclaredJob, Manifest, Replica
from k8s.kinds.kubeflow.mpi_job import launcher_or_worker
from k8s.kinds.kubeflow.mpi_manifest import (
    MPI_SHAPE,
    NOT_OF_MPI,
    arena_mpi_manifest,
    spec_of_arena_mpi,
)
from k8s.kinds.kubeflow.mpi_run import (
    KUBEXEC,
    KUBEXEC_ENV,
    MPIRun,
    config_map,
    hostfile,
    launcher_job,
    pod_metadata,
    with_config,
    with_container,
)
from k8s.kinds.parse import (
    JobOutcome,
    count_of,
    make_replica,
    nested,
    read_job,
    replica_count,
    text_of,
    time_of,
)
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.status import Status

MPI_JOBS_V1ALPHA1 = Resource("kubeflow.org", "v1alpha1", "mpijobs", "MPIJob")

JOB_NAME, ROLE = "mpi_job_name", "mpi_role_type"
_ENDINGS = {"Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED}
_GPUS_PER_NODE = 8
"""What the operator puts on one worker of a job that says only how many GPUs it wants in all."""


class MPIJobV1Alpha1(CreatableKind):
    """Arena's job for MPI: one template, from which the launcher is made too."""

    title = "MPIJob v1alpha1"
    word = "mpi"
    aliases = ("mpijob",)
    resource = MPI_JOBS_V1ALPHA1
    container = MPI_SHAPE.container
    launcher = "mpirun"
    suspend_field = ""
    operator = "mpi-operator"
    lacks: Mapping[str, str] = {
        **NOT_OF_MPI,
        "queue": "Kueue admits MPIJobs of version v2beta1 only.",
        "roles": "An MPIJob v1alpha1 has one template, from which launcher and workers are made.",
        "worker_image": "An MPIJob v1alpha1 has one template, from which launcher and workers are made.",
        "device_claim": "An MPIJob v1alpha1 knows no claims of devices.",
        "slots": "The operator of v1alpha1 counts a worker's GPUs as its slots.",
        "launcher_policy": "The operator of v1alpha1 creates the launcher when the workers are ready.",
        "running_timeout_s": "An MPIJob v1alpha1 has no time limit.",
        "ttl_s": "An MPIJob v1alpha1 is kept until it is deleted.",
        "suspend": "An MPIJob v1alpha1 cannot be suspended.",
    }
    restart_policies = ("OnFailure", "Never")

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the MPIJob v1alpha1 that asks for `spec`, as `arena submit mpi` makes it."""
        return arena_mpi_manifest(self.resource, self.supported(spec))

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for an MPIJob like this one, and what it leaves out."""
        return spec_of_arena_mpi(obj)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an MPIJob v1alpha1, which has no conditions: only `launcherStatus` tells how it ended."""
        status = nested(obj, "status")
        outcome = _ENDINGS.get(text_of(status.get("launcherStatus")))
        finished = time_of(status.get("completionTime"))
        job = read_job(obj, self.resource, self.replicas(obj), JobOutcome(outcome, finished=finished))
        return replace(job, restarts_allowed=count_of(nested(obj, "spec").get("backoffLimit")))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, which asks for `launcherResources` only, and the workers."""
        spec = nested(obj, "spec")
        name = nested(obj, "metadata").get("name")
        workers, template = _workers(spec)
        launcher = _asking_for(template, spec.get("launcherResources") or {})
        policy = nested(template, "spec").get("restartPolicy")
        return (
            make_replica("launcher", 0, launcher, is_chief=True, restart_policy=policy),
            *(
                make_replica(
                    "worker", index, template, name=f"{name}-worker-{index}", restart_policy="Always"
                )
                for index in range(workers)
            ),
        )

    def pod_selector(self, name: str) -> str:
        """Return the selector by the job's name, the only label that this operator writes."""
        return f"{JOB_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the MPIJob's name."""
        return pod.metadata.label(JOB_NAME)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the launcher, or a worker and its number in the StatefulSet."""
        return launcher_or_worker(pod, pod.metadata.label(JOB_NAME), pod.metadata.label(ROLE))

    def run_of(self, obj: Manifest) -> MPIRun:
        """Return what Arena's operator makes of an MPIJob v1alpha1, and of its StatefulSet."""
        spec, name = nested(obj, "spec"), str(nested(obj, "metadata")["name"])
        launcher, *workers = self.replicas(obj)
        slots = _slots(spec, workers)
        files = {
            "hostfile": hostfile([each.name for each in workers], slots),
            "kubexec.sh": KUBEXEC,
        }
        template = _launcher(name, launcher)
        return MPIRun(
            tuple(_worker(name, each) for each in workers),
            launcher_job(f"{name}-launcher", template["metadata"]["labels"], template, spec),
            config_map(f"{name}-config", {"app": name}, files),
            None,
            slots,
            text_of(spec.get("cleanPodPolicy")) or "All",
            waits_for_workers=True,
            replaces_workers=True,
            has_conditions=False,
        )


def _labels(name: str, role: str) -> dict[str, str]:
    return {"group_name": "kubeflow.org", JOB_NAME: name, ROLE: role}


def _worker(job: str, worker: Replica) -> Manifest:
    """Return a worker, which sleeps; its own command is the launcher's."""
    spec = with_container(worker.template, mount=True, command=["sleep"], args=["365d"])
    spec = with_config(spec, f"{job}-config", {"kubexec.sh": 0o555})
    spec |= {"restartPolicy": "Always", "hostname": worker.name, "subdomain": f"{job}-worker"}
    meta = pod_metadata(worker.template, _labels(job, "worker"))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": worker.name, **meta}, "spec": spec}


def _launcher(job: str, launcher: Replica) -> Manifest:
    """Return the template of the launcher's pods, which `replicas` has asking for `launcherResources`."""
    spec = with_container(launcher.template, env=KUBEXEC_ENV, mount=True)
    spec = with_config(spec, f"{job}-config", {"kubexec.sh": 0o555, "hostfile": 0o444})
    spec["restartPolicy"] = "Never" if launcher.restart_policy == "Never" else "OnFailure"
    return {"metadata": pod_metadata(launcher.template, _labels(job, "launcher")), "spec": spec}


def _slots(spec: Mapping[str, Any], workers: Sequence[Replica]) -> int:
    """Return how many ranks a worker takes: as it is told, else one for each of its GPUs."""
    asked = count_of(spec.get("slotsPerWorker"))
    if asked is not None or not workers:
        return asked or 1
    kind = "cpu" if spec.get("processingResourceType") == "cpu" else "nvidia.com/gpu"
    containers: Sequence[Mapping[str, Any]] = nested(workers[0].template, "spec").get("containers") or ({},)
    limit = str(nested(containers[0], "resources", "limits").get(kind, ""))
    return int(limit) if limit.isdecimal() and int(limit) else 1


def _workers(spec: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    """Return how many workers there are, and their template.

    A job says how many workers it wants, or how many GPUs (later called processing units) in all.
    """
    template = nested(spec, "template")
    for total_field, each_field in (
        ("gpus", "gpusPerNode"),
        ("processingUnits", "processingUnitsPerNode"),
    ):
        if total := count_of(spec.get(total_field)):
            each = min(total, count_of(spec.get(each_field)) or _GPUS_PER_NODE)
            kind = "cpu" if spec.get("processingResourceType") == "cpu" else "nvidia.com/gpu"
            return replica_count(-(-total // each)), _asking_for(template, {"limits": {kind: each}})
    return replica_count(spec.get("replicas")), template


def _asking_for(template: Mapping[str, Any], resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a template whose first container asks for something else."""
    spec = nested(template, "spec")
    first, *others = spec.get("containers") or ({},)
    return {**template, "spec": {**spec, "containers": [{**first, "resources": resources}, *others]}}
