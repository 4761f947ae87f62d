"""Pod status as a kubelet reports it, computed from the state of the containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k8s.sandbox.controller_runtime import now_text
from k8s.sandbox.node.containers import LOOPBACK
from k8s.sandbox.node.processes import Ended

Manifest = dict[str, Any]


@dataclass(slots=True)
class ContainerRun:
    """One container through all its restarts."""

    spec: Mapping[str, Any]
    state: Manifest
    is_init: bool = False
    last_state: Manifest = field(default_factory=dict)
    restarts: int = 0
    has_started: bool = False

    @property
    def name(self) -> str:
        """Return the container's name."""
        return str(self.spec["name"])

    @property
    def is_sidecar(self) -> bool:
        """Return True for an init container that keeps running beside the others."""
        return self.is_init and self.spec.get("restartPolicy") == "Always"

    @property
    def is_initialized(self) -> bool:
        """Return True if the container after this init container may start."""
        return self.has_started if self.is_sidecar else self.exit_code == 0

    @property
    def is_ready(self) -> bool:
        """Return True if the container runs: probes are ignored."""
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; None until the container has ended."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    def status(self, pod_uid: str) -> Manifest:
        """Return the entry for `containerStatuses`."""
        is_running = "running" in self.state
        found: Manifest = {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": "",
            "ready": self.exit_code == 0 if self.is_init and not self.is_sidecar else self.is_ready,
            "started": is_running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }
        if "waiting" not in self.state:
            found["containerID"] = f"sandbox://{pod_uid}/{self.name}/{self.restarts}"
        return found


def terminated(ended: Ended, started_at: str, message: str = "") -> Manifest:
    """Return the state of a container that has ended."""
    if ended.start_error:
        reason = "StartError"
    elif ended.is_oom:
        reason = "OOMKilled"
    else:
        reason = "Error" if ended.exit_code else "Completed"
    state: Manifest = {
        "exitCode": ended.exit_code,
        "reason": reason,
        "startedAt": started_at,
        "finishedAt": now_text(),
    }
    if ended.signal:
        state["signal"] = ended.signal
    if ended.start_error or message:
        state["message"] = ended.start_error or message
    return {"terminated": state}


def phase_of(policy: str, inits: Sequence[ContainerRun], containers: Sequence[ContainerRun]) -> str:
    """Return the phase of a pod. Source: kubelet's `getPhase`."""
    for init in inits:
        if init.is_initialized:
            continue
        if init.is_sidecar:
            return "Pending"
        return "Failed" if init.exit_code is not None and policy == "Never" else "Pending"
    codes = [container.exit_code for container in containers]
    if any("waiting" in container.state and not container.last_state for container in containers):
        return "Pending"
    has_sidecars = any(init.is_sidecar and "running" in init.state for init in inits)
    if any(code is None for code in codes) or policy == "Always" or has_sidecars:
        return "Running"
    if all(code == 0 for code in codes):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def status_of(
    pod: Manifest,
    phase: str,
    inits: Sequence[ContainerRun],
    containers: Sequence[ContainerRun],
    started_at: str,
    verdict: tuple[str, str] = ("", ""),
) -> Manifest:
    """Return the status of a pod; `verdict` is the reason and the message of the pod itself."""
    is_initialized = all(init.is_initialized for init in inits)
    sidecars = [init for init in inits if init.is_sidecar]
    is_ready = phase == "Running" and all(each.is_ready for each in (*containers, *sidecars))
    done = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else ""
    unready = done or "ContainersNotReady"
    claims = [
        ("PodScheduled", True, ""),
        (
            "Initialized",
            is_initialized,
            (done if phase == "Succeeded" else "") if is_initialized else "ContainersNotInitialized",
        ),
        ("ContainersReady", is_ready, "" if is_ready else unready),
        ("Ready", is_ready, "" if is_ready else unready),
    ]
    old = {each["type"]: each for each in (pod.get("status") or {}).get("conditions") or ()}
    found: Manifest = {
        "phase": phase,
        "conditions": [_condition(old.get(kind), kind, is_true, reason) for kind, is_true, reason in claims],
        "containerStatuses": [container.status(pod["metadata"]["uid"]) for container in containers],
        "hostIP": LOOPBACK,
        "podIP": LOOPBACK,
        "podIPs": [{"ip": LOOPBACK}],
        "startTime": started_at,
    }
    if inits:
        found["initContainerStatuses"] = [init.status(pod["metadata"]["uid"]) for init in inits]
    if verdict[0]:
        found |= {"reason": verdict[0], "message": verdict[1]}
    return found


def _condition(old: Manifest | None, kind: str, is_true: bool, reason: str) -> Manifest:
    status = "True" if is_true else "False"
    since = old.get("lastTransitionTime") if old and old.get("status") == status else None
    found = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since or now_text()}
    return found | ({"reason": reason} if reason else {})
