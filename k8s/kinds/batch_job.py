"""Job, `batch/v1`: Kubernetes' own, plain or indexed.

Labels: kubernetes `pkg/apis/batch/types.go` (`batch.kubernetes.io/job-name` since 1.27, `job-name` before).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from k8s.job_spec import JobSpec
from k8s.kinds.base import NO_RUNTIME, CreatableKind, DeclaredJob, Manifest, Replica
from k8s.kinds.batch_manifest import BATCH_SHAPE, INDEX, batch_manifest, headless_service, spec_of_batch
from k8s.kinds.job_set import SET_NAME
from k8s.kinds.kubeflow.common import JOB_NAME
from k8s.kinds.kubeflow.mpi_job import OLD_JOB_NAME
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import JOB_NAME as ARENA_JOB_NAME
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
from k8s.text.numbers import whole_number

_OF_ANOTHER = (SET_NAME, JOB_NAME, OLD_JOB_NAME, ARENA_JOB_NAME)
"""Labels of a pod whose Job was made for a job of another kind, which they name."""
_NO_LIMIT = 2**31 - 1
"""The backoff limit of a Job that counts failures for each index alone."""
_NO_MPI = "A Job has no MPI launcher."
_NOT_ELASTIC = "A Job has as many pods as it says, from start to end."


class BatchJob(CreatableKind):
    """Kubernetes' own job: some pods that must each succeed."""

    title = "Job"
    word = "job"
    resource = JOBS
    container = BATCH_SHAPE.container
    lacks: Mapping[str, str] = {
        "roles": "All pods of a Job are alike.",
        "worker_image": "All pods of a Job are alike.",
        "runtime": NO_RUNTIME,
        "clean_pods": "The pods of a Job, and their logs, stay as long as the Job.",
        "slots": _NO_MPI,
        "launcher_policy": _NO_MPI,
        "mounts_on_launcher": _NO_MPI,
        "elastic_min": _NOT_ELASTIC,
        "elastic_max": _NOT_ELASTIC,
        "gpu_topology": "Alibaba Cloud's scheduler places MPI jobs by the links between GPUs, no others.",
    }
    restart_policies = ("OnFailure", "Never")
    suspend_field = "spec.suspend"
    operator = "job-controller"

    def manifest(self, spec: JobSpec) -> Manifest:
        """Return the Job that asks for `spec`: indexed, so that each pod knows its number."""
        return batch_manifest(self.resource, self.supported(spec))

    def companions(self, spec: JobSpec) -> tuple[tuple[Resource, Manifest], ...]:
        """Return the headless Service by which its pods find the first of them."""
        return ((SERVICES, headless_service(spec)),) if spec.workers > 1 else ()

    def spec_from_manifest(self, obj: Manifest) -> tuple[JobSpec, tuple[str, ...]]:
        """Return the spec for a Job like this one, and what it leaves out."""
        return spec_of_batch(obj)

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a Job of Kubernetes: its conditions, and of an Indexed one which indexes failed."""
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
            has_status=True,  # Kubernetes runs it: while it may make no pods it only writes no status
            restarts=failures if limit is None else min(failures, limit),
            restarts_allowed=limit,
            # Without numbers the pods are interchangeable, so none can be waiting for another.
            enough=None if spec.get("completionMode") == "Indexed" else 1,
            progress=_progress(spec, status),
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return as many pods as may run at once; their names are made up by the cluster."""
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
        """Return the selector that servers of any age understand."""
        return f"job-name={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the Job's name: that of the pod's controller, unless it works for a job of another kind."""
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job" or owner.api_version not in ("", self.resource.api_version):
            return ""
        return "" if any(pod.metadata.label(key) for key in _OF_ANOTHER) else owner.name

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the completion index; None for a Job that is not indexed."""
        index = whole_number(pod.metadata.label(INDEX) or pod.metadata.annotation(INDEX))
        return None if index is None else ("pod", index)


def _progress(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    completions, done = (
        count_of(spec.get("completions")) or 0,
        count_of(status.get("succeeded")) or 0,
    )
    return f"{done} of {completions} done" if completions > 1 and done else ""


def _current_indexes(count: int, completions: int, status: Mapping[str, Any]) -> list[int]:
    """Return the indexes whose turn it is: the lowest that have not ended, else the last that have."""
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
    """Yield the first and the last index of each range in `1,3-5`."""
    for piece in text_of(text).split(","):
        first, _, last = piece.partition("-")
        low, high = whole_number(first), whole_number(last or first)
        if low is not None and high is not None:
            yield low, high
