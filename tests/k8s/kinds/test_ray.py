"""RayJobs and RayClusters: a head, groups of workers without numbers, and who sends the program."""

from __future__ import annotations

import pytest

from k8s.kinds.ray.ray_cluster import RayCluster
from k8s.kinds.ray.ray_job import RayJob
from k8s.status import Status
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects

JOB, CLUSTER = RayJob(), RayCluster()


@pytest.mark.parametrize(
    ("state", "program", "outcome"),
    [
        ("", "", None),
        ("Initializing", "", None),
        ("Running", "RUNNING", None),
        ("Retrying", "FAILED", None),
        ("Suspended", "", None),
        ("Complete", "SUCCEEDED", Status.SUCCEEDED),
        ("Complete", "FAILED", Status.FAILED),
        ("Complete", "STOPPED", Status.FAILED),
        ("Failed", "FAILED", Status.FAILED),
        ("Failed", "", Status.FAILED),
        ("ValidationFailed", "", Status.FAILED),
    ],
)
def test_a_ray_job_ends_when_nothing_will_be_tried_again(
    state: str, program: str, outcome: Status | None
) -> None:
    obj = objects("rayjob-running")[0]
    obj["status"] |= {"jobDeploymentStatus": state, "jobStatus": program, "endTime": "2026-11-20T12:00:00Z"}
    job = JOB.parse(obj)
    assert job.outcome is outcome
    assert (job.finished is not None) == (outcome is not None)


def test_why_a_ray_job_failed_is_told_in_its_words() -> None:
    obj = objects("rayjob-running")[0]
    obj["status"] |= {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "exit 1"}
    assert JOB.parse(obj).outcome_reason == "AppFailed: exit 1"
    obj["status"] |= {"reason": "", "message": "", "jobStatus": "STOPPED"}
    assert JOB.parse(obj).outcome_reason == "program stopped"


def test_a_ray_jobs_retries_and_what_its_program_does_are_told() -> None:
    job = jobs_in("rayjob-running")[0]
    assert (job.restarts, job.restarts_allowed, job.progress) == (1, 2, "program running")
    assert (job.queue, job.min_instances, job.is_suspended) == ("team-a", None, False)
    assert job.started is not None


def test_without_a_submitter_the_head_is_the_chief() -> None:
    obj = objects("rayjob-running")[0]
    obj["spec"]["submissionMode"] = "HTTPMode"
    assert [each.instance for each in JOB.replicas(obj) if each.is_chief] == ["head-0"]
    assert all(each.role != "submitter" for each in JOB.replicas(obj))


def test_a_ray_job_on_somebody_elses_cluster_has_a_submitter_only() -> None:
    obj = objects("rayjob-running")[0]
    del obj["spec"]["rayClusterSpec"]
    obj["spec"]["clusterSelector"] = {"ray.io/cluster": "shared"}
    assert [each.instance for each in JOB.replicas(obj)] == ["submitter-0"]


def test_an_autoscaled_cluster_can_work_with_its_fewest_pods() -> None:
    job = jobs_in("raycluster-autoscaled")[0]
    assert (len(job.replicas), job.min_instances) == (4, 2)
    assert (job.priority, job.queue, job.outcome) == ("low", "research", None)
    obj = objects("rayjob-running")[0]
    obj["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    assert JOB.parse(obj).min_instances == 1 + 1 + 2 + 1  # submitter, head, one replica on two hosts, and one


def test_a_suspended_cluster_has_not_begun() -> None:
    obj = objects("raycluster-autoscaled")[0]
    assert CLUSTER.parse(obj).started is not None
    obj["spec"]["suspend"] = True
    assert (CLUSTER.parse(obj).is_suspended, CLUSTER.parse(obj).started) == (True, None)


def test_the_pod_that_cleans_up_after_a_cluster_is_none_of_its_workers() -> None:
    labels = {"ray.io/cluster": "shared", "ray.io/node-type": "redis-cleanup"}
    assert CLUSTER.instance_of(a_pod("shared-redis-cleanup-x", labels)) == ("redis-cleanup", 0)
    assert CLUSTER.instance_of(a_pod("x", {})) is None
