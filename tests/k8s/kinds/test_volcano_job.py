"""Volcano's Job: tasks, a gang, and phases instead of conditions."""

from __future__ import annotations

import pytest

from k8s.kinds.volcano_job import VolcanoJob
from k8s.status import Status
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects

KIND = VolcanoJob()


def test_its_gang_its_queue_and_its_retries_are_read() -> None:
    job = jobs_in("volcano-running")[0]
    assert (job.queue, job.priority, job.min_instances) == ("research", "high", 2)
    assert (job.restarts, job.restarts_allowed) == (1, 5)
    assert [(each.type, each.status) for each in job.conditions] == [
        ("Pending", "False"),
        ("Running", "True"),
    ]
    assert job.started is not None and job.started.minute == 2


@pytest.mark.parametrize(
    ("phase", "outcome", "is_suspended"),
    [
        ("Pending", None, False),
        ("Running", None, False),
        ("Restarting", None, False),
        ("Completing", None, False),
        ("Aborting", None, True),
        ("Aborted", None, True),
        ("Completed", Status.SUCCEEDED, False),
        ("Failed", Status.FAILED, False),
        ("Terminated", Status.FAILED, False),
    ],
)
def test_its_phase_says_how_it_is(phase: str, outcome: Status | None, is_suspended: bool) -> None:
    obj = objects("volcano-running")[0]
    obj["status"]["state"] |= {"phase": phase, "message": "so it is"}
    job = KIND.parse(obj)
    assert (job.outcome, job.is_suspended) == (outcome, is_suspended)
    assert job.outcome_reason == ("so it is" if outcome else "")
    assert (job.finished is not None) == (outcome is not None)


def test_pods_have_ranks_only_where_the_plug_in_for_pytorch_numbers_them() -> None:
    obj = objects("volcano-running")[0]
    assert [(each.ranks, each.ranks_proof) for each in KIND.replicas(obj)] == [
        ((0,), "assumed"),
        ((1,), "assumed"),
        ((2,), "assumed"),
    ]
    del obj["spec"]["plugins"]
    assert {each.ranks_proof for each in KIND.replicas(obj)} == {"none"}


def test_tasks_without_a_name_or_a_number_are_as_volcano_takes_them() -> None:
    tasks = [{"replicas": 1, "template": {}}, {"name": "idle", "template": {}}]
    found = KIND.replicas({"metadata": {"name": "a"}, "spec": {"tasks": tasks}})
    assert [each.name for each in found] == ["a-default0-0"]
    job = KIND.parse({"metadata": {"name": "a"}, "spec": {"tasks": tasks}})
    assert (job.min_instances, job.restarts_allowed, job.has_status) == (None, 3, False)


def test_a_pod_that_volcano_only_schedules_is_not_of_its_jobs() -> None:
    labels = {"volcano.sh/task-spec": "worker", "volcano.sh/queue-name": "research"}
    assert KIND.job_of(a_pod("bert-worker-0", labels)) == ""
