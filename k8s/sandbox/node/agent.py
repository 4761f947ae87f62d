"""Node agent of all nodes of the sandbox: runs the pods bound to them as processes."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from k8s.gpus.ack import NAMESPACE, config_map
from k8s.models.gpu_sharing import SCHEDULE_LABEL, TOPOLOGY, given_gpus
from k8s.models.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS
from k8s.sandbox.controller_runtime import ENDED, Informers, Manifest, Recorder, controller_of, now_text
from k8s.sandbox.node import nodes
from k8s.sandbox.node.containers import ContainerContext, memory_limit
from k8s.sandbox.node.pod_run import RESTART_DELAY_S, PodRun, terminated
from k8s.sandbox.node.processes import DEFAULT_LIMITS, Ended, TreeUsage, UsageMeter, end_marked
from k8s.sandbox.node.programs import write_programs
from k8s.sandbox.node.torch_loopback import write_plugin
from k8s.sandbox.paths import SANDBOX, LogLimits, SandboxPaths
from k8s.text.errors import Conflict, NotFound

# Seconds between two readings of the containers' memory: while any has a limit, and for metrics.
LIMITS_S, USAGE_S = 0.2, 2.0
_FORCED_GRACE_S = 2.0

log = logging.getLogger(__name__)


class Agent:
    """Node agent: starts and stops pods, reports nodes, enforces memory limits."""

    def __init__(
        self,
        informers: Informers,
        paths: SandboxPaths,
        shape: nodes.Shape,
        restart_delay_s: float = RESTART_DELAY_S,
        log_limits: LogLimits = DEFAULT_LIMITS,
    ) -> None:
        self.runs: dict[str, PodRun] = {}
        self.usage: dict[str, dict[str, TreeUsage]] = {}
        """By pod uid and container name."""
        self.pods = informers.of(PODS)
        self.nodes = informers.of(NODES)
        self._client = informers.client
        self._recorder = Recorder(informers.client, "sandbox-agent")
        self._paths = paths
        self._shape = shape
        self._restart_delay_s = restart_delay_s
        self._log_limits = log_limits
        self._since = now_text()
        self._devices = nodes.Devices(shape)
        self._advertised: dict[str, str] = {}
        self._ports = nodes.Ports()
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: set[str] = set()
        self._has_new_pod = asyncio.Event()
        self._with_folders: set[str] = set()

    @property
    def is_working(self) -> bool:
        """Return True if a pod runs that will end by itself; pods of Deployments do not count."""
        owners = [controller_of(run.pod) for run in self.runs.values()]
        return any(owner.get("kind") != DEPLOYMENTS.kind for owner in owners)

    async def gpu_metrics(self, node: str) -> str:
        """Return the metrics of a node's GPUs as a DCGM exporter writes them; empty if they are simulated."""
        if self._shape.is_simulated or node not in self._shape.names:
            return ""
        holders = {
            index: holder
            for uid, indices in self._devices.held(node).items()
            if (run := self.runs.get(uid)) is not None
            for holder in [_holder(run.pod)]
            for index in indices
        }
        return await asyncio.to_thread(nodes.exporter_text, node, holders)

    async def register(self) -> None:
        """Create or update the nodes, and remove the nodes and processes of an earlier sandbox."""
        await self._end_leftovers()
        shutil.rmtree(self._paths.hosts, ignore_errors=True)
        for folder in (self._paths.pods, self._paths.scratch):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._with_folders |= {each.name for each in folder.iterdir()}
        write_programs(self._paths.bin)
        write_plugin(self._paths.python_path)
        for name in self._shape.names:
            node = nodes.manifest(name, self._shape)
            try:
                await self._client.create(NODES, node)
            except Conflict:
                labels = {**dict.fromkeys(nodes.GPU_LABELS), **node["metadata"]["labels"]}
                await self._client.patch(NODES, name, {"metadata": {"labels": labels}})
            found = await self._client.get(NODES, name)
            await self._report_ready(name, nodes.gpu_resource(found["metadata"].get("labels")))
        await self._publish_links()
        for node in await self._client.list(NODES, label_selector=f"{nodes.SANDBOX}=true"):
            if node["metadata"]["name"] not in self._shape.names:
                await self._client.delete(NODES, node["metadata"]["name"])

    async def watch_usage(self) -> None:
        """Measure the containers forever, and kill those that exceed their memory limit."""
        meter, exact_at = UsageMeter(), 0.0
        while True:
            began = time.monotonic()
            held = [(uid, *each) for uid, run in self.runs.items() for each in run.processes().items()]
            limits = {process.pid: memory_limit(container.spec) for _, process, container in held}
            is_exact = began >= exact_at
            found = await asyncio.to_thread(meter.read, limits, is_exact=is_exact) if held else {}
            # Reading takes longer the more processes the machine has: at most a tenth of one core.
            took_s = time.monotonic() - began
            if is_exact:
                exact_at = began + max(USAGE_S, 10 * took_s)
                self.usage = {}
                for uid, process, container in held:
                    self.usage.setdefault(uid, {})[container.name] = found[process.pid]
            for _, process, container in held:
                if 0 < limits[process.pid] < found[process.pid].memory_bytes:
                    process.end_for_memory(
                        found[process.pid].memory_bytes, container.spec["resources"]["limits"]["memory"]
                    )
            specs = [run.pod["spec"] for run in self.runs.values()]
            lists = [each for spec in specs for each in (spec["containers"], spec.get("initContainers", ()))]
            is_limited = any(memory_limit(container) for containers in lists for container in containers)
            with suppress(TimeoutError):
                delay_s = max(LIMITS_S if is_limited else USAGE_S, 10 * took_s)
                await asyncio.wait_for(self._has_new_pod.wait(), delay_s)
            self._has_new_pod.clear()

    async def _publish_links(self) -> None:
        selector = f"{SCHEDULE_LABEL}={TOPOLOGY},{nodes.SANDBOX}=true"
        for old in await self._client.list(CONFIG_MAPS, NAMESPACE, label_selector=selector):
            await self._client.delete(CONFIG_MAPS, old["metadata"]["name"], NAMESPACE)
        matrix = await asyncio.to_thread(self._shape.matrix)
        if matrix is None:
            return
        with suppress(Conflict):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await self._client.create(NAMESPACES, namespace)
        labels = {nodes.SANDBOX: "true", **({nodes.SIMULATED: "true"} if self._shape.is_simulated else {})}
        for name in self._shape.names:
            await self._client.create(CONFIG_MAPS, config_map(name, matrix, labels), NAMESPACE)

    async def _follow_labels(self) -> None:
        for node in self.nodes:
            name, resource = str(node["metadata"]["name"]), nodes.gpu_resource(node["metadata"].get("labels"))
            if name in self._advertised and self._advertised[name] != resource:
                await self._report_ready(name, resource)

    async def _report_ready(self, node: str, resource: str) -> None:
        self._advertised[node] = resource
        status = {"status": nodes.status(self._shape, self._since, resource)}
        await self._client.patch(NODES, node, status, subresource="status")

    async def reconcile(self) -> None:
        """Start bound pods, stop pods that are being deleted, and remove folders of deleted pods."""
        await self._follow_labels()
        present = {str(pod["metadata"]["uid"]): pod for pod in self.pods}
        for uid, pod in present.items():
            is_deleted = bool(pod["metadata"].get("deletionTimestamp"))
            if uid in self.runs:
                if is_deleted:
                    self._end(self.runs[uid], _grace_s(pod))
            elif not self._is_ours(pod):
                continue
            elif is_deleted:
                await self._forget(pod)
            elif uid not in self._seen:
                self._seen.add(uid)
                await self._adopt_pod(pod)
        self._seen &= present.keys()
        for uid, run in self.runs.items():
            if uid not in present:
                run.is_gone = True
                self._end(run, _FORCED_GRACE_S)
        for uid in self._with_folders - present.keys() - self.runs.keys():
            self._with_folders.discard(uid)
            for folder in (self._paths.pods, self._paths.scratch):
                shutil.rmtree(folder / uid, ignore_errors=True)
        self._ports.keep({str(controller_of(pod).get("uid", uid)) for uid, pod in present.items()})

    async def stop(self, grace_s: float) -> None:
        """Stop all pods, each within its grace period, and mark them as failed."""
        message = "The sandbox was stopped while this pod ran."
        runs = list(self.runs.values())
        await asyncio.gather(
            *(run.stop(min(grace_s, _grace_s(run.pod)), "SandboxStopped", message) for run in runs)
        )
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end_leftovers()

    async def _end_leftovers(self) -> None:
        await asyncio.to_thread(end_marked, SANDBOX, str(self._paths.folder))

    def _is_ours(self, pod: Manifest) -> bool:
        # A sandbox that ran before may have had more nodes.
        node = str(pod["spec"].get("nodeName") or "")
        return node in self._shape.names or (node.startswith("sandbox-") and node[8:].isdecimal())

    async def _adopt_pod(self, pod: Manifest) -> None:
        status = pod.get("status") or {}
        if status.get("phase") in ENDED:
            return
        if status.get("startTime") or pod["spec"]["nodeName"] not in self._shape.names:
            await self._fail(pod, "SandboxStopped", "The sandbox was killed while this pod ran.")
        else:
            await self._start(pod, str(pod["spec"]["nodeName"]))

    async def _start(self, pod: Manifest, node: str) -> None:
        uid = str(pod["metadata"]["uid"])
        count = nodes.gpu_requests(pod["spec"])
        gpus = self._devices.allocate(uid, node, count, given_gpus(pod["metadata"]))
        if gpus is None:
            message = (
                "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
                f"{nodes.GPU}. Requested: {count}, Available: {self._devices.free(node)}, which is unexpected"
            )
            await self._fail(pod, "UnexpectedAdmissionError", message)
            return
        owner = str(controller_of(pod).get("uid", ""))
        siblings = [each for each in self.pods if owner and controller_of(each).get("uid") == owner]
        names = {str(each["metadata"]["name"]) for each in siblings}
        names |= {str(each["spec"]["hostname"]) for each in siblings if each["spec"].get("hostname")}
        context = ContainerContext(
            self._paths.scratch / uid / "home",
            self._paths.bin,
            gpus,
            self._shape.is_simulated,
            names,
            self._ports.of(owner) if owner else 0,
            max(1, nodes.cores() // max(1, self._pods_on_this_machine(owner))),
            self._paths.python_path,
            self._paths.hosts / str(pod["metadata"]["namespace"]),
        )
        ours = (self._client, self._recorder, self._paths)
        run = PodRun(pod, *ours, context, self._restart_delay_s, self._log_limits)
        self.runs[uid] = run
        self._has_new_pod.set()
        self._with_folders.add(uid)
        self._begin(self._live(run))

    def _pods_on_this_machine(self, owner: str) -> int:
        # Unbound pods of the same job count too: a job starts as a whole.
        present = [pod for pod in self.pods if (pod.get("status") or {}).get("phase") not in ENDED]
        return sum(
            self._is_ours(pod) or bool(owner and controller_of(pod).get("uid") == owner) for pod in present
        )

    async def _live(self, run: PodRun) -> None:
        try:
            await run.run(lambda: self._devices.release(run.uid))
        except Exception as error:
            log.exception("pod %s", run.pod["metadata"]["name"])
            await run.stop(0.0)
            self._devices.release(run.uid)
            await self._fail(run.pod, "SandboxError", f"The sandbox could not run this pod: {error}")
        finally:
            self._devices.release(run.uid)
            del self.runs[run.uid]
        if run.ends_at_s < math.inf and not run.is_gone:
            await self._forget(run.pod)

    def _end(self, run: PodRun, grace_s: float) -> None:
        # A pod that is deleted again may get less time than at first.
        ends_at_s = asyncio.get_running_loop().time() + grace_s
        if ends_at_s < run.ends_at_s:
            run.ends_at_s = ends_at_s
            self._begin(self._stop(run, grace_s))

    async def _stop(self, run: PodRun, grace_s: float) -> None:
        if not run.is_gone:
            await self._recorder.record(PODS, run.pod, "Killing", "Stopping its containers")
        await run.stop(grace_s)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget(self, pod: Manifest) -> None:
        meta = pod["metadata"]
        where = meta["name"], meta["namespace"]
        with suppress(NotFound, Conflict):
            await self._client.delete(PODS, *where, grace_period_s=0, uid=meta["uid"])

    async def _fail(self, pod: Manifest, reason: str, message: str) -> None:
        meta = pod["metadata"]
        old = pod.get("status") or {}
        statuses = [_lost(each) for each in old.get("containerStatuses") or ()]
        conditions = [
            {**each, "status": "False", "reason": "PodFailed"} if "Ready" in each["type"] else each
            for each in old.get("conditions") or ()
        ]
        status: Manifest = {"phase": "Failed", "reason": reason, "message": message, "conditions": conditions}
        if statuses:
            status["containerStatuses"] = statuses
        change = {"metadata": {"uid": meta["uid"]}, "status": status}
        try:
            await self._client.patch(PODS, meta["name"], change, meta["namespace"], subresource="status")
        except (NotFound, Conflict):
            return
        await self._recorder.record(PODS, pod, reason, message, is_warning=True)


def _holder(pod: Manifest) -> nodes.GpuHolder:
    containers = pod["spec"]["containers"]
    asking = [each for each in containers if nodes.gpu_requests({"containers": [each]})]
    name = str((asking or containers)[0]["name"])
    return nodes.GpuHolder(str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]), name)


def _grace_s(pod: Manifest) -> float:
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    if grace is None:
        grace = pod["spec"].get("terminationGracePeriodSeconds")
    return 30.0 if grace is None else float(grace)


def _lost(status: Manifest) -> Manifest:
    if "terminated" in (status.get("state") or {}):
        return status
    since = ((status.get("state") or {}).get("running") or {}).get("startedAt")
    return {
        **status,
        "ready": False,
        "started": False,
        "state": terminated(Ended(137, signal=9), since or ""),
    }
