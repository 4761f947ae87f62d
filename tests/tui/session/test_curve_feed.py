"""Sources of a job's curves: its event files, or the lines of its log until those have points."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from k8s.client.client import Client
from k8s.jobs.pod_files import LOCAL_PATH
from k8s.kinds import JobRef
from k8s.kinds.job_spec import JobSpec, Mount
from k8s.kinds.kubeflow.mpi_job import MPIJob
from tests.scripted.server import Answer, ScriptedCluster, Stream, until
from tests.support.event_files import job_with_event_files, serve_event_files
from tests.support.objects import Object, joined, pod_of, pytorch_job
from trainer.tfevents import EventWriter
from tui.runs.curve_feed import CurveFeed

REF = JobRef("default", "bert", "PyTorchJob", "kubeflow.org/v1")
OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
POD = "/api/v1/namespaces/default/pods/bert-master-0"
running = {"name": "pytorch", "state": {"running": {}}, "restartCount": 0}


def line(step: int, loss: float, rank: int = 0) -> bytes:
    return f"2026-01-01T00:00:{step:02}Z [rank{rank}]: step {step} loss {loss} lr 0.1\n".encode()


@asynccontextmanager
async def following(
    client: Client, job: Object, pod: Object, feed: CurveFeed | None = None
) -> AsyncIterator[CurveFeed]:
    """Follow the curves of a job, for the first time or again."""
    row = joined([], [pod], [job])[1]["bert"]
    feed = feed or CurveFeed(client, REF, lambda: row)

    async def nothing() -> None:
        """Draw nothing."""

    task = asyncio.create_task(feed.run(nothing))
    try:
        yield feed
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_reopened_log_stream_adds_each_point_once() -> None:
    job = pytorch_job("bert", gpus=2)
    pod = pod_of(job, "master-0", containerStatuses=[running])
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(POD, Answer(pod))
        cluster.say(f"{POD}/log", Stream(line(1, 2.5), line(2, 2.25)))
        async with following(client, job, pod) as feed:
            await until(lambda: points(feed).get("loss") == [(1, 2.5), (2, 2.25)])
        cluster.forget(f"{POD}/log")
        cluster.say(f"{POD}/log", Stream(line(1, 2.5), line(2, 2.25), line(3, 2.0)))
        async with following(client, job, pod, feed):
            await until(lambda: points(feed)["loss"][-1] == (3, 2.0))
            assert points(feed)["loss"] == [(1, 2.5), (2, 2.25), (3, 2.0)]
            assert not any(curve.restarts for curve in feed.curves())


def points(feed: CurveFeed) -> dict[str, list[Any]]:
    return {curve.tag: list(zip(curve.steps, curve.values, strict=True)) for curve in feed.curves()}


async def test_without_event_files_curves_come_from_the_log_of_rank_0() -> None:
    job = pytorch_job("bert", gpus=2)
    pod = pod_of(job, "master-0", containerStatuses=[running])
    log = Stream(line(1, 2.5), line(1, 7.0, rank=1))
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(OWN, Answer(job))
        cluster.say(POD, Answer(pod))
        cluster.say(f"{POD}/log", log)
        async with following(client, job, pod) as feed:
            await until(lambda: points(feed) == {"loss": [(1, 2.5)], "lr": [(1, 0.1)]})
            assert feed.is_from_log and feed.source_text == "from log lines of master-0"
            log.send(line(2, 2.25))
            await until(lambda: points(feed)["loss"] == [(1, 2.5), (2, 2.25)])
            assert cluster.asked(f"{POD}/log")[0].query["tailLines"] == "20000"
        await log.is_over.wait()


async def test_event_files_replace_log_curves_when_they_appear(tmp_path: Path) -> None:
    job = job_with_event_files("bert")
    pod = pod_of(job, "master-0", containerStatuses=[running])
    log = Stream(line(1, 2.5))
    async with ScriptedCluster() as cluster, cluster.client() as client:
        serve_event_files(cluster, job, tmp_path)
        cluster.say(POD, Answer(pod))
        cluster.say(f"{POD}/log", log)
        async with following(client, job, pod) as feed:
            await until(lambda: feed.is_from_log)
            with EventWriter(tmp_path / "logs", flush_s=0) as writer:
                writer.write_scalar("train/loss", 3, 0.5)
            await until(lambda: points(feed) == {"train/loss": [(3, 0.5)]})
            assert not feed.is_from_log and feed.source_text == "/w/logs on this machine"
            await log.is_over.wait()


async def test_event_files_of_an_mpi_job_are_found_on_its_workers_volume(tmp_path: Path) -> None:
    spec = JobSpec(
        name="bench",
        image="x",
        command=("mpirun", "true"),
        mounts=(Mount("workspace", "/w"),),
        trainer="mpi",
        log_dir="/w/logs",
    )
    job = MPIJob().manifest(spec)
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert "workspace" not in str(launcher)
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}}
    with EventWriter(tmp_path / "logs") as writer:
        writer.write_scalar("benchmark/img_per_sec", 0, 205.0)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/bench", Answer(job))
        cluster.say("/api/v1/namespaces/default/persistentvolumeclaims/workspace", Answer(claim))
        feed = CurveFeed(client, JobRef("default", "bench", "MPIJob", "kubeflow.org/v2beta1"), lambda: None)
        await feed.read_once()
        assert points(feed) == {"benchmark/img_per_sec": [(0, 205.0)]}
        assert feed.source_text == "/w/logs on this machine"
