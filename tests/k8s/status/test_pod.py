"""Status and reason of a pod."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from k8s.models import Pod
from k8s.status import Status
from k8s.status.pod import ended_at, main_container, pod_status


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
        for given, reason in found:
            assert pod_status(given) == (status, reason)


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
