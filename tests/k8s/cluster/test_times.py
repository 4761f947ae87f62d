"""Start and end of jobs, from their pods or from their operator's record."""

from __future__ import annotations

from typing import Any

from k8s.status import Status
from tests.support.objects import Object, batch_job, joined, pod_of, pytorch_job

JOB = pytorch_job("bert", workers=2, creationTimestamp="2026-11-21T09:00:00Z")
OPERATOR = {"startTime": "2026-11-21T09:00:01Z"}
FAILED: Object = {"type": "Failed", "status": "True"}


def at(minute: int, second: int = 0) -> str:
    return f"2026-11-21T10:{minute:02}:{second:02}Z"


def runs(minute: int) -> Object:
    return {"running": {"startedAt": at(minute)}}


def ended(code: int, began: str = at(5), finished: str = at(9), **more: Any) -> Object:
    return {"terminated": {"exitCode": code, "startedAt": began, "finishedAt": finished, **more}}


def pod(
    place: str, state: Object, last: Object | None = None, *, phase: str = "Running", **status: Any
) -> Object:
    """Return a pod that was bound at 10:00, whose container is in a state."""
    own = {"name": "pytorch", "state": state, "lastState": last or {}, "restartCount": int(bool(last))}
    status = {"containerStatuses": [own], "startTime": at(0), **status}
    return pod_of(JOB, place, on="n1", phase=phase, **status)


def is_running(truth: str = "True", minute: int = 7) -> Object:
    return {"type": "Running", "status": truth, "lastTransitionTime": at(minute)}


WAITS: Object = {"waiting": {"reason": "ContainerCreating"}}
NEVER_RAN = ended(128, "1970-01-01T00:00:00Z", reason="StartError")
FETCHED = [{"name": "fetch", "state": ended(0, at(1), at(2)), "restartCount": 0}]


def test_a_job_runs_from_the_start_of_its_first_container() -> None:
    two = [pod("master-0", runs(5)), pod("worker-0", runs(4))]
    cases: list[tuple[str, list[Object], list[Object], str]] = [
        ("no pod yet", [], [], ""),
        ("pulls its image", [pod("master-0", WAITS, phase="Pending")], [], ""),
        ("fetches", [pod("master-0", WAITS, phase="Pending", initContainerStatuses=FETCHED)], [], ""),
        ("could not start", [pod("master-0", NEVER_RAN, phase="Failed")], [], ""),
        ("runs", two, [], at(4)),
        ("its operator saw it later", two, [is_running()], at(4)),
        ("restarted in place", [pod("master-0", runs(8), ended(1, at(3)))], [], at(3)),
        ("waits for its restart", [pod("master-0", WAITS, ended(1, at(3)))], [], at(3)),
        ("has a new pod", [pod("master-0", runs(9))], [is_running()], at(7)),
        ("has ended", [pod("master-0", ended(0), phase="Succeeded")], [is_running("False")], at(5)),
        ("its pods are gone", [], [is_running("False"), FAILED], at(7)),
        ("is suspended", [], [is_running("False")], ""),
        ("its operator saw no run", [], [FAILED], "2026-11-21T09:00:01Z"),
    ]
    found = []
    for name, pods, conditions, _ in cases:
        _, jobs = joined([], pods, [{**JOB, "status": {**OPERATOR, "conditions": conditions}}])
        began = jobs["bert"].started
        found.append((name, began.strftime("%Y-%m-%dT%H:%M:%SZ") if began is not None else ""))
    assert found == [(name, expected) for name, _, _, expected in cases]


def test_a_job_without_a_failed_condition_finished_with_its_last_pod() -> None:
    job = batch_job("sweep", backoffLimit=0) | {"status": OPERATOR}
    own = {"name": "main", "state": ended(1), "restartCount": 0}
    _, jobs = joined([], [pod_of(job, "x", on="n1", phase="Failed", containerStatuses=[own])], [job])
    row = jobs["sweep"]
    assert (row.status, row.finished) == (Status.FAILED, row.instances[0].finished)
    assert row.finished is not None and row.started is not None and row.finished.minute == 9


def test_a_failed_job_exits_as_its_chief_or_as_the_first_to_fail() -> None:
    stopped = ended(143, finished=at(9, 30))
    cases: list[tuple[str, list[tuple[str, Object]], int]] = [
        ("never started", [], 1),
        ("could not start", [("master-0", NEVER_RAN)], 128),
        ("its chief fails", [("master-0", ended(3)), ("worker-0", ended(1, finished=at(6)))], 3),
        ("its chief was stopped", [("master-0", stopped), ("worker-0", ended(5))], 5),
        ("its chief ended well", [("master-0", ended(0)), ("worker-0", ended(5))], 5),
        ("all were stopped", [("master-0", stopped), ("worker-0", stopped)], 143),
        ("killed", [("master-0", ended(0, signal=9))], 137),
        ("out of memory", [("master-0", ended(1, reason="OOMKilled"))], 137),
        ("no status of a process", [("master-0", ended(-1073741510))], 1),
    ]
    found = []
    for name, pods, _ in cases:
        states = [pod(place, state, phase="Failed") for place, state in pods]
        _, jobs = joined([], states, [{**JOB, "status": {"conditions": [FAILED]}}])
        found.append((name, jobs["bert"].exit_status))
    assert found == [(name, expected) for name, _, expected in cases]


def test_a_job_has_an_exit_status_only_when_it_has_ended() -> None:
    bad = pod("master-0", runs(8), ended(3, at(3)))
    _, jobs = joined([], [bad], [JOB])
    assert (jobs["bert"].exit_status, jobs["bert"].instances[0].exit_code) == (None, 3)
    done = {**JOB, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    _, jobs = joined([], [bad], [done])
    assert jobs["bert"].exit_status == 0


def test_a_sidecar_counts_only_where_the_training_container_did_not_fail() -> None:
    side = {"name": "proxy", "state": ended(7, finished=at(6)), "restartCount": 0}
    for code, expected in ((3, 3), (0, 7)):
        own = {"name": "pytorch", "state": ended(code), "restartCount": 0}
        pods = [pod_of(JOB, "master-0", on="n1", phase="Failed", containerStatuses=[side, own])]
        pods[0]["spec"]["containers"].insert(0, {"name": "proxy"})
        _, jobs = joined([], pods, [{**JOB, "status": {"conditions": [FAILED]}}])
        assert jobs["bert"].exit_status == expected
