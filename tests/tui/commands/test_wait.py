"""`wait`: until jobs have ended or run, with their exit status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.reasons.job_reasons import JobReasons
from tests import ROOT
from tests.scripted.server import Answer, ScriptedCluster, Stream, page
from tests.support.objects import Object, pod_of, pytorch_job
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine, Forked
from tui.commands.wait import AwaitedJob, Wait
from tui.tables.filters import own_names
from tui.text.format import Clock

JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
ONE = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/pods"


class Cluster:
    """A cluster whose jobs end when the test says so."""

    def __init__(self, scripted: ScriptedCluster, *names: str) -> None:
        self.scripted = scripted
        self.objects: dict[str, Object] = {}
        self.version = 5
        for path in ("/api/v1/nodes", "/apis/batch/v1/jobs"):
            scripted.say(path, Stream(), watch=True)
        for name in names:
            self.objects[name] = pytorch_job(name)
            self.objects[f"{name}-master-0"] = pod_of(
                self.objects[name], "master-0", on="n1", startTime=at(0)
            )
        self._relist()

    def _relist(self) -> None:
        jobs = [each for each in self.objects.values() if each.get("kind")]
        pods = [each for each in self.objects.values() if not each.get("kind")]
        self.streams = {JOBS: Stream(), PODS: Stream()}
        for path, items in ((JOBS, jobs), (PODS, pods)):
            self.scripted.replace(path, page(items, str(self.version)))
            self.scripted.replace(path, self.streams[path], watch=True)
        for each in jobs:
            self.scripted.replace(f"{ONE}/{each['metadata']['name']}", Answer(each))

    async def until_watched(self, *paths: str) -> None:
        """Wait until both lists are watched: those of all namespaces, or these."""
        for path in paths or (JOBS, PODS):
            await self.scripted.until_asked(path, watch=True)

    def change(self, name: str, status: Object | None) -> None:
        """Set the status of an object and report it; None deletes it."""
        self.version += 1
        obj = self.objects.pop(name)
        path = JOBS if obj.get("kind") else PODS
        meta = {**obj["metadata"], "resourceVersion": str(self.version)}
        if status is None:
            self.scripted.forget(f"{ONE}/{name}")
            self.streams[path].event("DELETED", {**obj, "metadata": meta})
            return
        self.objects[name] = {**obj, "metadata": meta, "status": status}
        self.streams[path].event("MODIFIED", self.objects[name])

    def end(self, name: str, code: int) -> None:
        """Let a pod and then its job end."""
        self.change(f"{name}-master-0", ended(code))
        self.change(name, is_over(code))

    async def restart(self) -> None:
        """Stop answering, and answer again with what is then there."""
        await self.scripted.go_away()
        self._relist()
        await self.scripted.come_back()


def at(second: int) -> str:
    return f"2026-11-20T18:36:{second:02}Z"


def ended(code: int) -> Object:
    end = {"exitCode": code, "startedAt": at(0), "finishedAt": at(9)}
    phase = "Failed" if code else "Succeeded"
    own = {"name": "pytorch", "state": {"terminated": end}, "restartCount": 0}
    return {"phase": phase, "containerStatuses": [own]}


def is_over(code: int) -> Object:
    return {"conditions": [{"type": "Failed" if code else "Succeeded", "status": "True"}]}


async def waiting(run: CommandLine, cluster: Cluster, *words: str) -> Forked:
    child = run.fork("wait", *words)
    await cluster.until_watched()
    return child


async def ends(child: Forked) -> tuple[int, str, str]:
    status, out, err = await child.ends()
    return status, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("words", "status", "out", "said"),
    [
        (("done",), 0, "done Succeeded\n", ""),
        (("PyTorchJob/done", "fails"), 1, "PyTorchJob/done Succeeded\nfails Failed\n", "why fails\n"),
        (("running", "--for=running"), 0, "running Running\n", ""),
        (("done", "--for=running"), 0, "done Succeeded\n", ""),
        (("fails", "running", "--for=succeeded"), 1, "fails Failed\nrunning Running\n", "fails failed: "),
        (("running", "--timeout=0s"), 124, "running Running\n", "running is Running after 0s"),
        (("nosuch", "done"), 1, "", "There is no job nosuch in namespace default."),
        (("done", "--exec", "mail li"), 2, "", "--exec is gone: use wait JOB && COMMAND."),
    ],
)
async def test_wait_returns_at_once_if_the_condition_is_already_decided(
    run: CommandLine, words: tuple[str, ...], status: int, out: str, said: str
) -> None:
    found = await run("wait", *words)
    assert (found.status, found.out) == (status, out), found.err
    assert said in found.err if said else not found.err
    assert not run.cluster.asked(JOBS, watch=True) or status == 124


@pytest.mark.parametrize("words", [(), ("a", "--for=nothing"), ("a", "--timeout=5")])
async def test_wait_rejects_invalid_arguments_before_any_request(
    run: CommandLine, words: tuple[str, ...]
) -> None:
    (await run("wait", *words)).reports(2, "See gpuconsole wait --help")
    assert run.cluster.requests == []


async def test_two_jobs_are_waited_for_through_a_restart_of_the_server(run: CommandLine) -> None:
    jobs = Cluster(run.cluster, "a", "b", "c")
    child = await waiting(run, jobs, "a", "b", "c")
    jobs.end("a", 0)
    jobs.end("b", 3)
    await jobs.restart()
    await run.cluster.until_asked(JOBS, 2, watch=True)
    jobs.end("c", 4)
    status, out, err = await ends(child)
    assert (status, out) == (3, "a Succeeded\nb Failed\nc Failed\n"), err
    assert "-- Lost the connection (away); retrying.\n-- Connected again.\n" in err
    assert "To see why: gpuconsole why b\n" in err


async def test_the_first_failure_ends_a_wait_for_success(run: CommandLine) -> None:
    jobs = Cluster(run.cluster, "a", "b")
    child = await waiting(run, jobs, "a", "b", "--for=succeeded")
    jobs.end("b", 3)
    assert (await ends(child))[:2] == (3, "a Running\nb Failed\n")


async def test_a_deleted_job_ends_the_wait_even_if_recreated_with_the_same_name(run: CommandLine) -> None:
    jobs = Cluster(run.cluster, "a", "b")
    child = await waiting(run, jobs, "a", "b")
    jobs.change("a-master-0", None)
    jobs.change("a", None)
    jobs.change("b-master-0", None)
    b = jobs.objects["b"]
    jobs.streams[JOBS].event("DELETED", b)
    jobs.streams[JOBS].event("ADDED", {**b, "metadata": {**b["metadata"], "uid": "new"}})
    status, out, err = await ends(child)
    assert (status, out) == (1, "a Deleted\nb Deleted\n"), err
    assert "PyTorchJob default/a was deleted before it ended.\n" in err


async def test_wait_returns_the_exit_code_of_a_late_pod_and_1_for_a_deleted_pod(run: CommandLine) -> None:
    jobs = Cluster(run.cluster, "late", "gone")
    late = {**jobs.objects["late-master-0"], "status": ended(3)}
    run.cluster.say("/api/v1/namespaces/default/pods/late-master-0", Answer(late))
    child = await waiting(run, jobs, "late")
    jobs.change("late", is_over(1))
    assert (await ends(child))[:2] == (3, "late Failed\n")
    child = run.fork("wait", "gone")
    await run.cluster.until_asked(PODS, 3, watch=True)  # after two of the first
    jobs.change("gone-master-0", None)
    jobs.change("gone", is_over(1))
    assert (await ends(child))[:2] == (1, "gone Failed\n")


@pytest.mark.parametrize("ends_in_time", [True, False])
async def test_a_job_that_fails_before_its_pod_ends_is_reported_once_its_error_is_read(
    run: CommandLine, ends_in_time: bool
) -> None:
    jobs = Cluster(run.cluster, "late")
    log = b"2026-11-20T18:36:09.000000000Z [rank0]: Traceback (most recent call last):\n"
    log += b"2026-11-20T18:36:09.000000001Z [rank0]: ValueError: no column label_9\n"
    run.cluster.say("/api/v1/namespaces/default/pods/late-master-0/log", Answer(log))
    child = await waiting(run, jobs, "late")
    jobs.change("late", is_over(1))
    await run.cluster.until_asked(PODS, 2, watch=True)
    if ends_in_time:
        jobs.change("late-master-0", ended(3))
    status, _, err = await ends(child)
    assert ("rank 0 exit 3: ValueError: no column label_9" in err) is ends_in_time
    assert ("1 pod still there, with 8 GPUs" in err) is not ends_in_time
    assert status == (3 if ends_in_time else 1)


async def test_ctrl_c_and_timeout_print_the_command_to_wait_again(run: CommandLine) -> None:
    jobs = Cluster(run.cluster, "a")
    child = await run.start("wait", "a", "-A", "--timeout=2h", "--for=succeeded", "-T", "pytorchjob")
    await jobs.until_watched()
    child.send_signal(signal.SIGINT)
    out, err = await child.communicate()
    again = "To wait again: gpuconsole wait a -A -T pytorchjob --for=succeeded --timeout 7200s\n"
    said = f"-- Stopped waiting for PyTorchJob default/a. {again}"
    assert (child.returncode, out, err.decode()) == (130, b"", said)
    ended = await run.process("wait", "a", "--timeout=1s")
    assert (ended.status, ended.out) == (124, "a Running\n")
    assert ended.err == (
        "PyTorchJob default/a is Running after 1s.\nTo wait again: gpuconsole wait a --timeout 1s\n"
    )


async def test_wait_reports_an_unreachable_clusters_job_as_unknown_with_its_last_status(
    run: CommandLine,
) -> None:
    jobs = Cluster(run.cluster, "a")
    child = await waiting(run, jobs, "a", "--timeout=2s")
    await run.cluster.go_away()
    status, out, err = await ends(child)
    assert (status, out) == (124, "a Unknown\n")
    assert "PyTorchJob default/a was last seen Running (away) after 2s.\n" in err
    await run.cluster.come_back()


async def test_a_terminal_shows_each_change(run: CommandLine) -> None:
    jobs = Cluster(run.cluster, "a")
    words = (sys.executable, "-P", "-m", "tui", "wait", "a")

    def seen(loop: Any) -> str:
        with Terminal(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, folder=run.home) as terminal:
            terminal.wait_for("-- a: Running")
            loop.call_soon_threadsafe(jobs.end, "a", 0)
            return terminal.wait_for("a Succeeded")

    assert "-- a: Succeeded" in await asyncio.to_thread(seen, asyncio.get_running_loop())


async def test_wait_for_silent_ends_when_the_first_job_stops_logging(cluster: ScriptedCluster) -> None:
    jobs = Cluster(cluster, "a", "hung")
    newest = datetime.now(UTC) - timedelta(minutes=10)
    steps = [
        f"{newest + timedelta(seconds=2 * step):%Y-%m-%dT%H:%M:%S.000000001Z} step {step + 50} loss 0.5\n"
        for step in range(-50, 1)
    ]
    for name in ("a", "hung"):
        pod = f"/api/v1/namespaces/default/pods/{name}-master-0"
        cluster.say(pod, Answer(jobs.objects[f"{name}-master-0"]))
        cluster.say(f"{pod}/log", Answer("".join(steps).encode() if name == "hung" else b""))
    async with cluster.client() as client:
        mirror = ClusterMirror(client, "default")
        found = (await mirror.read_once()).jobs
        awaited = [AwaitedJob(job.ref, words=job.ref.name) for job in found if job.ref.name in jobs.objects]
        wait = Wait(client, awaited, "silent", read_s=0.01)
        await wait.run(JobReasons(mirror, own_names))
        assert {each.words: each.state for each in wait.jobs} == {"a": "Running", "hung": "Silent"}
        reasons = [each.reason(Clock(datetime.now(UTC))) for each in wait.jobs if each.signs.silence]
        assert (wait.status, reasons) == (0, ["no line for 10m, usually every 2s"])


async def test_wait_for_silent_fails_if_every_job_ended(run: CommandLine) -> None:
    for name, state in (("done", "Succeeded"), ("fails", "Failed")):
        ended = await run("wait", name, "--for=silent")
        assert (ended.status, ended.out) == (1, f"{name} {state}\n")
        assert ended.err.endswith("No job fell silent before it ended.\n")
