"""TrainJobs and JobSets: work done by batch Jobs, and what little their conditions tell."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.kinds.job_set import JobSet
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.status import Status
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects

TRAIN, SET = TrainJob(), JobSet()
SUSPENDED = {"type": "Suspended", "lastTransitionTime": "2026-11-20T12:00:00Z"}


def train_job(**status: Any) -> dict[str, Any]:
    """Return a TrainJob with this status."""
    return {**objects("trainjob-restarted")[0], "status": status}


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([{**SUSPENDED, "status": "False", "reason": "Resumed"}], None),
        ([{"type": "Complete", "status": "True"}, {**SUSPENDED, "status": "False"}], Status.SUCCEEDED),
        ([{"type": "Failed", "status": "True"}, {"type": "Complete", "status": "False"}], Status.FAILED),
    ],
)
def test_a_train_job_ends_only_when_it_says_so(
    conditions: list[dict[str, Any]], outcome: Status | None
) -> None:
    job = TRAIN.parse(train_job(conditions=conditions))
    assert (job.outcome, job.is_suspended) == (outcome, False)


def test_a_train_job_began_when_it_was_resumed_or_made_but_not_while_it_is_suspended() -> None:
    resumed = TRAIN.parse(train_job(conditions=[{**SUSPENDED, "status": "False"}]))
    assert resumed.started is not None and resumed.started.hour == 12
    plain = TRAIN.parse(train_job(jobsStatus=[]))
    assert plain.started == plain.meta.creation_timestamp
    assert TRAIN.parse(train_job()).started is None
    asleep = train_job(conditions=[{**SUSPENDED, "status": "True"}])
    asleep["spec"]["suspend"] = True
    assert (TRAIN.parse(asleep).started, TRAIN.parse(asleep).is_suspended) == (None, True)


def test_a_train_job_waits_in_its_queue_and_asks_for_its_nodes() -> None:
    job = jobs_in("trainjob-restarted")[0]
    assert job.queue == "team-a"
    assert [each.instance for each in job.replicas] == ["node-0", "node-1", "dataset-initializer-0"]
    assert [each.ranks[:2] for each in job.replicas] == [(0, 1), (8, 9), ()]
    assert [each.ranks_proof for each in job.replicas] == ["assumed", "assumed", "none"]


def test_without_numbers_a_train_job_has_one_node_and_no_ranks() -> None:
    (node,) = TRAIN.replicas({"metadata": {"name": "a"}, "spec": {"runtimeRef": {"name": "torch"}}})
    assert (node.instance, node.ranks, node.ranks_proof) == ("node-0", (), "none")


def test_a_slip_of_the_keyboard_makes_no_billions_of_ranks() -> None:
    trainer = {"numNodes": 4096, "numProcPerNode": 999_999}
    found = TRAIN.replicas({"metadata": {"name": "a"}, "spec": {"trainer": trainer}})
    assert sum(len(each.ranks) for each in found) <= 2**16
    assert {each.ranks_proof for each in found} == {"none"}


@pytest.mark.parametrize(
    ("trainer_status", "words"),
    [
        ({"progressPercentage": 61, "estimatedRemainingSeconds": 1450}, "61 %, 24 min left"),
        ({"progressPercentage": 0}, "0 %"),
        ({"estimatedRemainingSeconds": 59}, "59 s left"),
        ({"estimatedRemainingSeconds": 3600}, "1 h 0 min left"),
        ({"estimatedRemainingSeconds": 7320}, "2 h 2 min left"),
        ({"metrics": [{"name": "loss", "value": "0.31"}]}, "loss 0.31"),
        ({"lastUpdatedTime": "2026-11-20T11:00:00Z"}, ""),
        (None, ""),
    ],
)
def test_its_progress_is_what_the_trainer_reports(trainer_status: Any, words: str) -> None:
    assert TRAIN.parse(train_job(trainerStatus=trainer_status)).progress == words


def test_no_more_than_two_metrics_are_told() -> None:
    assert jobs_in("trainjob-restarted")[0].progress == "61 %, 24 min left, loss 0.31, eval_accuracy 0.77"


def test_a_set_tells_how_often_it_was_restarted_and_how_often_it_may_be() -> None:
    job = jobs_in("jobset-coordinated")[0]
    assert (job.restarts, job.restarts_allowed, job.priority) == (2, 3, "low")
    obj = objects("jobset-coordinated")[0]
    del obj["spec"]["failurePolicy"]
    assert SET.parse(obj).restarts_allowed == 0


def test_the_chief_of_a_set_without_a_coordinator_is_no_mere_preparation() -> None:
    obj = objects("trainjob-restarted")[1]
    assert [each.instance for each in SET.replicas(obj) if each.is_chief] == ["node-0"]
    obj["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "dataset-initializer", "status": "Ready"}]
    assert [each.instance for each in SET.replicas(obj) if each.is_chief] == ["dataset-initializer-0"]


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [("Completed", Status.SUCCEEDED), ("Failed", Status.FAILED), ("StartupPolicyInProgress", None)],
)
def test_a_set_ends_with_a_condition(condition: str, outcome: Status | None) -> None:
    obj = objects("jobset-coordinated")[0]
    obj["status"]["conditions"] = [{"type": condition, "status": "True", "message": "why"}]
    assert SET.parse(obj).outcome is outcome


def test_a_pod_of_an_old_server_has_its_number_in_an_annotation_or_none() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "a", "jobset.sigs.k8s.io/replicatedjob-name": "w"}
    assert SET.instance_of(a_pod("a-w-0-1-xxxxx", labels)) is None
    labels["batch.kubernetes.io/job-completion-index"] = "1"
    assert SET.instance_of(a_pod("a-w-0-1-xxxxx", labels)) == ("w", 1)
