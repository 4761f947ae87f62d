"""Plans of the replica controller, as PyTorchJobs have them: pods, conditions, limits, clean-up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.sandbox.controllers import kubeflow
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan
from tests.k8s.sandbox.live.running import Manifest, pytorch_job

KIND = PyTorchJob()
UID = "11111111-2222-3333-4444-555555555555"


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def stored(job: Manifest, status: Manifest | None = None) -> Manifest:
    job["metadata"]["uid"] = UID
    return {**job, "status": status or {}}


def as_pod(name: str, phase: str, code: int | None = None, **rest: Any) -> Manifest:
    state = {} if code is None else {"terminated": {"exitCode": code, "finishedAt": ago(0)}}
    statuses = [{"name": "pytorch", "state": state, "restartCount": rest.pop("restarts", 0)}]
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", **rest}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "containerStatuses": statuses}}


def decide(job: Manifest, pods: list[Manifest], restarts: int = 0) -> Plan:
    return kubeflow.decide(ObservedJob(KIND, job, pods, restarts=restarts))


def condition_statuses(plan: Plan) -> dict[str, str]:
    return {each["type"]: each["status"] for each in plan.status["conditions"]}


def test_a_new_job_gets_its_pods_with_labels_environment_and_owner() -> None:
    job = stored(pytorch_job("bert", "true", workers=1, restart="ExitCode"))
    plan = decide(job, [])
    assert condition_statuses(plan) == {"Created": "True"}
    assert [each["metadata"]["name"] for each in plan.create] == ["bert-master-0", "bert-worker-0"]
    worker = plan.create[1]
    assert worker["metadata"]["labels"] == {
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/replica-type": "worker",
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": UID}
    controls = {"controller": True, "blockOwnerDeletion": True}
    assert worker["metadata"]["ownerReferences"] == [owner | controls]
    env = {each["name"]: each["value"] for each in worker["spec"]["containers"][0]["env"]}
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == ("1", "2", "bert-master-0")
    assert worker["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("restart", "master", "worker", "condition", "counts"),
    [
        ("Never", ("Pending", None), ("Pending", None), "", {}),
        ("Never", ("Running", None), ("Pending", None), "Running", {"active": 1}),
        ("Never", ("Pending", None), ("Running", None), "", {}),
        ("Never", ("Succeeded", 0), ("Running", None), "Succeeded", {"succeeded": 1}),
        ("Never", ("Running", None), ("Failed", 1), "Failed", {"active": 1}),
        ("ExitCode", ("Running", None), ("Failed", 137), "Restarting", {"active": 1}),
        ("ExitCode", ("Failed", 1), ("Running", None), "Failed", {"failed": 1}),
        ("OnFailure", ("Failed", 1), ("Pending", None), "Restarting", {"failed": 1}),
    ],
)
def test_the_phases_of_the_pods_become_the_conditions_of_the_job(
    restart: str,
    master: tuple[str, int | None],
    worker: tuple[str, int | None],
    condition: str,
    counts: dict[str, int],
) -> None:
    pods = [as_pod("bert-master-0", *master), as_pod("bert-worker-0", *worker)]
    plan = decide(stored(pytorch_job("bert", "true", restart=restart)), pods)
    assert condition_statuses(plan) == {"Created": "True"} | ({condition: "True"} if condition else {})
    assert plan.status["replicaStatuses"]["Master"] == counts


def test_running_and_restarting_exclude_each_other() -> None:
    job = pytorch_job("bert", "true", workers=0, restart="ExitCode")
    first = decide(stored(job), [as_pod("bert-master-0", "Running")])
    assert condition_statuses(first) == {"Created": "True", "Running": "True"}
    second = decide(stored(job, first.status), [as_pod("bert-master-0", "Failed", 137)])
    assert condition_statuses(second) == {"Created": "True", "Restarting": "True"}
    assert [each["metadata"]["name"] for each in second.delete] == ["bert-master-0"]
    third = decide(stored(job, second.status), [as_pod("bert-master-0", "Running")])
    assert condition_statuses(third) == {"Created": "True", "Running": "True"}


def test_after_its_failure_nothing_about_a_job_changes() -> None:
    job = pytorch_job("bert", "true", workers=0)
    failed = decide(stored(job), [as_pod("bert-master-0", "Failed", 1)])
    again = decide(stored(job, failed.status), [])
    assert (again.status, again.create, again.events) == (failed.status, [], [])


def test_deciding_twice_changes_nothing() -> None:
    job = pytorch_job("bert", "true")
    pods = [as_pod("bert-master-0", "Running"), as_pod("bert-worker-0", "Running")]
    first = decide(stored(job), pods)
    second = decide(stored(job, first.status), pods)
    assert second.status == first.status
    assert not (second.create or second.delete or second.events)


def test_a_job_without_a_master_needs_all_its_workers() -> None:
    job = pytorch_job("bert", "true", workers=2)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    pods = [as_pod("bert-worker-0", "Succeeded", 0), as_pod("bert-worker-1", "Running")]
    assert condition_statuses(decide(stored(job), pods)) == {"Created": "True", "Running": "True"}
    pods[1] = as_pod("bert-worker-1", "Succeeded", 0)
    assert condition_statuses(decide(stored(job), pods))["Succeeded"] == "True"


def test_a_pod_that_is_leaving_is_waited_for() -> None:
    leaving = as_pod("bert-master-0", "Running", deletionTimestamp=ago(1))
    plan = decide(stored(pytorch_job("bert", "true", workers=0)), [leaving])
    assert plan.create == []


def test_pods_beyond_the_requested_replicas_are_removed() -> None:
    pods = [as_pod(f"bert-{name}", "Running") for name in ("master-0", "worker-0", "worker-1")]
    plan = decide(stored(pytorch_job("bert", "true", workers=1)), pods)
    assert [each["metadata"]["name"] for each in plan.delete] == ["bert-worker-1"]


@pytest.mark.parametrize(
    ("limit", "restarts", "in_place", "gives_up"),
    [(0, 0, 0, True), (1, 0, 0, False), (1, 1, 0, True), (3, 1, 0, False), (2, 0, 2, True), (3, 0, 2, False)],
)
def test_a_job_gives_up_at_its_limit(limit: int, restarts: int, in_place: int, gives_up: bool) -> None:
    phase = "Running" if in_place else "Failed"
    pod = as_pod("bert-master-0", phase, None if in_place else 130, restarts=in_place)
    job = pytorch_job("bert", "true", workers=0, restart="OnFailure", backoffLimit=limit)
    plan = decide(stored(job), [pod], restarts)
    assert (condition_statuses(plan).get("Failed") == "True") == gives_up


@pytest.mark.parametrize(
    ("policy", "removed"),
    [(None, []), ("None", []), ("Running", ["bert-worker-0"]), ("All", ["bert-master-0", "bert-worker-0"])],
)
def test_a_finished_job_deletes_pods_by_its_clean_pod_policy(policy: str | None, removed: list[str]) -> None:
    job = pytorch_job("bert", "true", cleanPodPolicy=policy)
    pods = [as_pod("bert-master-0", "Succeeded", 0), as_pod("bert-worker-0", "Running")]
    plan = decide(stored(job), pods)
    assert [each["metadata"]["name"] for each in plan.delete] == removed


def test_a_suspended_job_has_no_pods_and_a_resumed_one_starts_again() -> None:
    job = pytorch_job("bert", "true", workers=0, suspend=True)
    running = decide(stored(pytorch_job("bert", "true", workers=0)), [as_pod("bert-master-0", "Running")])
    paused = decide(stored(job, running.status), [as_pod("bert-master-0", "Running")])
    assert condition_statuses(paused) == {"Created": "True", "Running": "False", "Suspended": "True"}
    assert len(paused.delete) == 1
    assert [reason for reason, _, _ in paused.events] == ["PyTorchJobSuspended"]
    old = {**paused.status, "startTime": ago(3600)}
    resumed = decide(stored(pytorch_job("bert", "true", workers=0), old), [])
    assert condition_statuses(resumed)["Suspended"] == "False"
    assert resumed.status["startTime"] > old["startTime"]
    assert len(resumed.create) == 1


def test_time_limits_requeue_the_job_until_they_expire() -> None:
    job = pytorch_job("bert", "true", activeDeadlineSeconds=100, ttlSecondsAfterFinished=50)
    assert 95 < (decide(stored(job, {"startTime": ago(3)}), []).requeue_after_s or 0) < 98
    over = decide(stored(job, {"startTime": ago(101)}), [])
    assert condition_statuses(over)["Failed"] == "True"
    late = {**over.status, "completionTime": ago(51)}
    assert decide(stored(job, late), []).delete_job
