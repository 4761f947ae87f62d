"""Status and reason of a job, from the table of rules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.status import BEING_READ, Status
from k8s.status.job import RULES, DeclaredStatus, InstanceState, job_status, with_cause


def instance(number: int, status: Status, reason: str = "", **more: Any) -> InstanceState:
    ranks = more.pop("ranks", ())
    return InstanceState(f"worker-{number}", ranks, status, reason, **more)


def job(*pods: tuple[Status, str], total: int = 0, **more: Any) -> tuple[Status, str]:
    instances = [
        instance(index, status, reason, gpus=8, is_bound=status is not Status.PENDING)
        for index, (status, reason) in enumerate(pods)
    ]
    return job_status(DeclaredStatus(total=total or len(pods), **more), instances)


UP, DONE = (Status.RUNNING, ""), (Status.SUCCEEDED, "")
LATE = (Status.STARTING, "waits for image: ErrImagePull")
STUCK, BAD, AGAIN = (Status.PENDING, "no room"), (Status.FAILED, "exit 1"), (Status.RESTARTING, "OOMKilled")
GOING, LOST = (Status.TERMINATING, "being deleted"), (Status.UNKNOWN, "its node n does not answer")
TAKEN = (Status.TERMINATING, "being deleted, preempted by a pod of higher priority")
FLAPS = (Status.RUNNING, "restarted 5 times, last OOMKilled at 14:02:03")


def test_each_job_state_has_a_status_and_a_reason() -> None:
    cases: list[tuple[tuple[Status, str], Status, str]] = [
        (job(total=2), Status.PENDING, "no pods yet"),
        (job(total=2, has_status=False), Status.PENDING, "no pods yet: its operator has not answered"),
        (job(total=2, restarts=2, restarts_allowed=3), Status.RESTARTING, "2 of 3: no pods yet"),
        (job(total=2, is_partial=True), Status.UNKNOWN, BEING_READ),
        (job(total=2, is_partial=True, is_suspended=True), Status.UNKNOWN, BEING_READ),
        (job(total=2, is_partial=True, is_deleting=True), Status.TERMINATING, "being deleted"),
        (job(total=2, is_partial=True, outcome=Status.SUCCEEDED), Status.SUCCEEDED, ""),
        (job(STUCK, UP), Status.PENDING, "half-allocated: 1 of 2 pods holds 8 GPUs; worker-0 not scheduled"),
        (job(STUCK, LATE, LOST), Status.PENDING,
         "half-allocated: 2 of 3 pods hold 16 GPUs; worker-0 not scheduled"),
        (job(DONE, LATE, STUCK, min_instances=2), Status.PENDING, "worker-2: no room"),
        (job(DONE, LATE, STUCK, min_instances=3), Status.PENDING,
         "half-allocated: 1 of 3 pods holds 8 GPUs; worker-2 not scheduled"),
        (job(STUCK, UP, UP, min_instances=2), Status.RUNNING, "2 of 3 pods, 2 are enough; worker-0: no room"),
        (job(STUCK, STUCK), Status.PENDING, "worker-0: no room"),
        (job(LATE, LATE), Status.STARTING, "0 of 2 pods; worker-0 waits for image: ErrImagePull"),
        (job(UP, UP, LATE, UP), Status.RUNNING, "3 of 4 pods; worker-2 waits for image: ErrImagePull"),
        (job(UP, UP), Status.RUNNING, ""),
        (job(UP, DONE), Status.RUNNING, ""),
        (job(UP, FLAPS), Status.RUNNING, "worker-1 restarted 5 times, last OOMKilled at 14:02:03"),
        (job(DONE, DONE), Status.RUNNING, "all pods have ended well"),
        (job(UP, total=2), Status.RUNNING, "1 of 2 pods; 1 not created yet"),
        (job(AGAIN, UP, restarts=2, restarts_allowed=3), Status.RESTARTING, "2 of 3: worker-0 OOMKilled"),
        (job(AGAIN, UP, restarts=2), Status.RESTARTING, "restart 2: worker-0 OOMKilled"),
        (job(UP, AGAIN), Status.RESTARTING, "1 of 2 pods; worker-1 OOMKilled"),
        (job(AGAIN), Status.RESTARTING, "worker-0 OOMKilled"),
        (job(UP, UP, AGAIN, min_instances=2), Status.RUNNING,
         "2 of 3 pods, 2 are enough; worker-2 OOMKilled"),
        (job(UP, BAD), Status.RESTARTING, "1 of 2 pods; worker-1 exit 1"),
        (job(BAD, restarts_allowed=0), Status.FAILED, "worker-0 exit 1; no restart is left"),
        (job(BAD, restarts_allowed=1), Status.RESTARTING, "worker-0 exit 1"),
        (job(UP, TAKEN), Status.RESTARTING, f"1 of 2 pods; worker-1 {TAKEN[1]}"),
        (job(GOING, GOING), Status.TERMINATING, "2 pods left"),
        (job(TAKEN), Status.TERMINATING, f"1 pod left; worker-0 {TAKEN[1]}"),
        (job(UP, is_deleting=True), Status.TERMINATING, "1 pod left"),
        (job(total=1, is_deleting=True), Status.TERMINATING, "being deleted"),
        (job(total=1, is_suspended=True), Status.SUSPENDED, ""),
        (job(GOING, is_suspended=True), Status.SUSPENDED, "1 pod still there"),
        (job(DONE, is_suspended=True), Status.SUSPENDED, ""),
        (job(UP, UP, is_suspended=True), Status.RUNNING, "told to suspend, but 2 pods run"),
        (job(UP, GOING, is_suspended=True), Status.RUNNING, "told to suspend, but 1 pod runs"),
        (job(total=1, is_suspended=True, queue="gpu"), Status.QUEUED, "waits in queue gpu"),
        (job(GOING, is_suspended=True, queue="gpu"), Status.SUSPENDED, "1 pod still there"),
        (job(UP, queue="gpu"), Status.RUNNING, ""),
        (job(DONE, outcome=Status.SUCCEEDED), Status.SUCCEEDED, ""),
        (job(DONE, UP, outcome=Status.SUCCEEDED), Status.SUCCEEDED, "1 pod still there, with 8 GPUs"),
        (job(UP, BAD, outcome=Status.FAILED, outcome_reason="limit"), Status.FAILED,
         "worker-1 exit 1; 1 pod still there, with 8 GPUs"),
        # A pod that is being deleted will end; one whose node is lost may not.
        (job(GOING, BAD, outcome=Status.FAILED), Status.FAILED, "worker-1 exit 1"),
        (job(GOING, UP, outcome=Status.SUCCEEDED), Status.SUCCEEDED, "1 pod still there, with 8 GPUs"),
        (job(TAKEN, outcome=Status.SUCCEEDED), Status.SUCCEEDED, "1 pod still there, with 8 GPUs"),
        (job(UP, (Status.FAILED, "Stopped: It was stopped."), outcome=Status.FAILED), Status.FAILED,
         "worker-1 Stopped: It was stopped; 1 pod still there, with 8 GPUs"),
        (job(outcome=Status.FAILED, outcome_reason="deadline"), Status.FAILED,
         "ran longer than its deadline"),
        (
            job((Status.FAILED, "exit 143 (SIGTERM)"), outcome=Status.FAILED, outcome_reason="deadline"),
            Status.FAILED,
            "ran longer than its deadline",
        ),
        (job(LOST), Status.UNKNOWN, "worker-0: its node n does not answer"),
        (job(LATE, UP, LOST), Status.UNKNOWN, "1 of 3 pods; worker-2: its node n does not answer"),
    ]  # fmt: skip
    for found, status, reason in cases:
        assert found == (status, reason)


def test_a_failed_job_names_the_rank_that_ended_first_and_when() -> None:
    instances = [
        instance(
            0, Status.FAILED, "exit 143 (SIGTERM)", ranks=(4,), ended=datetime(2026, 1, 1, 15, 2, 13, 0, UTC)
        ),
        instance(1, Status.FAILED, "exit 1", ranks=(5,), ended=datetime(2026, 1, 1, 14, 2, 11, 0, UTC)),
        instance(2, Status.FAILED, "lost", ranks=(6,)),
        instance(3, Status.SUCCEEDED, ranks=(7,)),
    ]
    failed = DeclaredStatus(total=4, outcome=Status.FAILED, outcome_reason="a pod failed")
    assert job_status(failed, instances) == (Status.FAILED, "rank 5 exit 1 first, 14:02:11")


@pytest.mark.parametrize("left", ["", "; no restart is left", "; 2 pods still there, with 1 GPU"])
def test_a_cause_takes_the_place_of_the_exit_without_gluing_two_sentences(left: str) -> None:
    cause = "rank 3 Stopped: It was stopped."
    shown = cause if not left else cause[:-1]
    assert with_cause(f"2 of 3: worker-0 exit 1{left}", cause) == f"2 of 3: {shown}{left}"


def test_a_failed_pod_of_several_ranks_is_named_in_the_reason() -> None:
    instances = [
        instance(0, Status.FAILED, "OOMKilled", ranks=(0, 1), ended=datetime(2026, 1, 1, 9, 0, 5, 0, UTC))
    ]
    failed = DeclaredStatus(total=1, outcome=Status.FAILED)
    assert job_status(failed, instances)[1] == "worker-0 OOMKilled, 09:00:05"


def test_restarts_by_the_node_count_as_attempts() -> None:
    instances = [instance(0, Status.RESTARTING, "exit 1", restarts=2)]
    assert job_status(DeclaredStatus(total=1, restarts_allowed=3), instances)[1] == "2 of 3: worker-0 exit 1"


PARTS = st.builds(
    InstanceState,
    name=st.sampled_from(["master-0", "worker-0"]),
    ranks=st.sampled_from([(), (0,), (0, 1)]),
    status=st.sampled_from(Status),
    reason=st.sampled_from(["", "exit 1", "being deleted, evicted"]),
    gpus=st.integers(0, 8),
    ended=st.none() | st.datetimes(timezones=st.just(UTC)),
    is_bound=st.booleans(),
    restarts=st.integers(0, 3),
)
JOBS = st.builds(
    DeclaredStatus,
    total=st.integers(0, 4),
    outcome=st.sampled_from([None, Status.SUCCEEDED, Status.FAILED]),
    outcome_reason=st.sampled_from(["", "limit"]),
    is_suspended=st.booleans(),
    queue=st.sampled_from(["", "gpu"]),
    is_deleting=st.booleans(),
    min_instances=st.none() | st.integers(0, 5),
    restarts=st.integers(0, 4),
    restarts_allowed=st.none() | st.integers(0, 3),
    has_status=st.booleans(),
)


@settings(max_examples=100)
@given(JOBS, st.lists(PARTS, max_size=5))
def test_any_input_gives_a_status_consistent_with_its_pods(
    said: DeclaredStatus, instances: list[InstanceState]
) -> None:
    status, reason = job_status(said, instances)
    assert not reason.startswith((";", " "))
    has = {each.status for each in instances}
    if status is Status.RUNNING:
        assert has & {Status.RUNNING, Status.SUCCEEDED}
    if status is Status.RUNNING and said.min_instances is None and len(instances) <= said.total:
        assert not has & {Status.UNKNOWN, Status.FAILED, Status.RESTARTING}
    if status is Status.SUCCEEDED:
        assert said.outcome is Status.SUCCEEDED


def test_every_status_has_a_rule_and_rule_names_are_unique() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert {rule.status for rule in RULES} == set(Status)


def test_only_the_two_outcomes_are_final() -> None:
    assert [status for status in Status if status.is_final] == [Status.SUCCEEDED, Status.FAILED]
