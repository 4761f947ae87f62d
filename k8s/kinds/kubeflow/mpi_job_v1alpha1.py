"""MPIJob, `kubeflow.org/v1alpha1`, as created by `arena submit mpi`.

The launcher is a batch Job `<job>-launcher`, the workers are a StatefulSet `<job>-worker`; the status
is one word without times. Source: kubeflow/mpi-operator v0.2.3, `pkg/controllers/v1alpha1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from k8s.kinds.base import CreatableKind, DeclaredJob, LabelledPods, Manifest, Replica
from k8s.kinds.kubeflow import mpi_run
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

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

MPI_JOBS_V1ALPHA1 = Resource("kubeflow.org", "v1alpha1", "mpijobs", "MPIJob")

JOB_NAME, ROLE = "mpi_job_name", "mpi_role_type"
_ENDINGS = {"Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED}
# The operator's default for a job that only has a total number of GPUs.
_GPUS_PER_NODE = 8


class MPIJobV1Alpha1(LabelledPods, CreatableKind):
    """MPIJob of Arena: one template, from which the launcher is made too."""

    title = "MPIJob v1alpha1"
    word = "mpi"
    aliases = ("mpijob",)
    resource = MPI_JOBS_V1ALPHA1
    container = mpi_run.MPI_CONTAINER
    pod_names = mpi_run.MPI_PODS
    launcher = "mpirun"
    suspend_field = ""
    job_label = JOB_NAME
    operator = "mpi-operator"
    lacks: Mapping[str, str] = {
        **mpi_run.NOT_OF_MPI,
        "queue": "Kueue admits MPIJobs of version v2beta1 only.",
        "roles": "An MPIJob v1alpha1 has one template, from which launcher and workers are made.",
        "worker_image": "An MPIJob v1alpha1 has one template, from which launcher and workers are made.",
        "device_claim": "An MPIJob v1alpha1 does not support device claims.",
        "slots": "The operator of v1alpha1 counts a worker's GPUs as its slots.",
        "launcher_policy": "The operator of v1alpha1 creates the launcher when the workers are ready.",
        "running_timeout_s": "An MPIJob v1alpha1 has no time limit.",
        "ttl_s": "An MPIJob v1alpha1 is kept until it is deleted.",
        "suspend": "An MPIJob v1alpha1 cannot be suspended.",
    }
    restart_policies = ("OnFailure", "Never")

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the MPIJob v1alpha1 that requests `spec`, as `arena submit mpi` creates it."""
        spec = self.supported(spec)
        template = mpi_run.mpi_template(spec, is_launcher=True)
        template["spec"]["restartPolicy"] = spec.restart_policy or "Never"
        body = {
            "cleanPodPolicy": mpi_run.clean_pods(spec),
            "launcherResources": {},
            "backoffLimit": spec.retries,
            "replicas": spec.workers,
            "mountsOnLauncher": spec.mounts_on_launcher,
            "template": template,
        }
        return mpi_run.mpi_object(self.resource, spec, body)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read an MPIJob v1alpha1, which has no conditions, only `launcherStatus`."""
        status = nested(obj, "status")
        outcome = _ENDINGS.get(text_of(status.get("launcherStatus")))
        finished = time_of(status.get("completionTime"))
        job = read_job(obj, self.resource, self.replicas(obj), JobOutcome(outcome, finished=finished))
        return replace(job, restarts_allowed=count_of(nested(obj, "spec").get("backoffLimit")))

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the launcher, which requests `launcherResources` only, and the workers."""
        spec = nested(obj, "spec")
        name = nested(obj, "metadata").get("name")
        workers, template = _workers(spec)
        launcher = _requesting(template, spec.get("launcherResources") or {})
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

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the launcher, or a worker and its number in the StatefulSet."""
        return mpi_run.launcher_or_worker(pod, pod.metadata.label(JOB_NAME), pod.metadata.label(ROLE))

    def run_of(self, obj: Manifest) -> mpi_run.MPIRun:
        """Return the pods and rules that Arena's operator makes of an MPIJob v1alpha1."""
        spec, name = nested(obj, "spec"), str(nested(obj, "metadata")["name"])
        launcher, *workers = self.replicas(obj)
        slots = _slots(spec, workers)
        files = {
            "hostfile": mpi_run.hostfile([each.name for each in workers], slots),
            "kubexec.sh": mpi_run.KUBEXEC,
        }
        return mpi_run.MPIRun(
            (_launcher(name, launcher), *(_worker(name, each) for each in workers)),
            mpi_run.config_map(f"{name}-config", {"app": name}, files),
            slots,
            text_of(spec.get("cleanPodPolicy")) or "All",
            waits_for_workers=True,
            replaces_workers=True,
            has_conditions=False,
        )


def _labels(name: str, role: str) -> mpi_run.Named:
    return (("group_name", "kubeflow.org"), (JOB_NAME, name), (ROLE, role))


def _worker(job: str, worker: Replica) -> Replica:
    # It sleeps: the command is the launcher's.
    spec = mpi_run.with_container(worker.template, mount=True, command=["sleep"], args=["365d"])
    spec = mpi_run.with_config(spec, f"{job}-config", {"kubexec.sh": 0o555})
    spec |= {"hostname": worker.name, "subdomain": f"{job}-worker"}
    return replace(worker, template={**worker.template, "spec": spec}, labels=_labels(job, "worker"))


def _launcher(job: str, launcher: Replica) -> Replica:
    spec = mpi_run.with_container(launcher.template, env=mpi_run.KUBEXEC_ENV, mount=True)
    return replace(
        launcher,
        name=f"{job}-launcher",
        template={
            **launcher.template,
            "spec": mpi_run.with_config(spec, f"{job}-config", {"kubexec.sh": 0o555, "hostfile": 0o444}),
        },
        labels=_labels(job, "launcher"),
        restart_policy="Never" if launcher.restart_policy == "Never" else "OnFailure",
    )


def _slots(spec: Mapping[str, Any], workers: Sequence[Replica]) -> int:
    slots = count_of(spec.get("slotsPerWorker"))
    if slots is not None or not workers:
        return slots or 1
    kind = "cpu" if spec.get("processingResourceType") == "cpu" else "nvidia.com/gpu"
    containers: Sequence[Mapping[str, Any]] = nested(workers[0].template, "spec").get("containers") or ({},)
    limit = str(nested(containers[0], "resources", "limits").get(kind, ""))
    return int(limit) if limit.isdecimal() and int(limit) else 1


def _workers(spec: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    # A job has a number of workers, or a total of GPUs (later called processing units).
    template = nested(spec, "template")
    for total_field, each_field in (("gpus", "gpusPerNode"), ("processingUnits", "processingUnitsPerNode")):
        if total := count_of(spec.get(total_field)):
            each = min(total, count_of(spec.get(each_field)) or _GPUS_PER_NODE)
            kind = "cpu" if spec.get("processingResourceType") == "cpu" else "nvidia.com/gpu"
            return replica_count(-(-total // each)), _requesting(template, {"limits": {kind: each}})
    return replica_count(spec.get("replicas")), template


def _requesting(template: Mapping[str, Any], resources: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = nested(template, "spec")
    first, *others = spec.get("containers") or ({},)
    return {**template, "spec": {**spec, "containers": [{**first, "resources": resources}, *others]}}
