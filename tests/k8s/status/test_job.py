"""Status and reason of pods and jobs, from the table of rules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.models import Pod
from k8s.status import BEING_READ, Status
from k8s.status.job import RULES, DeclaredStatus, InstanceState, job_status, with_cause
from k8s.status.pod import ended_at, main_container, pod_status


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


def pod(
    phase: str,
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    node: str = "n",
    deleted: bool = False,
    policy: str = "",
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> Pod:
    meta = {"name": "a"} | ({"deletionTimestamp": "2026-11-20T18:36:10Z"} if deleted else {})
    inits = [{"name": "fetch"}, {"name": "wait"}, {"name": "proxy", "restartPolicy": "Always"}]
    spec = {"nodeName": node, "restartPolicy": policy, "initContainers": inits, **(spec or {})}
    status |= {"phase": phase, "containerStatuses": containers, "initContainerStatuses": init}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def container(
    state: dict[str, Any], last: dict[str, Any] | None = None, name: str = "main", restarts: int = 0
) -> dict[str, Any]:
    return {"name": name, "state": state, "lastState": last or {}, "restartCount": restarts}


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def at(second: int) -> dict[str, str]:
    return {"finishedAt": f"2026-11-20T14:02:{second:02}Z"}


def claim(kind: str, truth: str, reason: str | None = None, message: str | None = None) -> dict[str, Any]:
    return {"type": kind, "status": truth, "reason": reason, "message": message}


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ruled(*rules: tuple[str, str, list[int]], policy: str = "Never", name: str = "main") -> dict[str, Any]:
    """Return a container whose exits are handled by rules of an action, an operator and values."""
    found = [
        {"action": action, "exitCodes": {"operator": operator, "values": values}}
        for action, operator, values in rules
    ]
    return {"name": name, "restartPolicy": policy, "restartPolicyRules": found}


def with_rules(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": list(containers)}


RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-20T18:36:10Z"}}


def test_each_pod_state_has_a_status_and_a_reason() -> None:
    cases: dict[Status, list[tuple[Pod, str]]] = {
        Status.SUCCEEDED: [(pod("Succeeded"), ""), (pod("Succeeded", deleted=True), "")],
        Status.RUNNING: [
            (pod("Running", container(RUNS)), ""),
            (pod("Running", container(RUNS, ended(137, **at(3)), restarts=2)),
             "restarted twice, last exit 137 (SIGKILL) at 14:02:03"),
            (pod("Running", container(ended(0, "Completed"))), "its containers have ended"),
            (pod("Running", container(ended(0)), container(RUNS, name="proxy")),
             "main has ended, proxy runs on"),
            (pod("Running", container(RUNS), init=(container(waits("CrashLoopBackOff"), name="proxy"),)),
             "sidecar proxy CrashLoopBackOff"),
        ],
        Status.TERMINATING: [
            (pod("Running", deleted=True), "being deleted"),
            (
                pod(
                    "Running",
                    deleted=True,
                    conditions=[claim("DisruptionTarget", "True", "New", "for a reason")],
                ),
                "being deleted, for a reason",
            ),
            (pod("Running", container(RUNS), deleted=True, reason="NodeLost"),
             "being deleted, its node does not answer"),
        ],
        Status.UNKNOWN: [(pod("Unknown"), "its node does not answer")],
        Status.FAILED: [
            (pod("Failed", container(ended(1))), "exit 1"),
            (pod("Failed", container(ended(137, "OOMKilled"))), "OOMKilled"),
            (pod("Failed", container(ended(137))), "exit 137 (SIGKILL)"),
            (pod("Failed", container(ended(143))), "exit 143 (SIGTERM)"),
            (pod("Failed", container(ended(139))), "exit 139 (SIGSEGV)"),
            (pod("Failed", container(ended(134))), "exit 134 (SIGABRT)"),
            (pod("Failed", container(ended(135))), "exit 135 (SIGBUS)"),
            (pod("Failed", container(ended(128))), "exit 128"),
            (pod("Failed", container(ended(255))), "exit 255"),
            (pod("Failed", container(ended(0, signal=9))), "failed"),
            (pod("Failed", container(ended(9, signal=9))), "signal 9 (SIGKILL)"),
            (pod("Failed", container(ended(128, "StartError", message="no such file"))),
             "StartError, exit 128: no such file"),
            (pod("Failed", container(ended(137, "ContainerStatusUnknown"))),
             "ended unseen: its node lost track of it"),
            (
                pod(
                    "Failed",
                    container(ended(143, **at(9)), name="proxy"),
                    container(ended(1, message="Traceback\n  line 1\nValueError: no data\n", **at(5))),
                ),
                "exit 1: ValueError: no data",
            ),
            (pod("Failed", reason="Evicted", message="The node was low on memory."),
             "Evicted: The node was low on memory."),
            (pod("Failed", reason="DeadlineExceeded"), "DeadlineExceeded"),
            (pod("Failed", message="Pod was rejected"), "Pod was rejected"),
            (
                pod(
                    "Failed",
                    container(ended(143)),
                    conditions=[claim("DisruptionTarget", "True", "PreemptionByScheduler", "for pod x")],
                ),
                "preempted by a pod of higher priority",
            ),
            (pod("Running", container(ended(2)), container(RUNS), policy="Never"),
             "main exit 2, its other containers run on"),
            (pod("Running", container(ended(2)), policy="Never"), "exit 2"),
            (pod("Running", container(ended(1)), container(ended(0), name="b"), policy="Never"), "exit 1"),
        ],
        Status.RESTARTING: [
            (pod("Running", container(waits("CrashLoopBackOff"), ended(137, "OOMKilled"), restarts=5)),
             "OOMKilled, CrashLoopBackOff, restarted 5 times"),
            (pod("Running", container(ended(2), restarts=1)), "exit 2, restarted once"),
        ],
        Status.PENDING: [
            (pod("Pending", node=""), "not scheduled"),
            (
                pod(
                    "Pending",
                    node="",
                    conditions=[claim("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")],
                ),
                "0/3 nodes are available",
            ),
        ],
        Status.STARTING: [
            (pod("Pending"), "bound, its node has not started it"),
            (pod("Pending", init=(container(RUNS, name="fetch"),)), "init 0/3: fetch runs"),
            (
                pod(
                    "Pending",
                    init=(
                        container(ended(0, "Completed"), name="fetch"),
                        container(waits("CrashLoopBackOff"), ended(1), name="wait"),
                    ),
                ),
                "init 1/3: wait exit 1, CrashLoopBackOff",
            ),
            (pod("Pending", init=(container(ended(3), name="fetch", restarts=3),)),
             "init 0/3: fetch exit 3, restarted 3 times"),
            (pod("Pending", init=(container(waits("ErrImagePull"), name="fetch"),)),
             "init 0/3: fetch waits for image: ErrImagePull"),
            (pod("Pending", init=(container(RUNS, name="proxy"), container(RUNS, name="fetch"))),
             "init 1/3: fetch runs"),
            (pod("Pending", container(waits("ImagePullBackOff", "no such image"))),
             "waits for image: ImagePullBackOff"),
            (pod("Pending", container(waits("CreateContainerConfigError", "no secret x"))),
             "CreateContainerConfigError: no secret x"),
            (pod("Pending", container(waits("ContainerCreating"))), "its container is being created"),
        ],
    }  # fmt: skip
    for status, found in cases.items():
        for each, reason in found:
            assert pod_status(each) == (status, reason)


UNREADY = {"n": "its node n does not answer"}
# The conditions that the node controller leaves on a running pod when its node goes silent.
MARKED = [claim("Ready", "False"), claim("ContainersReady", "True")]


def test_unfinished_pods_of_an_unready_node_have_unknown_status() -> None:
    cases: dict[Status, list[tuple[Pod, str]]] = {
        Status.UNKNOWN: [(pod("Running", container(RUNS)), UNREADY["n"]), (pod("Pending"), UNREADY["n"])],
        Status.TERMINATING: [(pod("Running", deleted=True), f"being deleted, {UNREADY['n']}")],
        Status.SUCCEEDED: [(pod("Succeeded"), "")],
        Status.FAILED: [(pod("Failed", container(ended(1))), "exit 1")],
        Status.RUNNING: [(pod("Running", container(RUNS), node="other"), "")],
    }
    for status, found in cases.items():
        for each, reason in found:
            assert pod_status(each, UNREADY) == (status, reason)


def test_a_lost_node_is_detected_from_pod_conditions_when_nodes_cannot_be_listed() -> None:
    marked = pod("Running", container(RUNS), conditions=MARKED)
    assert pod_status(marked) == (Status.UNKNOWN, "its node does not answer")
    not_ready = [claim("Ready", "False", "ContainersNotReady"), claim("ContainersReady", "False")]
    assert pod_status(pod("Running", container(RUNS), conditions=not_ready))[0] is (Status.RUNNING)


def test_a_pod_ended_when_its_first_bad_container_did() -> None:
    cases: list[tuple[Pod, int | None]] = [
        (pod("Failed", container(ended(1, **at(7))), container(ended(143, **at(9)))), 7),
        (pod("Succeeded", container(ended(0, **at(7))), container(ended(0, **at(9)))), 9),
        (pod("Running", container(RUNS, ended(1, **at(4)))), 4),
        (pod("Running", container(RUNS)), None),
        (pod("Failed", reason="Evicted"), None),
    ]
    for found, second in cases:
        expected = None if second is None else datetime(2026, 11, 20, 14, 2, second, tzinfo=UTC)
        assert ended_at(found) == expected


def test_a_pod_that_only_waits_for_a_readiness_gate_has_not_lost_its_node() -> None:
    why = 'the status of pod readiness gate "x" is not "True"'
    gated = [claim("Ready", "False", "ReadinessGatesNotReady", why), claim("ContainersReady", "True")]
    found = pod("Running", container(RUNS), conditions=gated)
    assert pod_status(found) == (Status.RUNNING, "")


ONCE, ALL = "Restart", "RestartAllContainers"


def test_a_restart_rule_decides_before_the_restart_policy() -> None:
    sidecar = {"name": "watch", "restartPolicy": "Always", **ruled((ALL, "In", [88]), name="watch")}
    again = claim("AllContainersRestarting", "True", "ContainerExited")
    started = claim("AllContainersRestarting", "False")
    cases: dict[Status, list[tuple[Pod, str]]] = {
        Status.RESTARTING: [
            (
                pod(
                    "Running", container(ended(42), restarts=1), spec=with_rules(ruled((ONCE, "In", [9, 42])))
                ),
                "exit 42, restarted once",
            ),
            (pod("Running", container(ended(1)), spec=with_rules(ruled((ONCE, "NotIn", [42])))), "exit 1"),
            (pod("Running", container(ended(0)), spec=with_rules(ruled((ONCE, "In", [0])))), "exit 0"),
            (pod("Running", container(ended(5)), spec=with_rules(ruled(policy="OnFailure"))), "exit 5"),
            (
                pod(
                    "Running",
                    container(ended(1)),
                    container(ended(88), name="b"),
                    spec=with_rules(ruled(), ruled((ALL, "In", [88]), name="b")),
                ),
                "b exit 88, all its containers restart",
            ),
            (
                pod(
                    "Running",
                    container(RUNS),
                    init=(container(ended(88), name="watch"),),
                    spec=with_rules(ruled()) | {"initContainers": [sidecar]},
                ),
                "watch exit 88, all its containers restart",
            ),
            (
                pod("Running", container(ended(137)), spec=with_rules(ruled()), conditions=[again]),
                "all its containers restart",
            ),
            (
                pod(
                    "Pending",
                    container(waits("PodInitializing"), ended(137), restarts=1),
                    init=(container(RUNS, name="fetch"),),
                    policy="Never",
                    conditions=[started],
                ),
                "all its containers restart: init 0/3: fetch runs",
            ),
        ],
        Status.FAILED: [
            (pod("Running", container(ended(1)), spec=with_rules(ruled((ONCE, "In", [42])))), "exit 1"),
            (pod("Running", container(ended(42)), spec=with_rules(ruled((ONCE, "NotIn", [42])))), "exit 42"),
            (pod("Failed", container(ended(42)), spec=with_rules(ruled((ONCE, "In", [42])))), "exit 42"),
        ],
        Status.TERMINATING: [
            (
                pod(
                    "Running", container(ended(42)), spec=with_rules(ruled((ONCE, "In", [42]))), deleted=True
                ),
                "being deleted",
            )
        ],
        Status.RUNNING: [(pod("Running", container(RUNS), policy="Never", conditions=[started]), "")],
    }
    for status, found in cases.items():
        for each, reason in found:
            assert pod_status(each) == (status, reason)


def test_the_main_container_is_found_beside_injected_ones() -> None:
    gpu: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    claimed: dict[str, Any] = {"resources": {"claims": [{"name": "gpu"}]}}
    key, old = "kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"
    cases: list[tuple[str, dict[str, dict[str, Any]], dict[str, str], str]] = [
        ("pytorch", {"proxy": gpu, "pytorch": {}}, {key: "proxy"}, "pytorch"),
        ("pytorch", {"proxy": gpu, "train": {}}, {key: "train"}, "train"),
        ("", {"proxy": {}, "train": gpu, "dump": {}}, {old: "dump"}, "dump"),
        ("", {"proxy": {}, "train": gpu, "dump": {}}, {key: "train", old: "dump"}, "train"),
        ("", {"proxy": {}, "train": gpu}, {key: "gone"}, "train"),
        ("main", {"proxy": {}, "dump": {}, "train": claimed}, {}, "train"),
        ("", {"train": {}, "proxy": {}}, {}, "train"),
        ("", {}, {}, ""),
    ]
    for own, containers, notes, found in cases:
        spec = {"containers": [{"name": name, **more} for name, more in containers.items()]}
        given = msgspec.convert({"metadata": {"annotations": notes}, "spec": spec}, Pod)
        assert main_container(given.metadata, given.spec, own) == found
