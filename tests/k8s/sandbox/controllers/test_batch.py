"""Plans for a Job: pods by index and parallelism, retries, suspension, the end; and for a Deployment."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.kinds.batch_job import INDEX, BatchJob
from k8s.sandbox.controllers import batch
from k8s.sandbox.controllers.operators import KINDS
from k8s.sandbox.controllers.reconcile import GANG, ObservedJob, Plan
from tests.k8s.sandbox.controllers.test_replicas import ago, as_pod, condition_statuses, stored
from tests.k8s.sandbox.live.running import Manifest, batch_job


def decide(job: Manifest, pods: list[Manifest]) -> Plan:
    return batch.decide(ObservedJob(BatchJob(), job, pods))


def numbered(number: int, phase: str, code: int | None = None, **rest: Any) -> Manifest:
    return as_pod(f"sweep-{number}", phase, code, annotations={batch.NUMBER: str(number)}, **rest)


def indexed(index: int, phase: str, name: str = "") -> Manifest:
    return as_pod(name or f"sweep-{index}-x", phase, annotations={INDEX: str(index)})


def test_an_indexed_job_starts_the_numbers_that_are_missing() -> None:
    job = stored(batch_job("sweep", "true", completions=4, parallelism=2, completionMode="Indexed"))
    pods = [indexed(0, "Succeeded"), indexed(1, "Running")]
    plan = decide(job, pods)
    assert [each["metadata"]["annotations"][INDEX] for each in plan.create] == ["2"]
    made = plan.create[0]
    assert made["metadata"]["name"].startswith("sweep-2-")
    assert made["spec"]["hostname"] == "sweep-2"
    assert (plan.status["succeeded"], plan.status["completedIndexes"]) == (1, "0")


def test_repeated_decisions_create_the_same_pod_names() -> None:
    job = stored(batch_job("sweep", "true", completions=2, parallelism=2))
    names = [[each["metadata"]["name"] for each in decide(job, []).create] for _ in range(2)]
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


def test_a_failed_pod_is_replaced_after_a_while() -> None:
    job = stored(batch_job("sweep", "true"))
    fresh = decide(job, [numbered(0, "Failed", 1)])
    assert fresh.create == []
    assert 8 < (fresh.requeue_after_s or 0) <= 10.1
    old = numbered(0, "Failed", 1)
    old["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = ago(11)
    assert len(decide(job, [old]).create) == 1


@pytest.mark.parametrize(
    ("spec", "phases", "condition", "reason"),
    [
        ({}, ["Succeeded"], "Complete", "CompletionsReached"),
        ({"completions": 2, "parallelism": 2}, ["Succeeded", "Succeeded"], "Complete", "CompletionsReached"),
        ({"backoffLimit": 0}, ["Failed"], "Failed", "BackoffLimitExceeded"),
        ({"backoffLimit": 1}, ["Failed", "Failed", "Running"], "Failed", "BackoffLimitExceeded"),
    ],
)
def test_a_job_ends(spec: Manifest, phases: list[str], condition: str, reason: str) -> None:
    pods = [numbered(index, phase, 1) for index, phase in enumerate(phases)]
    plan = decide(stored(batch_job("sweep", "true", **spec)), pods)
    last = plan.status["conditions"][-1]
    assert (last["type"], last["status"], last["reason"]) == (condition, "True", reason)
    assert all(each["status"]["phase"] == "Running" for each in plan.delete)
    assert "active" not in plan.status


def test_succeeded_indexes_stay_counted_after_their_pods_are_gone() -> None:
    job = batch_job("sweep", "true", completions=3, parallelism=1, completionMode="Indexed")
    first = decide(stored(job), [indexed(0, "Succeeded"), indexed(1, "Succeeded")])
    assert first.status["completedIndexes"] == "0-1"
    second = decide(stored(job, first.status), [])
    assert second.status["succeeded"] == 2
    assert [each["metadata"]["annotations"][INDEX] for each in second.create] == ["2"]


@pytest.mark.parametrize(
    ("spec", "phases", "created"),
    [
        ({}, [], 1),
        ({"parallelism": 0}, [], 0),
        ({"parallelism": 3}, [], 3),
        ({"parallelism": 3}, ["Running"], 2),
        ({"parallelism": 3}, ["Succeeded", "Running"], 0),
        ({"parallelism": 2, "completions": 5}, [], 2),
        ({"parallelism": 4, "completions": 2}, [], 2),
        ({"parallelism": 2, "completions": 5}, ["Succeeded", "Running"], 1),
        ({"parallelism": 2, "completions": 2}, ["Succeeded", "Running"], 0),
        ({"parallelism": 3, "completions": 4}, ["Succeeded", "Succeeded", "Succeeded"], 1),
        ({"parallelism": 2, "completions": 0}, [], 0),
    ],
)
def test_a_job_has_as_many_pods_as_may_run_and_are_still_needed(
    spec: Manifest, phases: list[str], created: int
) -> None:
    pods = [numbered(index, phase) for index, phase in enumerate(phases)]
    plan = decide(stored(batch_job("sweep", "true", **spec)), pods)
    assert (len(plan.create), plan.delete) == (created, [])
    gangs = {each["metadata"]["annotations"][GANG] for each in plan.create}
    assert gangs <= {str(created + phases.count("Running"))}


def test_pods_beyond_the_parallelism_are_removed() -> None:
    pods = [numbered(index, "Running") for index in range(3)]
    plan = decide(stored(batch_job("sweep", "true", parallelism=1, completions=9)), pods)
    assert [each["metadata"]["name"] for each in plan.delete] == ["sweep-1", "sweep-2"]
    assert plan.create == []


def test_a_job_that_needs_one_success_is_complete_when_its_other_pods_have_ended() -> None:
    job = stored(batch_job("sweep", "true", parallelism=2))
    pods = [numbered(0, "Succeeded"), numbered(1, "Running")]
    assert "conditions" not in decide(job, pods).status
    pods[1]["status"]["phase"] = "Failed"
    plan = decide(job, pods)
    assert condition_statuses(plan) == {"Complete": "True"}
    assert (plan.status["succeeded"], plan.status["failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("deleted", "suspend", "started_s", "failed"),
    [(False, False, None, 1), (True, False, 90, 1), (True, True, 90, 0), (True, False, 10, 0)],
)
def test_a_pod_that_a_suspension_ended_has_not_failed(
    deleted: bool, suspend: bool, started_s: int | None, failed: int
) -> None:
    status = {} if started_s is None else {"startTime": ago(started_s)}
    _held_pod_has_failed(status, failed, deleted=deleted, suspend=suspend)


def test_a_pod_of_a_job_that_is_still_suspended_has_not_failed() -> None:
    status = {"conditions": [{"type": "Suspended", "status": "True"}]}
    _held_pod_has_failed(status, 0, deleted=True, suspend=False)


def _held_pod_has_failed(status: Manifest, failed: int, *, deleted: bool, suspend: bool) -> None:
    """See how many of a Job's pods, of which one ended a minute after it was made, count as failed."""
    job = stored(batch_job("held", "true", suspend=suspend, backoffLimit=0, completions=1, parallelism=1))
    pod = numbered(0, "Failed", 143, creationTimestamp=ago(60))
    if deleted:
        pod["metadata"]["deletionTimestamp"] = ago(0)
    plan = decide({**job, "status": status}, [pod])
    assert plan.status.get("failed", 0) == failed
    assert any(each["type"] == "Failed" for each in plan.status.get("conditions", ())) is bool(failed)


BOARD_LABELS = {"app": "board"}


def deployment(replicas: int = 1, image: str = "a", **spec: Any) -> Manifest:
    template = {"metadata": {"labels": BOARD_LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}
    meta = {"name": "board", "namespace": "default", "uid": "u", "generation": 3}
    return {"metadata": meta, "spec": {"replicas": replicas, "template": template, **spec}}


def decide_for(obj: Manifest, pods: list[Manifest]) -> Plan:
    return batch.decide_deployment(ObservedJob(KINDS[-1], obj, pods))


def pods_of(obj: Manifest, phase: str = "Running") -> list[Manifest]:
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    made = decide_for(obj, []).create
    for pod in made:
        pod["metadata"]["uid"] = pod["metadata"]["name"]
    return [{**pod, "status": {"phase": phase, "conditions": [ready]}} for pod in made]


def test_a_new_deployment_gets_its_pods_and_the_same_ones_the_second_time() -> None:
    plan = decide_for(deployment(2), [])
    names = [pod["metadata"]["name"] for pod in plan.create]
    assert len(set(names)) == 2
    assert names == [pod["metadata"]["name"] for pod in decide_for(deployment(2), []).create]
    assert all(pod["metadata"]["labels"].keys() == {"app", batch.HASH} for pod in plan.create)
    assert plan.create[0]["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    (condition,) = plan.status.pop("conditions")
    assert (condition["type"], condition["status"]) == ("Available", "False")
    assert plan.status == {"unavailableReplicas": 2, "observedGeneration": 3}


def test_a_deployment_whose_pods_are_ready_needs_nothing() -> None:
    plan = decide_for(deployment(2), pods_of(deployment(2)))
    assert (plan.create, plan.delete) == ([], [])
    (condition,) = plan.status.pop("conditions")
    assert (condition["type"], condition["status"]) == ("Available", "True")
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
    assert plan.status == {**counts, "observedGeneration": 3}


def test_ended_and_outdated_pods_are_replaced() -> None:
    (ended,) = pods_of(deployment(), "Failed")
    plan = decide_for(deployment(), [ended])
    assert (plan.delete, plan.create) == ([ended], [])
    (outdated,) = pods_of(deployment())
    plan = decide_for(deployment(image="b"), [outdated])
    assert (plan.delete, len(plan.create)) == ([outdated], 1)
    assert plan.create[0]["metadata"]["name"] != outdated["metadata"]["name"]


def test_fewer_replicas_delete_pods() -> None:
    assert len(decide_for(deployment(1), pods_of(deployment(3))).delete) == 2
