"""Job, `batch.volcano.sh/v1alpha1`, of Volcano: tasks of any number, scheduled as a gang.

Labels, names and phases: volcano-sh/volcano v1.15.1, `pkg/controllers/job/job_controller_util.go` and
`batch/v1alpha1/job.go`.
"""

from __future__ import annotations

from msgspec.structs import replace

from k8s.kinds.base import DeclaredJob, LabelledPods, Manifest, Replica
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
from k8s.models import Condition, Pod
from k8s.models.resources import Resource
from k8s.status import Status
from k8s.text.sanitize import parse_integer

VOLCANO_JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")

JOB_NAME = "volcano.sh/job-name"
TASK = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
_ENDINGS = {"Completed": Status.SUCCEEDED, "Failed": Status.FAILED, "Terminated": Status.FAILED}
# A job stopped by a user or a policy can be resumed.
_STOPPED = ("Aborting", "Aborted")
_MAX_RETRY = 3


class VolcanoJob(LabelledPods):
    """Job of tasks, which are groups of equal pods; a task is a role."""

    title = "Volcano Job"
    aliases = ("vcjob",)
    resource = VOLCANO_JOBS
    container = ""
    pod_names = "-[a-z0-9]+-[0-9]+"  # batch/v1 has a kind Job, too, so its names stay apart
    suspend_field = ""
    job_label = JOB_NAME

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a Job; what it calls conditions are its past phases."""
        spec, status = nested(obj, "spec"), nested(obj, "status")
        state = nested(status, "state")
        phase = text_of(state.get("phase"))
        outcome = _ENDINGS.get(phase)
        at = time_of(state.get("lastTransitionTime"))
        reason = text_of(state.get("message")) or text_of(state.get("reason"))
        job = read_job(
            obj,
            self.resource,
            self.replicas(obj),
            JobOutcome(outcome, reason or phase, at) if outcome else JobOutcome(),
            is_suspended=phase in _STOPPED,
            queue=text_of(spec.get("queue")),
            priority=text_of(spec.get("priorityClassName")),
        )
        phases = {found.status: found.last_transition_time for found in job.conditions}
        retries = count_of(spec.get("maxRetry"))
        return replace(
            job,
            conditions=tuple(
                Condition(type=each, status=str(each == phase), last_transition_time=since)
                for each, since in phases.items()
            ),
            started=phases.get("Running") or (at if phase == "Running" else None),
            min_instances=count_of(spec.get("minAvailable")) or None,
            restarts=count_of(status.get("retryCount")) or 0,
            restarts_allowed=_MAX_RETRY if retries is None else retries,
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of all tasks in order.

        With the PyTorch plug-in the operator numbers them in this order; the number of processes is
        unknown and assumed to be one.
        """
        name = nested(obj, "metadata").get("name")
        spec = nested(obj, "spec")
        has_ranks = "pytorch" in nested(spec, "plugins")
        found: list[Replica] = []
        for number_of_task, task in enumerate(spec.get("tasks") or ()):
            role = text_of(task.get("name")) or f"default{number_of_task}"
            template = nested(task, "template")
            for index in range(replica_count(task.get("replicas"), default=0)):
                found.append(
                    make_replica(
                        role,
                        index,
                        template,
                        name=f"{name}-{role}-{index}",
                        is_chief=not found,
                        ranks=(len(found),) if has_ranks else (),
                        ranks_proof="assumed",
                    )
                )
        return tuple(found)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the task, from label or annotation, and the number."""
        meta = pod.metadata
        task = meta.label(TASK) or meta.annotation(TASK)
        index = parse_integer(
            meta.label(TASK_INDEX) or meta.name.removeprefix(f"{meta.label(JOB_NAME)}-{task}-")
        )
        return (task, index) if task and index is not None else None
