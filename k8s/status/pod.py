"""Rules that give a pod its status and reason, and descriptions of ended containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from k8s.models import (
    Condition,
    Container,
    ContainerStatus,
    Meta,
    Pod,
    PodSpec,
    PodStatus,
    Terminated,
    accelerators,
)
from k8s.status import Status

NONE_UNREADY: Mapping[str, str] = {}
# Exit of a container that something else stopped: never the cause.
ASKED_TO_STOP = "exit 143 (SIGTERM)"
# Reasons of a container that waits because its image cannot be pulled.
PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
# Linux's numbers, on whatever system the console runs. Source: signal(7).
_SIGNALS = dict(
    enumerate(
        (
            *("SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE"),
            *("SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"),
        ),
        start=1,
    )
) | {24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS"}
# Kubelet reasons that say more than the exit code beside them.
_ENDS = {"OOMKilled": "OOMKilled", "ContainerStatusUnknown": "ended unseen: its node lost track of it"}
# Source: Kubernetes, "Pod disruption conditions".
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "evicted: its node has a taint that it does not tolerate",
    "EvictionByEvictionAPI": "evicted from its node",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "ended by its node",
}
# Action of a restart rule, and the pod condition while the kubelet carries it out.
_RESTART_ALL, _RESTARTING_ALL = "RestartAllContainers", "AllContainersRestarting"
# Annotations that name the container of a pod for `kubectl logs` and `kubectl exec`; the second is older.
_DEFAULT_CONTAINER = (
    "kubectl.kubernetes.io/default-container",
    "kubectl.kubernetes.io/default-logs-container",
)
# Reasons of a container that waits although nothing is wrong.
_NO_NEWS = frozenset({"", "ContainerCreating", "PodInitializing"})
_EPOCH_YEAR = 1970
_LAST = datetime.max.replace(tzinfo=UTC)


def pod_status(pod: Pod, unready: Mapping[str, str] = NONE_UNREADY) -> tuple[Status, str]:
    """Return the status of a pod and a short reason.

    `unready` has the nodes that are not Ready, with the reason: pod reports from there may be out of date.

    Source: the STATUS column of `kubectl get pods` (printPod), mapped to our ten words.
    """
    if pod.metadata.unreadable:
        return Status.UNKNOWN, f"its object cannot be read in full: {pod.metadata.unreadable}"
    if pod.status.phase == "Succeeded":
        return Status.SUCCEEDED, ""
    if pod.status.phase == "Failed":
        return Status.FAILED, _why_failed(pod)
    lost = unready.get(pod.spec.node_name) or _lost(pod)
    if pod.metadata.deletion_timestamp is not None:
        why = _disruption(pod)
        return Status.TERMINATING, ", ".join(filter(None, ("being deleted", why, lost)))
    if lost:
        return Status.UNKNOWN, lost
    if restarts := _restarts_all(pod):
        return Status.RESTARTING, restarts
    return _running(pod) if pod.status.phase == "Running" else _pending(pod)


def main_container(meta: Meta, spec: PodSpec, own: str = "") -> str:
    """Return the container whose log, files and exit are those of a pod; empty if there is no container.

    Injected sidecars may come first, so the name that the kind of job prescribes (`own`) decides, then
    the annotations that kubectl reads, then the accelerators.
    """
    names = [each.name for each in spec.containers]
    for name in (own, *(meta.annotation(key) for key in _DEFAULT_CONTAINER)):
        if name in names:
            return name
    return next((each.name for each in spec.containers if _has_devices(each)), next(iter(names), ""))


def _has_devices(container: Container) -> bool:
    return bool(accelerators.of_container(container)) or bool(
        container.resources is not None and container.resources.claims
    )


def restarts_in_place(pod: Pod, container: str, exit_code: int) -> bool:
    """Return True if the kubelet starts a container again after this exit.

    A rule decides before the policy of the container, and that before the policy of the pod.

    Source: KEP-5307 and KEP-5532; kubelet, `ShouldContainerBeRestarted`.
    """
    if pod.is_finished or pod.metadata.deletion_timestamp is not None:
        return False
    if _rule_action(pod, container, exit_code) or _restarts_all(pod):
        return True
    spec = _container_spec(pod, container)
    policy = spec.restart_policy or pod.spec.restart_policy or "Always"
    is_init = not spec.restart_policy and any(each is spec for each in pod.spec.init_containers or ())
    return (policy == "Always" and not is_init) or (policy != "Never" and exit_code != 0)


def _container_spec(pod: Pod, name: str) -> Container:
    every = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    return next((each for each in every if each.name == name), Container())


def _rule_action(pod: Pod, container: str, exit_code: int) -> str:
    rules = _container_spec(pod, container).restart_policy_rules or ()
    return next((rule.action for rule in rules if rule.applies_to(exit_code)), "")


def _restarts_all(pod: Pod) -> str:
    """Return the reason why all containers of a pod are stopped and started again; empty if they are not."""
    for status in _all_statuses(pod):
        ended = status.state.terminated
        if ended is not None and _rule_action(pod, status.name, ended.exit_code) == _RESTART_ALL:
            return f"{status.name} {exit_text(ended)}, all its containers restart"
    found = _condition(pod, _RESTARTING_ALL)
    return "all its containers restart" if found is not None and found.status == "True" else ""


def ended_at(pod: Pod) -> datetime | None:
    """Return the time when a pod ended, or when its container last did if the pod goes on.

    Of several failures the first counts: the other containers were stopped because of it.
    """
    statuses = _all_statuses(pod)
    ends = [each.state.terminated for each in statuses if each.state.terminated is not None]
    bad = [end.finished_at for end in ends if end.exit_code and end.finished_at is not None]
    if bad:
        return min(bad)
    if not pod.is_finished:
        ends = [each.last_state.terminated for each in statuses if each.last_state.terminated is not None]
    return (
        max((end.finished_at for end in ends if end.finished_at is not None), default=None) if ends else None
    )


def began_at(pod: Pod) -> datetime | None:
    """Return the start of the first container that ran, as far as known; init containers do not count."""
    first = None
    for status in pod.status.container_statuses or ():
        state, last = status.state, status.last_state.terminated
        for run in (
            (last, state.running or state.terminated) if last else (state.running or state.terminated,)
        ):
            at = run.started_at if run is not None else None
            # Of a container that could not be started the kubelet reports the Unix epoch.
            if at is not None and at.year > _EPOCH_YEAR and (first is None or at < first):
                first = at
    return first


def exit_code(pod: Pod, container: str = "") -> int | None:
    """Return the status with which a shell would report a pod's end; None while none of its containers ended.

    128 + n stands for signal n. Other containers than `container` count only where that did not fail.
    A container that goes on counts with its last run.
    """
    ends = [
        (each.name != container, end.finished_at or _LAST, _shell_status(end))
        for each in _all_statuses(pod)
        if (end := each.state.terminated or each.last_state.terminated) is not None
    ]
    failed = min((end for end in ends if end[2]), default=None)
    if failed is not None and (failed[0] is False or pod.status.phase == "Failed"):
        return failed[2]
    return 0 if any(not is_other for is_other, _, _ in ends) else None


def _shell_status(ended: Terminated) -> int:
    # A kubelet reports 0 or 1 where only a child process was killed.
    if ended.reason == "OOMKilled":
        return 137
    number = 128 + ended.signal if ended.signal else ended.exit_code
    return number if 0 <= number <= 255 else 1


def exit_text(ended: Terminated) -> str:
    """Return the exit of a container as text: `exit 1`, `OOMKilled`, `exit 137 (SIGKILL)`."""
    if ended.reason in _ENDS:
        return _ENDS[ended.reason]
    number = ended.signal or (ended.exit_code - 128 if ended.exit_code > 128 else 0)
    name = f" ({_SIGNALS[number]})" if number in _SIGNALS else ""
    text = f"signal {number}{name}" if ended.signal else f"exit {ended.exit_code}{name}"
    return text if ended.reason in ("", "Error", "Completed") else f"{ended.reason}, {text}"


def signal_name(number: int) -> str:
    """Return the name of a signal of Linux; empty for an unknown one."""
    return _SIGNALS.get(number, "")


def _all_statuses(pod: Pod) -> Sequence[ContainerStatus]:
    init, main = pod.status.init_container_statuses, pod.status.container_statuses or ()
    return [*init, *main] if init else main


def _condition(pod: Pod, name: str) -> Condition | None:
    for found in pod.status.conditions or ():  # a running pod usually has none, so a generator is dear
        if found.type == name:
            return found
    return None


def _lost(pod: Pod) -> str:
    # For a node that does not answer, the node controller sets Ready=False on its pods and leaves the
    # rest, so a pod is not ready for no reason while its containers are. Up to Kubernetes 1.26 a pod
    # being deleted there is also NodeLost.
    if pod.status.phase == "Unknown" or pod.status.reason == "NodeLost":
        return "its node does not answer"
    ready = _condition(pod, "Ready")
    if ready is None or ready.status != "False" or ready.reason:
        return ""
    containers = _condition(pod, "ContainersReady")  # left out of what we keep when it is true
    return "its node does not answer" if containers is None or containers.status == "True" else ""


def _disruption(pod: Pod) -> str:
    found = _condition(pod, "DisruptionTarget")
    if found is None or found.status != "True":
        return ""
    return _DISRUPTIONS.get(found.reason or "", found.message or found.reason or "")


def _why_failed(pod: Pod) -> str:
    if pod.status.reason:
        return _with_message(pod.status.reason, pod.status.message)
    if why := _disruption(pod):
        return why
    ends = [each.state.terminated for each in _all_statuses(pod) if each.state.terminated is not None]
    bad = sorted((end for end in ends if end.exit_code), key=lambda end: end.finished_at or _LAST)
    if bad:
        return _with_message(exit_text(bad[0]), bad[0].message)
    return pod.status.message or "failed"


def _with_message(text: str, message: str) -> str:
    if not (message := message.strip()):
        return text
    from k8s.text.runtime_message import runtime_message  # its pattern is slow to compile

    # The last line is where Python says what was raised.
    lines = runtime_message(message).splitlines()
    return f"{text}: {lines[-1].strip()}" if lines else text


def _running(pod: Pod) -> tuple[Status, str]:
    restarted = over = ""
    runs = []
    for status in pod.status.container_statuses or ():
        ended = status.state.terminated
        if status.state.waiting is not None:
            last = status.last_state.terminated
            why = f"{exit_text(last)}, " if last is not None else ""
            return Status.RESTARTING, f"{why}{status.state.waiting.reason}{_times(status)}"
        if ended is not None and (ended.exit_code or _rule_action(pod, status.name, ended.exit_code)):
            if restarts_in_place(pod, status.name, ended.exit_code):
                return Status.RESTARTING, f"{exit_text(ended)}{_times(status)}"
            if any(each.state.running is not None for each in pod.status.container_statuses or ()):
                return Status.FAILED, f"{status.name} {exit_text(ended)}, its other containers run on"
            return Status.FAILED, _why_failed(pod)  # for seconds, until the kubelet reports the phase too
        if ended is not None:
            over = status.name
        else:
            runs.append(status.name)
        if status.restart_count and status.last_state.terminated is not None:
            restarted = f"restarted {_count(status.restart_count)}, last {_end(status.last_state.terminated)}"
    for status in pod.status.init_container_statuses or ():
        if status.state.waiting is not None:
            return Status.RUNNING, f"sidecar {status.name} {status.state.waiting.reason}"
    return Status.RUNNING, ill_devices(pod.status) or restarted or _ended_text(over, runs)


def ill_devices(status: PodStatus) -> str:
    """Return the devices of a pod that are out of order, `nvidia.com/gpu GPU-3f is unhealthy`; or empty."""
    found = [
        f"{each.name} {device.resource_id} is unhealthy{f': {device.message}' if device.message else ''}"
        for container in status.container_statuses or ()
        for each in container.allocated_resources_status or ()
        for device in each.resources or ()
        if device.health == "Unhealthy"
    ]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def _ended_text(over: str, runs: Sequence[str]) -> str:
    if not runs:  # for seconds, until the kubelet reports the phase too
        return "its containers have ended" if over else ""
    return f"{over} has ended, {' and '.join(runs)} run{'s' * (len(runs) == 1)} on" if over else ""


def _end(ended: Terminated) -> str:
    at = f" at {ended.finished_at.astimezone():%H:%M:%S}" if ended.finished_at is not None else ""
    return exit_text(ended) + at


def _times(status: ContainerStatus) -> str:
    return f", restarted {_count(status.restart_count)}" if status.restart_count else ""


def _count(times: int) -> str:
    return "once" if times == 1 else "twice" if times == 2 else f"{times} times"


def _pending(pod: Pod) -> tuple[Status, str]:
    if not pod.spec.node_name:
        scheduled = _condition(pod, "PodScheduled")
        why = (scheduled.message or scheduled.reason) if scheduled and scheduled.status == "False" else ""
        return Status.PENDING, why or "not scheduled"
    text = _init(pod) or _container(pod) or "bound, its node has not started it"
    # A pod whose containers all restart is Pending until its init containers have run again.
    if _condition(pod, _RESTARTING_ALL) is not None:
        return Status.RESTARTING, f"all its containers restart: {text}"
    return Status.STARTING, text


def _init(pod: Pod) -> str:
    asked = pod.spec.init_containers or ()
    sidecars = {each.name for each in asked if each.restart_policy == "Always"}
    done = 0
    for status in pod.status.init_container_statuses or ():
        state, last = status.state, status.last_state.terminated
        where = f"init {done}/{len(asked)}: {status.name}"
        if (state.terminated is not None and not state.terminated.exit_code) or (
            state.running is not None and status.name in sidecars
        ):
            done += 1
        elif state.terminated is not None:
            return f"{where} {exit_text(state.terminated)}{_times(status)}"
        elif state.waiting is not None and state.waiting.reason in PULL_REASONS:
            return f"{where} waits for image: {state.waiting.reason}"
        elif state.waiting is not None and state.waiting.reason not in _NO_NEWS:
            return f"{where} {f'{exit_text(last)}, ' if last is not None else ''}{state.waiting.reason}"
        elif state.running is not None:
            return f"{where} runs"
    return ""


def _container(pod: Pod) -> str:
    reason = ""
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting
        if waiting is not None and waiting.reason in PULL_REASONS:
            return f"waits for image: {waiting.reason}"
        if waiting is not None and waiting.reason not in _NO_NEWS:
            return _with_message(waiting.reason, waiting.message)
        if waiting is not None and waiting.reason == "ContainerCreating":
            reason = "its container is being created"
    return reason
