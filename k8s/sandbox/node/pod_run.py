"""Life of one pod on this machine: from its volumes to the exit codes of its containers."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from k8s.client.client import Client
from k8s.models.resources import PODS
from k8s.sandbox.controller_runtime import ENDED, FIRST_DELAY_S, LONGEST_DELAY_S, Manifest, Recorder, now_text
from k8s.sandbox.node.containers import (
    LOOPBACK,
    CannotStart,
    ContainerContext,
    launch_of,
    links_of,
    termination_log,
)
from k8s.sandbox.node.processes import DEFAULT_LIMITS, Ended, Process, end_marked
from k8s.sandbox.node.volumes import NotYet, fetch_texts, make_private, prepare
from k8s.sandbox.paths import POD_UID, Launch, LogLimits, SandboxPaths
from k8s.text.errors import Conflict, KubeError, NotFound

# Backoff before the second restart of a container, doubled each time. Source: kubelet.
RESTART_DELAY_S, LONGEST_RESTART_DELAY_S = 10.0, 300.0
# Of a termination message. Source: kubelet.
LONGEST_MESSAGE_BYTES = 4096
IMAGE_IGNORED = "Sandbox: the image is ignored, the command runs as a process of this machine"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class ContainerRun:
    """One container through all its restarts."""

    spec: Mapping[str, Any]
    state: Manifest
    is_init: bool = False
    last_state: Manifest = field(default_factory=dict)
    restarts: int = 0

    @property
    def name(self) -> str:
        """Return the container's name."""
        return str(self.spec["name"])

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
            "ready": self.exit_code == 0 if self.is_init else self.is_ready,
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
        if init.exit_code != 0:
            return "Failed" if init.exit_code is not None and policy == "Never" else "Pending"
    codes = [container.exit_code for container in containers]
    if any("waiting" in container.state and not container.last_state for container in containers):
        return "Pending"
    if any(code is None for code in codes) or policy == "Always":
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
    is_initialized = all(init.exit_code == 0 for init in inits)
    is_ready = phase == "Running" and all(each.is_ready for each in containers)
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


class PodRun:
    """Pod that runs on this machine."""

    def __init__(
        self,
        pod: Manifest,
        client: Client,
        recorder: Recorder,
        paths: SandboxPaths,
        context: ContainerContext,
        restart_delay_s: float = RESTART_DELAY_S,
        log_limits: LogLimits = DEFAULT_LIMITS,
    ) -> None:
        spec = pod["spec"]
        self.pod = pod
        self.uid = str(pod["metadata"]["uid"])
        self.is_gone = False
        self.ends_at_s = math.inf
        self.is_stopping = asyncio.Event()
        self._client = client
        self._recorder = recorder
        self._paths = paths
        self._context = context
        self._restart_delay_s = restart_delay_s
        self._log_limits = log_limits
        self._policy = str(spec.get("restartPolicy") or "Always")
        first = {
            "waiting": {"reason": "PodInitializing" if spec.get("initContainers") else "ContainerCreating"}
        }
        self._inits = [ContainerRun(each, first, is_init=True) for each in spec.get("initContainers") or ()]
        self._containers = [ContainerRun(each, first) for each in spec["containers"]]
        self._started_at = now_text()
        self._verdict = ("", "")
        self._processes: dict[Process, ContainerRun] = {}
        self._asked: set[Process] = set()
        self._publishing = asyncio.Lock()
        self._published: Manifest = {}

    def processes(self) -> dict[Process, ContainerRun]:
        """Return the running processes and their containers."""
        return dict(self._processes)

    async def run(self, release: Callable[[], None]) -> None:
        """Run the pod to its end, call `release`, then publish the final status."""
        await self._publish()
        deadline_s = self.pod["spec"].get("activeDeadlineSeconds")
        watchdog = asyncio.create_task(self._enforce(deadline_s)) if deadline_s else None
        try:
            if await self._has_volumes():
                await self._run_all()
        finally:
            if watchdog is not None:
                watchdog.cancel()
        await asyncio.to_thread(end_marked, POD_UID, self.uid)
        self._withdraw_hosts()
        release()
        await self._publish(is_over=True)

    async def stop(self, grace_s: float, reason: str = "", message: str = "") -> None:
        """Send SIGTERM to its processes, SIGKILL after `grace_s`; a `reason` fails the pod."""
        if reason and not self._verdict[0]:
            self._verdict = (reason, message)
        self.is_stopping.set()
        time_s = asyncio.get_running_loop().time
        deadline = time_s() + grace_s
        processes = list(self._processes)
        for process in processes:
            if process in self._processes and process not in self._asked:
                self._asked.add(process)
                process.request_stop()
        while any(each in self._processes for each in processes) and time_s() < deadline:
            await asyncio.sleep(0.02)
        for process in processes:
            process.end()

    async def _enforce(self, deadline_s: float) -> None:
        await asyncio.sleep(deadline_s)
        message = "Pod was active on the node longer than the specified deadline"
        await self._event("DeadlineExceeded", message, is_warning=True)
        grace_s = float(self.pod["spec"].get("terminationGracePeriodSeconds") or 30)
        await self.stop(grace_s, "DeadlineExceeded", message)

    async def _has_volumes(self) -> bool:
        delay_s = FIRST_DELAY_S
        scratch = self._paths.scratch / self.uid
        last_error = ""
        while not self.is_stopping.is_set():
            try:
                make_private(scratch / "home" / "tmp")
                texts = await fetch_texts(self._client, str(self.pod["metadata"]["namespace"]))
                volumes = await prepare(self.pod, self._client, texts, scratch / "volumes")
            except (NotYet, KubeError, OSError) as error:
                if str(error) != last_error:
                    last_error = str(error)
                    await self._event(
                        "FailedMount", f"MountVolume.SetUp failed: {last_error}", is_warning=True
                    )
                await self._rest(delay_s)
                delay_s = min(delay_s * 2, LONGEST_DELAY_S)
            else:
                self._context = replace(self._context, volumes=volumes, texts=texts)
                return True
        return False

    async def _run_all(self) -> None:
        for init in self._inits:
            await self._run_forever(init)
            if init.exit_code != 0 or self.is_stopping.is_set():
                return
        async with asyncio.TaskGroup() as group:
            for container in self._containers:
                group.create_task(self._run_forever(container))

    async def _run_forever(self, container: ContainerRun) -> None:
        stopping = self.is_stopping
        while not stopping.is_set():
            await self._run_once(container)
            is_wanted = self._policy == "Always" and not container.is_init
            if stopping.is_set() or not (is_wanted or (container.exit_code and self._policy != "Never")):
                return
            delay_s = self._restart_delay_s * 2 ** (container.restarts - 1) if container.restarts else 0.0
            delay_s = min(delay_s, LONGEST_RESTART_DELAY_S)
            container.last_state = container.state
            if delay_s:
                message = f"back-off {delay_s:.0f}s restarting failed container={container.name}"
                container.state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
                await self._event(
                    "BackOff", f"Back-off restarting failed container {container.name}", is_warning=True
                )
                await self._publish()
                await self._rest(delay_s)
                if stopping.is_set():
                    container.state = container.last_state
                    return
            container.restarts += 1

    async def _run_once(self, container: ContainerRun) -> None:
        started_at = now_text()
        if not container.restarts:
            await self._event("Pulled", f"{IMAGE_IGNORED} ({container.spec.get('image', '')})")
        log_error = memory_error = ""
        try:
            launch = launch_of(self.pod, container.spec, self._context)
            self._make_folders(container, launch)
            logs = self._paths.pods / self.uid / container.name
            process = await Process.start(launch, logs, container.restarts, self._log_limits)
        except (CannotStart, OSError) as error:
            ended = Ended(128, start_error=str(error))
        else:
            self._processes[process] = container
            if self.is_stopping.is_set():
                process.end()
            ended = await self._follow(container, process, started_at)
            del self._processes[process]
            log_error, memory_error = process.log_error, process.memory_error
        message = log_error or self._termination_message(container)
        container.state = terminated(ended, started_at, message)
        if ended.is_oom and memory_error:
            message = f"Container {container.name} was killed: {memory_error}"
            await self._event("OOMKilling", message, is_warning=True)
        if ended.start_error or log_error:
            await self._event("Failed", f"Error: {ended.start_error or log_error}", is_warning=True)
        await self._publish()

    def _make_folders(self, container: ContainerRun, launch: Launch) -> None:
        message_file = termination_log(container.spec, self._context)
        make_private(message_file.parent)
        message_file.write_bytes(b"")
        for folder in (*(real for _, real in launch.mounts), launch.cwd):
            if not os.path.exists(folder):
                make_private(Path(folder))
        for link, real in links_of(container.spec, launch, self._context).items():
            make_private(link.parent)
            if link.is_symlink() or not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(real)

    def _termination_message(self, container: ContainerRun) -> str:
        try:
            content = termination_log(container.spec, self._context).read_bytes()
        except OSError:
            return ""
        return content[:LONGEST_MESSAGE_BYTES].decode("utf-8", "replace")

    async def _follow(self, container: ContainerRun, process: Process, started_at: str) -> Ended:
        why = await process.started()
        if why:
            await process.ended()
            return Ended(128, start_error=why)
        if container is self._containers[0]:
            self._publish_hosts()
        container.state = {"running": {"startedAt": started_at}}
        await self._publish()
        await self._event("Created", f"Created container {container.name}")
        await self._event("Started", f"Started container {container.name}")
        return await process.ended()

    def _host_links(self) -> list[Path]:
        names = {self.pod["metadata"]["name"], self.pod["spec"].get("hostname")} - {None}
        return [self._context.hosts / name for name in names]

    def _publish_hosts(self) -> None:
        target = self._paths.pods / self.uid / self._containers[0].name
        make_private(self._context.hosts)
        for link in self._host_links():
            fresh = link.with_name(f".{link.name}.{self.uid}")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(target)
            fresh.replace(link)

    def _withdraw_hosts(self) -> None:
        for link in self._host_links():
            with suppress(OSError):
                if link.readlink().parent.name == self.uid:
                    link.unlink()

    async def _rest(self, delay_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.is_stopping.wait(), delay_s)

    async def _publish(self, *, is_over: bool = False) -> None:
        delay_s = FIRST_DELAY_S
        async with self._publishing:
            while not self.is_gone:
                status = status_of(
                    self.pod,
                    self._phase(is_over),
                    self._inits,
                    self._containers,
                    self._started_at,
                    self._verdict,
                )
                if status == self._published:
                    return
                meta = self.pod["metadata"]
                change = {"metadata": {"uid": self.uid}, "status": status}
                try:
                    await self._client.patch(
                        PODS, meta["name"], change, meta["namespace"], subresource="status"
                    )
                except (NotFound, Conflict):
                    return
                except KubeError as error:
                    log.warning("status of %s: %s", meta["name"], error)
                    await asyncio.sleep(delay_s)
                    delay_s = min(delay_s * 2, LONGEST_DELAY_S)
                else:
                    self._published = status
                    return

    def _phase(self, is_over: bool) -> str:
        if not is_over:
            # Its GPUs are not free before leftover processes have ended.
            phase = phase_of(self._policy, self._inits, self._containers)
            return "Running" if phase in ENDED else phase
        has_worked = all(each.exit_code == 0 for each in (*self._inits, *self._containers))
        return "Succeeded" if has_worked and not self._verdict[0] else "Failed"

    async def _event(self, reason: str, message: str, *, is_warning: bool = False) -> None:
        await self._recorder.record(PODS, self.pod, reason, message, is_warning=is_warning)
