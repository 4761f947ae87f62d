"""One honest word for a pod or a job, with its reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from k8s.models import Pod
from k8s.status import Declaration, Part, Status, job_status, pod_status


def pod(phase: str, *, node: str = "n", deleted: bool = False, policy: str = "", **status: Any) -> Pod:
    meta = {"name": "a"} | ({"deletionTimestamp": "2026-11-20T18:36:10Z"} if deleted else {})
    inits = [{"name": "fetch"}, {"name": "wait"}]
    spec = {"nodeName": node, "restartPolicy": policy, "initContainers": inits}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": phase, **status}}, Pod)


def container(
    state: dict[str, Any], last: dict[str, Any] | None = None, name: str = "main"
) -> dict[str, Any]:
    return {"name": name, "state": state, "lastState": last or {}}


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-20T18:36:10Z"}}


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (pod("Succeeded"), Status.SUCCEEDED, ""),
        (pod("Running", containerStatuses=[container(RUNS)]), Status.RUNNING, ""),
        (pod("Running", deleted=True), Status.TERMINATING, "being deleted"),
        (pod("Succeeded", deleted=True), Status.SUCCEEDED, ""),
        (pod("Unknown"), Status.UNKNOWN, "its node does not answer"),
        (pod("Failed", containerStatuses=[container(ended(1))]), Status.FAILED, "exit 1"),
        (
            pod("Failed", containerStatuses=[container(ended(137, "OOMKilled"))]),
            Status.FAILED,
            "OOMKilled, exit 137",
        ),
        (pod("Failed", containerStatuses=[container(ended(0, signal=9))]), Status.FAILED, "failed"),
        (pod("Failed", containerStatuses=[container(ended(9, signal=9))]), Status.FAILED, "signal 9"),
        (
            pod("Failed", containerStatuses=[container(ended(1, message="no such file"))]),
            Status.FAILED,
            "exit 1: no such file",
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on memory."),
            Status.FAILED,
            "Evicted: The node was low on memory.",
        ),
        (
            pod(
                "Running",
                containerStatuses=[container(waits("CrashLoopBackOff"), ended(137, "OOMKilled"))],
            ),
            Status.RESTARTING,
            "CrashLoopBackOff, last OOMKilled, exit 137",
        ),
        (pod("Running", containerStatuses=[container(ended(2))]), Status.RESTARTING, "exit 2"),
        (
            pod("Running", policy="Never", containerStatuses=[container(ended(2)), container(RUNS)]),
            Status.FAILED,
            "main exit 2, its other containers run on",
        ),
        (pod("Running", containerStatuses=[container(ended(0)), container(RUNS)]), Status.RUNNING, ""),
        (pod("Pending", node=""), Status.PENDING, "not scheduled"),
        (
            pod(
                "Pending",
                node="",
                conditions=[
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
                ],
            ),
            Status.PENDING,
            "0/3 nodes are available",
        ),
        (pod("Pending"), Status.STARTING, "bound, its node has not started it"),
        (
            pod("Pending", initContainerStatuses=[container(RUNS, name="fetch")]),
            Status.STARTING,
            "init 0/2: fetch runs",
        ),
        (
            pod(
                "Pending",
                initContainerStatuses=[
                    container(ended(0, "Completed"), name="fetch"),
                    container(waits("CrashLoopBackOff"), name="wait"),
                ],
            ),
            Status.STARTING,
            "init 1/2: wait CrashLoopBackOff",
        ),
        (
            pod("Pending", initContainerStatuses=[container(ended(3), name="fetch")]),
            Status.STARTING,
            "init 0/2: fetch exit 3",
        ),
        (
            pod("Pending", containerStatuses=[container(waits("ImagePullBackOff", "no such image"))]),
            Status.STARTING,
            "waits for image: ImagePullBackOff",
        ),
        (
            pod(
                "Pending",
                containerStatuses=[container(waits("CreateContainerConfigError", "no secret x"))],
            ),
            Status.STARTING,
            "CreateContainerConfigError: no secret x",
        ),
        (
            pod("Pending", containerStatuses=[container(waits("ContainerCreating"))]),
            Status.STARTING,
            "bound, its node has not started it",
        ),
    ],
)
def test_a_pod_has_one_word_and_a_reason(found: Pod, status: Status, reason: str) -> None:
    assert pod_status(found) == (status, reason)


def job(*pods: tuple[Status, str], total: int = 0, **more: Any) -> tuple[Status, str]:
    parts = [Part(f"worker-{index}", (), status, reason) for index, (status, reason) in enumerate(pods)]
    return job_status(Declaration(total=total or len(pods), **more), parts)


UP, DONE, LATE = (
    (Status.RUNNING, ""),
    (Status.SUCCEEDED, ""),
    (Status.STARTING, "waits for image: ErrImagePull"),
)
STUCK, BAD, AGAIN = (Status.PENDING, "no room"), (Status.FAILED, "exit 1"), (Status.RESTARTING, "exit 137")
GOING = (Status.TERMINATING, "being deleted")


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (job(total=2), Status.PENDING, "no pods yet"),
        (job(STUCK, UP), Status.RUNNING, "1 of 2 pods; worker-0 no room"),
        (job(STUCK, LATE), Status.PENDING, "worker-0 no room"),
        (job(LATE, LATE), Status.STARTING, "0 of 2 pods; worker-0 waits for image: ErrImagePull"),
        (job(UP, UP), Status.RUNNING, ""),
        (job(UP, DONE), Status.RUNNING, ""),
        (job(DONE, DONE), Status.RUNNING, "all pods have ended"),
        (job(UP, total=2), Status.RUNNING, "1 of 2 pods"),
        (job(UP, AGAIN), Status.RESTARTING, "1 of 2 pods; worker-1 exit 137"),
        (job(UP, BAD), Status.RESTARTING, "1 of 2 pods; worker-1 exit 1"),
        (job(GOING, GOING), Status.TERMINATING, "2 pods left"),
        (job(UP, is_deleting=True), Status.TERMINATING, "1 pod left"),
        (job(total=1, is_deleting=True), Status.TERMINATING, "being deleted"),
        (job(total=1, is_suspended=True), Status.SUSPENDED, ""),
        (job(GOING, is_suspended=True), Status.SUSPENDED, "1 pod still there"),
        (job(total=1, is_suspended=True, queue="gpu"), Status.QUEUED, "waits in queue gpu"),
        (job(UP, queue="gpu"), Status.RUNNING, ""),
        (job(DONE, outcome=Status.SUCCEEDED), Status.SUCCEEDED, ""),
        (job(UP, BAD, outcome=Status.FAILED, outcome_reason="limit"), Status.FAILED, "worker-1 exit 1"),
        (job(outcome=Status.FAILED, outcome_reason="deadline"), Status.FAILED, "deadline"),
        (job((Status.UNKNOWN, "its node does not answer")), Status.UNKNOWN, "its node does not answer"),
        (job(UP, (Status.UNKNOWN, "gone")), Status.RUNNING, "1 of 2 pods; worker-1 gone"),
    ],
)
def test_a_job_has_one_word_and_a_reason(found: tuple[Status, str], status: Status, reason: str) -> None:
    assert found[0] is status
    assert reason in found[1]


def test_only_the_two_outcomes_are_final() -> None:
    assert [status for status in Status if status.is_final] == [Status.SUCCEEDED, Status.FAILED]
