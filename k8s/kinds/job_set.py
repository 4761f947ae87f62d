"""JobSet, `jobset.x-k8s.io/v1alpha2`: groups of batch Jobs that start, fail and restart together.

Labels and names: kubernetes-sigs/jobset v0.12.0, `api/jobset/v1alpha2/jobset_types.go` and
`pkg/controllers/jobset_controller.go`. A restart creates all pods again, under new names but with the
same labels, except `restart-attempt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from k8s.kinds.base import MOST_REPLICAS, DeclaredJob, JobKind, LabelledPods, Manifest, Replica
from k8s.kinds.parse import (
    count_of,
    make_replica,
    nested,
    outcome_of_conditions,
    read_job,
    read_status,
    replica_count,
)
from k8s.models import Pod
from k8s.models.resources import Resource
from k8s.text.sanitize import parse_integer

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")

SET_NAME = "jobset.sigs.k8s.io/jobset-name"
GROUP = "jobset.sigs.k8s.io/replicatedjob-name"
GROUP_SIZE = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
POD_INDEX = "batch.kubernetes.io/job-completion-index"


class JobSet(LabelledPods):
    """Several Jobs as one, `spec.replicatedJobs`; the role of a pod is its Job's name."""

    title = "JobSet"
    resource = JOB_SETS
    container = ""
    pod_names = "-[a-z0-9-]+-[0-9]+-[0-9]+"
    suspend_field = "spec.suspend"
    job_label = SET_NAME

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a JobSet; without a failure policy the first failure is final."""
        spec, status = nested(obj, "spec"), nested(obj, "status")
        job = read_suspendable(obj, self, succeeded="Completed")
        return replace(
            job,
            # With the strategy InPlaceRestart, attempts are counted beside the restarts with new pods.
            restarts=max(
                count_of(status.get("restarts")) or 0,
                count_of(status.get("currentInPlaceRestartAttempt")) or 0,
            ),
            counts_pod_restarts=False,
            restarts_allowed=count_of(nested(spec, "failurePolicy").get("maxRestarts")) or 0,
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of all Jobs; a role is a group, or one Job of a group of several."""
        chief = _chief(obj)
        return tuple(
            make_replica(role, index, template, is_chief=(group, job, index) == chief)
            for group, job, role, index, template in islice(_places(obj), MOST_REPLICAS)
        )

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the group, or the Job in it, and the completion index."""
        return instance_in_set(pod)


def read_suspendable(obj: Manifest, kind: JobKind, *, succeeded: str) -> DeclaredJob:
    """Read a job without start time: it started when it was resumed or else created."""
    status = read_status(obj)
    is_suspended = nested(obj, "spec").get("suspend") is True
    outcome = outcome_of_conditions(status, succeeded=succeeded, failed="Failed")
    job = read_job(obj, kind.resource, kind.replicas(obj), outcome, is_suspended=is_suspended)
    if is_suspended or not job.has_status:
        return job
    resumed = {found.type: found.last_transition_time for found in job.conditions if found.status == "False"}
    return replace(job, started=resumed.get("Suspended") or job.meta.creation_timestamp)


def instance_in_set(pod: Pod) -> tuple[str, int] | None:
    """Return the role and index of a JobSet's pod, from labels or, on old servers, annotations."""

    def label(key: str) -> str:
        return pod.metadata.label(key) or pod.metadata.annotation(key)

    group, index = label(GROUP), parse_integer(label(POD_INDEX))
    if not group or index is None:
        return None
    return (group if label(GROUP_SIZE) in ("", "1") else f"{group}-{label(JOB_INDEX)}"), index


def _places(obj: Manifest) -> Iterator[tuple[str, int, str, int, Mapping[str, Any]]]:
    # Yields group, number of the Job in it, role, index of the pod, and template.
    for group in nested(obj, "spec").get("replicatedJobs") or ():
        name, jobs = str(group.get("name")), replica_count(group.get("replicas"))
        spec = nested(group, "template", "spec")
        template = nested(spec, "template")
        pods = replica_count(spec.get("parallelism"))
        pods = min(pods, replica_count(spec.get("completions"), pods))
        for job in range(jobs):
            for index in range(pods):
                yield name, job, name if jobs == 1 else f"{name}-{job}", index, template


def _chief(obj: Manifest) -> tuple[str, int, int]:
    # The coordinator, else the first pod of the first group that does not only prepare.
    spec = nested(obj, "spec")
    if named := nested(spec, "coordinator"):
        return (
            str(named.get("replicatedJob")),
            count_of(named.get("jobIndex")) or 0,
            count_of(named.get("podIndex")) or 0,
        )
    groups = spec.get("replicatedJobs") or ()
    preparing = {
        before.get("name")
        for group in groups
        for before in group.get("dependsOn") or ()
        if before.get("status") == "Complete"
    }
    names = [str(group.get("name")) for group in groups if group.get("name") not in preparing]
    return (names[0] if names else ""), 0, 0
