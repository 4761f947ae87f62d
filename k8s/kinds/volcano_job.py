"""Job, `batch.volcano.sh/v1alpha1`, of Volcano: tasks of any number, scheduled as a gang.

Labels, names and phases: volcano-sh/volcano v1.15.1, `pkg/controllers/job/job_controller_util.go` and
`batch/v1alpha1/job.go`. Older versions have no `task-index` label, so the name's end is read too.
"""

from __future__ import annotations

from dataclasses import replace

from k8s.kinds.base import DeclaredJob, Manifest, Replica
from k8s.kinds.parse import Ending, declared, moment, number, part, place, pods_asked, whole, words
from k8s.models import Condition, Pod
from k8s.models.resources import VOLCANO_JOBS
from k8s.status import Status

JOB_NAME = "volcano.sh/job-name"
TASK = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
_ENDINGS = {
    "Completed": Status.SUCCEEDED,
    "Failed": Status.FAILED,
    "Terminated": Status.FAILED,
}
_STOPPED = ("Aborting", "Aborted")
"""Phases of a job that somebody, or a policy, has stopped; it can be resumed."""
_MAX_RETRY = 3
"""Of a job that names none."""


class VolcanoJob:
    """Volcano's job."""

    title = "Volcano Job"
    resource = VOLCANO_JOBS
    container = ""
    suspend_field = ""

    def parse(self, obj: Manifest) -> DeclaredJob:
        """Read a Job; what it calls conditions are the phases it has gone through."""
        spec, status = part(obj, "spec"), part(obj, "status")
        state = part(status, "state")
        phase = words(state.get("phase"))
        outcome = _ENDINGS.get(phase)
        at = moment(state.get("lastTransitionTime"))
        reason = words(state.get("message")) or words(state.get("reason"))
        job = declared(
            obj,
            self.resource,
            self.replicas(obj),
            Ending(outcome, reason or phase, at) if outcome else Ending(),
            is_suspended=phase in _STOPPED,
            queue=words(spec.get("queue")),
            priority=words(spec.get("priorityClassName")),
        )
        phases = {found.status: found.last_transition_time for found in job.conditions}
        retries = whole(spec.get("maxRetry"))
        return replace(
            job,
            conditions=tuple(
                Condition(type=each, status=str(each == phase), last_transition_time=since)
                for each, since in phases.items()
            ),
            started=phases.get("Running") or (at if phase == "Running" else None),
            enough=whole(spec.get("minAvailable")) or None,
            restarts=whole(status.get("retryCount")) or 0,
            restarts_allowed=_MAX_RETRY if retries is None else retries,
        )

    def replicas(self, obj: Manifest) -> tuple[Replica, ...]:
        """Return the pods of all tasks in their order.

        With the plug-in for PyTorch the operator numbers them in this order; how many
        processes each starts is not said, so that is assumed to be one.
        """
        name = part(obj, "metadata").get("name")
        spec = part(obj, "spec")
        has_ranks = "pytorch" in part(spec, "plugins")
        found: list[Replica] = []
        for number_of_task, task in enumerate(spec.get("tasks") or ()):
            role = words(task.get("name")) or f"default{number_of_task}"
            template = part(task, "template")
            for index in range(pods_asked(task.get("replicas"), default=0)):
                found.append(
                    place(
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

    def pod_selector(self, name: str) -> str:
        """Return the selector of a job's pods."""
        return f"{JOB_NAME}={name}"

    def job_of(self, pod: Pod) -> str:
        """Return the Job's name."""
        return pod.metadata.label(JOB_NAME)

    def instance_of(self, pod: Pod) -> tuple[str, int] | None:
        """Return the task and the number in it."""
        meta = pod.metadata
        task = meta.label(TASK) or meta.annotation(TASK)
        index = number(meta.label(TASK_INDEX) or meta.name.removeprefix(f"{meta.label(JOB_NAME)}-{task}-"))
        return (task, index) if task and index is not None else None
