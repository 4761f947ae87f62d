"""Job, `batch/v1`, of Kubernetes: plain or indexed; and the manifest of one whose pods train together.

No operator connects such pods: each gets its number from the Job, and all find the first pod by a
headless Service. Source: Kubernetes documentation, "Job with Pod-to-Pod Communication".
Labels: kubernetes `pkg/apis/batch/types.go` (`batch.kubernetes.io/job-name` since 1.27, `job-name` before).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from k8s.kinds import building
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, Manifest, Replica
from k8s.kinds.job_set import SET_NAME
from k8s.kinds.kubeflow.kubeflow_job import JOB_NAME
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import JOB_NAME as ARENA_JOB_NAME
from k8s.kinds.kubeflow.mpi_run import OLD_JOB_NAME
from k8s.kinds.parse import (
    count_of,
    make_replica,
    nested,
    outcome_of_conditions,
    read_job,
    read_status,
    replica_count,
    text_of,
)
from k8s.models import Pod
from k8s.models.resources import JOBS, SERVICES, Resource
from k8s.text.sanitize import parse_integer

if TYPE_CHECKING:
    from k8s.kinds.job_spec import JobSpec

INDEX = "batch.kubernetes.io/job-completion-index"
# torch's default port.
_PORT = 29500
_PROCESSES = "PET_NPROC_PER_NODE"
# Backoff limit of a Job that has none.
_RETRIES = 6
# Labels of pods whose Job belongs to a job of another kind.
_OF_ANOTHER = (SET_NAME, JOB_NAME, OLD_JOB_NAME, ARENA_JOB_NAME)
# Backoff limit of a Job that limits failures per index only.
_NO_LIMIT = 2**31 - 1
_NO_MPI = "A Job has no MPI launcher."
_NOT_ELASTIC = "The number of pods of a Job is fixed."


class BatchJob(CreatableKind):
    """Job of Kubernetes: pods that must each succeed."""

    title = "Job"
    word = "job"
    resource = JOBS
    container = "main"
    pod_names = "(-[0-9]+)?"
    lacks: Mapping[str, str] = {
        "roles": "All pods of a Job are alike.",
        "worker_image": "All pods of a Job are alike.",
        "runtime": NO_RUNTIME,
        "clean_pods": "The pods of a Job, and their logs, stay as long as the Job.",
        "slots": _NO_MPI,
        "launcher_policy": _NO_MPI,
        "mounts_on_launcher": _NO_MPI,
        "elastic": _NOT_ELASTIC,
        "gpu_topology": "Alibaba Cloud's scheduler supports GPU topology for MPI jobs only.",
    }
    restart_policies = ("OnFailure", "Never")
    suspend_field = "spec.suspend"
    operator = "job-controller"

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return an indexed Job, so that each pod knows its number."""
        spec = self.supported(spec)
        env = [*_group_env(spec), *building.rendezvous_env(spec, _endpoint(spec))]
        template = building.pod_template(spec, self.container, "job", env=env)
        if spec.workers > 1:
            template["spec"]["subdomain"] = spec.name
        # A new pod leaves the log of the failed one; a restarted container does not.
        template["spec"]["restartPolicy"] = spec.restart_policy or "Never"
        body: Manifest = {
            "completions": spec.workers,
            "parallelism": spec.workers,
            "completionMode": "Indexed",
            "backoffLimit": spec.retries,
            **building.run_limits(spec),
            "template": template,
        }
        return building.job_object(self.resource, building.job_metadata(spec), body)

    def owned_objects(self, spec: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
        """Return the headless Service that gives the first pod a name."""
        return ((SERVICES, headless_service(spec)),) if spec.workers > 1 else ()

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a Job with its conditions and, if indexed, its failed indexes."""
        spec, status = nested(obj, "spec"), nested(obj, "status")
        outcome = outcome_of_conditions(read_status(obj), succeeded="Complete", failed="Failed")
        if failed := text_of(status.get("failedIndexes")):
            outcome = replace(outcome, reason=f"{outcome.reason or 'some failed'}; failed indexes: {failed}")
        job = read_job(
            obj, self.resource, self.replicas(obj), outcome, is_suspended=spec.get("suspend") is True
        )
        limit = count_of(spec.get("backoffLimit"))
        limit = None if limit == _NO_LIMIT else limit
        failures = count_of(status.get("failed")) or 0
        return replace(
            job,
            has_status=True,  # a suspended Job has no status, but Kubernetes has accepted it
            restarts=failures if limit is None else min(failures, limit),
            restarts_allowed=limit,
            # Pods without numbers are interchangeable, so none waits for another.
            min_instances=None if spec.get("completionMode") == "Indexed" else 1,
            progress=_progress(spec, status),
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return as many pods as may run at once, without names: the cluster generates them."""
        spec = nested(obj, "spec")
        name = str(nested(obj, "metadata").get("name", ""))
        template = nested(spec, "template")
        count = replica_count(spec.get("parallelism"))
        completions = count_of(spec.get("completions"))
        count = count if completions is None else min(count, completions)
        is_indexed = spec.get("completionMode") == "Indexed"
        indexes = (
            _current_indexes(count, count if completions is None else completions, nested(obj, "status"))
            if is_indexed
            else list(range(count))
        )
        names = (("batch.kubernetes.io/job-name", name), ("job-name", name))
        return tuple(
            replace(
                make_replica("pod", index, template, is_chief=nth == 0),
                env=(("JOB_COMPLETION_INDEX", str(index)),) if is_indexed else (),
                labels=(*names, (INDEX, str(index))) if is_indexed else names,
            )
            for nth, index in enumerate(indexes)
        )

    def pod_selector(self, name: str) -> str:
        """Return a selector that servers of any version understand."""
        return f"job-name={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the name of the controlling Job, unless that belongs to a job of another kind."""
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job" or owner.api_version not in ("", self.resource.api_version):
            return ""
        return "" if any(pod.metadata.label(key) for key in _OF_ANOTHER) else owner.name

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the completion index; None for a Job that is not indexed."""
        index = parse_integer(pod.metadata.label(INDEX) or pod.metadata.annotation(INDEX))
        return None if index is None else ("pod", index)


def _progress(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    completions, done = (count_of(spec.get("completions")) or 0, count_of(status.get("succeeded")) or 0)
    return f"{done} of {completions} done" if completions > 1 and done else ""


def _current_indexes(count: int, completions: int, status: Mapping[str, Any]) -> list[int]:
    # The lowest indexes that have not ended, else the last that have.
    ended = sorted([*_ranges(status.get("completedIndexes")), *_ranges(status.get("failedIndexes"))])

    def ahead() -> Iterator[int]:
        next_index = 0
        for first, last in ended:
            yield from range(next_index, min(first, completions))
            next_index = max(next_index, last + 1)
        yield from range(next_index, completions)

    found = set(islice(ahead(), count))
    missing = count - len(found)
    found |= set(islice((each for each in range(completions - 1, -1, -1) if each not in found), missing))
    return sorted(found)


def _ranges(text: object) -> Iterator[tuple[int, int]]:
    # `1,3-5` has the ranges (1, 1) and (3, 5).
    for piece in text_of(text).split(","):
        first, _, last = piece.partition("-")
        low, high = parse_integer(first), parse_integer(last or first)
        if low is not None and high is not None:
            yield low, high


def headless_service(spec: JobSpec) -> Manifest:
    """Return the Service that gives each pod of a Job a name, before it is ready."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": spec.name},
            "ports": [{"name": "rendezvous", "port": _PORT}],
        },
    }


def _group_env(spec: JobSpec) -> list[Manifest]:
    # Other kinds have an operator that sets these: the pod's rank, and the address of the first pod.
    number = f"metadata.annotations['{INDEX}']"
    host, port = _host(spec), str(_PORT)
    return [
        building.variable("MASTER_ADDR", host),
        building.variable("MASTER_PORT", port),
        building.variable("WORLD_SIZE", str(spec.workers * spec.processes)),
        building.variable_from_field("RANK", number),
        building.variable("PET_MASTER_ADDR", host),
        building.variable("PET_MASTER_PORT", port),
        building.variable("PET_NNODES", str(spec.workers)),
        building.variable(_PROCESSES, str(spec.processes)),
        building.variable_from_field("PET_NODE_RANK", number),
    ]


def _host(spec: JobSpec) -> str:
    return f"{spec.name}-0.{spec.name}" if spec.workers > 1 else "localhost"


def _endpoint(spec: JobSpec) -> str:
    return f"{_host(spec)}:{_PORT}"
