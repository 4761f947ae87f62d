"""How the container is whose log is read: before it, in a run, between two runs, or over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from k8s.errors import KubeError
from k8s.models import ContainerStatus, Pod, Terminated
from k8s.status import Status
from k8s.status.pod import pod_status


class ContainerView(NamedTuple):
    """What the pod's object says of one container: which run it is in, and whether there is a log."""

    pod_uid: str
    run: int
    """How often it was restarted."""
    has_log: bool
    """It has run, so there is something to read."""
    is_over: bool
    """Its run has ended, so nothing will be added to its log."""
    restarts: bool
    """It will run again, or may."""
    words: str
    """Why it waits or how it ended: `ContainerCreating`, `exit 137 OOMKilled`."""
    last_words: str = ""
    """How the run before this one ended."""


UNKNOWN = ContainerView("", 0, True, False, True, "")
"""A container that we may not look at: its log is all there is."""


def container_view(obj: Mapping[str, Any], container: str) -> ContainerView | None:
    """Read how a container of a pod is; None when the pod has no such container.

    Args:
        obj: The pod, as JSON.
        container: Its name; empty for the first.

    Raises:
        KubeError: It is not a pod that makes sense.
    """
    try:
        pod = msgspec.convert(obj, Pod)
    except msgspec.ValidationError as error:
        raise KubeError("The server's answer makes no sense.", f"It is no pod: {error}") from error
    statuses = [*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ())]
    init = [each.name for each in pod.spec.init_containers or ()]
    names = [each.name for each in pod.spec.containers]
    if container and container not in (*names, *init):
        return None
    name = container or next(iter(names), "")
    status = next((each for each in statuses if each.name == name), ContainerStatus(name))
    now, last = status.state, status.last_state.terminated
    uid, run = pod.metadata.uid, status.restart_count
    policy = str((obj.get("spec") or {}).get("restartPolicy") or "Always")
    last_words = ended_words(last)
    if now.terminated is not None:
        failed = now.terminated.exit_code != 0
        again = (policy == "Always" and name not in init) or (policy != "Never" and failed)
        again = again and not pod.is_finished and pod.metadata.deletion_timestamp is None
        return ContainerView(uid, run, True, True, again, ended_words(now.terminated), last_words)
    if pod.is_finished:
        words = pod_status(pod)[1] or pod.status.phase
        return ContainerView(uid, run, last is not None, True, False, words, last_words)
    if now.running is not None:
        return ContainerView(uid, run, True, False, True, "", last_words)
    waiting = now.waiting
    words = waiting.reason if waiting is not None else ""
    if not words:
        found, why = pod_status(pod)
        words = why if found in (Status.PENDING, Status.STARTING) else "not started"
    return ContainerView(uid, run, last is not None, last is not None, True, last_words or words, last_words)


def ended_words(ended: Terminated | None) -> str:
    """Return how a run ended: `exit 137 OOMKilled`; empty when it has not."""
    if ended is None:
        return ""
    words = f"signal {ended.signal}" if ended.signal else f"exit {ended.exit_code}"
    return f"{words} {ended.reason}" if ended.reason not in ("", "Error", "Completed") else words
