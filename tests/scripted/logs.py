"""Scripted pods, whose logs are served as a kubelet does, and break on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from k8s.client.client import Client
from k8s.cluster.backoff import Backoff
from k8s.logs import Target, write_stamp
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, refusal

NS = 1_000_000_000
START_NS = int(datetime(2026, 5, 14, 10, tzinfo=UTC).timestamp()) * NS
# Waits as short as a test likes them
QUICK = Backoff(first_s=0.005, longest_s=0.02, idle_s=5.0, waiting_s=0.01, poll_s=0.01)


class CountedBackoff(Backoff, frozen=True):
    """Waits for nothing, and notes after how many failures in a row it was asked to."""

    healthy_s: float = 0.0
    waiting_s: float = 0.01
    failures: list[int] = msgspec.field(default_factory=list)

    def delay_s(self, failures: int) -> float:
        self.failures.append(failures)
        return 0.0


class Run(msgspec.Struct):
    """One run of a container: its lines, and how it ended."""

    lines: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    first_kept: int = 0  # lines before this one were rotated away
    tail: bytes = b""  # a last line without an end, written at the time of the last line plus 1 ns
    exit_code: int | None = None
    reason: str = ""


class Fault(msgspec.Struct):
    status: int = 0  # answer this instead
    message: str = ""
    cut_after: int | None = None  # break the connection after so many bytes
    end_after: int | None = None  # end the answer as if it were complete after so many bytes
    stall_after: int | None = None  # send nothing after so many bytes, and keep the connection


class ScriptedPod(msgspec.Struct):
    """A pod with one container."""

    name: str
    uid: str = ""
    runs: list[Run] = msgspec.field(default_factory=lambda: [Run()])
    waiting: str = ""  # the container waits for this reason
    restart_policy: str = "OnFailure"
    # Exit codes after which a rule restarts the container, whatever the policy
    restarts_after: tuple[int, ...] = ()
    is_gone: bool = False
    faults: list[Fault] = msgspec.field(default_factory=list)  # used up one per request for the log
    requests: list[dict[str, str]] = msgspec.field(default_factory=list)  # queries of those for its log
    open_streams: int = 0
    changed: asyncio.Condition = msgspec.field(default_factory=asyncio.Condition)

    def write(self, text: str | bytes, *, after_ns: int = 1_000_000, stamp_ns: int | None = None) -> None:
        """Add a line, a millisecond after the last one."""
        run = self.runs[-1]
        last = run.lines[-1][0] if run.lines else START_NS + (len(self.runs) - 1) * 3600 * NS
        raw = text.encode() if isinstance(text, str) else text
        run.lines.append((last + after_ns if stamp_ns is None else stamp_ns, raw))

    async def say(self, *texts: str, after_ns: int = 1_000_000) -> None:
        """Add lines and let those who follow have them."""
        for text in texts:
            self.write(text, after_ns=after_ns)
        await self.tell()

    async def end(self, exit_code: int = 0, reason: str = "") -> None:
        self.runs[-1].exit_code, self.runs[-1].reason = exit_code, reason
        await self.tell()

    async def restart(self) -> None:
        self.runs.append(Run())
        await self.tell()

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, requests: int = 0, streams: int | None = None) -> None:
        """Wait until the log was asked for so often, or so many streams are open."""
        async with self.changed, asyncio.timeout(120):
            await self.changed.wait_for(
                lambda: len(self.requests) >= requests and streams in (None, self.open_streams)
            )

    @property
    def texts(self) -> list[str]:
        return [raw.decode() for run in self.runs for _, raw in run.lines]

    def as_json(self) -> dict[str, Any]:
        run = self.runs[-1]
        state: dict[str, Any] = {"running": {"startedAt": "2026-05-14T10:00:00Z"}}
        phase = "Running"
        if self.waiting:
            state = {"waiting": {"reason": self.waiting}}
            phase = "Pending" if len(self.runs) == 1 else "Running"
        elif run.exit_code is not None:
            state = {"terminated": _terminated(run)}
            if run.exit_code not in self.restarts_after and not (
                run.exit_code and self.restart_policy != "Never"
            ):
                phase = "Failed" if run.exit_code else "Succeeded"
        status = {"name": "main", "state": state, "restartCount": len(self.runs) - 1}
        codes = {"operator": "In", "values": list(self.restarts_after)}
        rule = {"action": "Restart", "exitCodes": codes}
        if len(self.runs) > 1:
            status["lastState"] = {"terminated": _terminated(self.runs[-2])}
        return {
            "metadata": {"name": self.name, "namespace": "lab", "uid": self.uid or self.name},
            "spec": {
                "restartPolicy": self.restart_policy,
                "nodeName": "n1",
                "containers": [{"name": "main", "restartPolicyRules": [rule]}],
            },
            "status": {"phase": phase, "containerStatuses": [status]},
        }

    def described(self, _: Asked) -> Reply:
        return refusal(404, "no such pod") if self.is_gone else Answer(self.as_json())

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        if self.is_gone:
            return await refusal(404, "no such pod").answer(request, closing)
        fault = self.faults.pop(0) if self.faults else Fault()
        asked = dict(request.query)
        previous = asked.get("previous") == "true"
        self.requests.append(asked)
        self.open_streams += 1
        await self.tell()
        refused: Answer | None = None
        if fault.status:
            refused = refusal(fault.status, fault.message)
        elif previous and len(self.runs) < 2:
            refused = refusal(400, "previous terminated container not found")
        elif self.waiting and len(self.runs) == 1:
            refused = refusal(400, f'container "main" in pod "{self.name}" is waiting to start')
        try:
            if refused is not None:
                return await refused.answer(request, closing)
            response = web.StreamResponse()
            await response.prepare(request)
            await self._send(request, response, self.runs[-2 if previous else -1], asked, fault)
            return response
        finally:
            self.open_streams -= 1
            await asyncio.shield(self.tell())

    async def _send(
        self,
        request: web.Request,
        response: web.StreamResponse,
        run: Run,
        asked: dict[str, str],
        fault: Fault,
    ) -> None:
        since_ns = 0
        if asked.get("sinceTime"):
            since_ns = int(datetime.fromisoformat(asked["sinceTime"]).timestamp()) * NS
        tail = asked.get("tailLines")
        done = run.first_kept if tail is None else max(run.first_kept, len(run.lines) - int(tail))
        limits = [fault.cut_after, fault.end_after, fault.stall_after]
        limit = next((each for each in limits if each is not None), None)
        sent = 0
        while True:
            lines = run.lines[done:]
            done += len(lines)
            out = b"".join(_start(stamp, asked) + raw + b"\n" for stamp, raw in lines if stamp >= since_ns)
            is_over = run.exit_code is not None
            if is_over and run.tail and run.lines:
                out += _start(run.lines[-1][0] + 1, asked) + run.tail
            if limit is not None and sent + len(out) >= limit:
                await response.write(out[: limit - sent])
                if fault.cut_after is not None:
                    assert request.transport is not None
                    request.transport.close()
                elif fault.stall_after is not None:
                    async with self.changed:
                        await self.changed.wait_for(lambda: request.transport is None)
                return
            for start in range(0, len(out), 65_521):
                await response.write(out[start : start + 65_521])
            sent += len(out)
            if is_over or asked.get("follow") != "true":
                return
            async with self.changed:
                while len(run.lines) <= done and run.exit_code is None:
                    await self.changed.wait()


def _terminated(run: Run) -> dict[str, Any]:
    return {"exitCode": run.exit_code or 0, "reason": run.reason or "Completed"}


def _start(stamp: int, asked: Mapping[str, str]) -> bytes:
    return f"{write_stamp(stamp)} ".encode() if asked.get("timestamps") == "true" else b""


@asynccontextmanager
async def connected(*pods: ScriptedPod) -> AsyncIterator[tuple[ScriptedCluster, Client]]:
    """Serve pods on loopback and give a client for them."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/version", Answer({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}))
        for pod in pods:
            path = f"/api/v1/namespaces/lab/pods/{pod.name}"
            cluster.say(path, Compute(pod.described))
            cluster.say(f"{path}/log", pod)
        yield cluster, client


def target(pod: ScriptedPod, **more: Any) -> Target:
    return Target("lab", pod.name, pod_uid=pod.uid or pod.name, **more)
