"""The loss of running jobs for the list: where it is read, how seldom, and of whom never."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from k8s.jobs.permissions import Permissions
from k8s.snapshot import Job
from k8s.status import Status
from tests.scripted.server import WAIT_S, Answer, Compute, ScriptedCluster
from tests.support.event_files import job_with_event_files, serve_event_files, write_losses
from tests.support.objects import joined, pod_of, pytorch_job
from tests.support.sample_cluster import ago
from tests.tui.keys.world import PODS, REVIEWS
from tui.feeds.loss_feed import LossFeed

LOG = f"{PODS}/bert-master-0/log"


def running(name: str, **meta: Any) -> Job:
    made = pytorch_job(name, gpus=4, **meta)
    job = joined([], [pod_of(made, "master-0", on="a", gpus=4)], [made])[1][name]
    return replace(job, status=Status.RUNNING)


def said(*lines: str) -> Answer:
    at = ago(minutes=1)
    return Answer("".join(f"{at} [rank0]: {line}\n" for line in lines).encode())


async def read(feed: LossFeed, changed: asyncio.Event, times: int = 1) -> None:
    """Let the feed read until something new was found so often."""
    reading = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(WAIT_S):
            for _ in range(times):
                await changed.wait()
                changed.clear()
    finally:
        reading.cancel()
        await asyncio.wait([reading])


async def test_the_loss_is_read_from_the_last_lines_of_the_log_behind_what_the_user_waits_for() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, said("step 1 loss 3.5 lr 0.1", "hello", "step 2 loss 2.5 lr 0.1"))
        visible: list[Job] = []
        changed, job = asyncio.Event(), running("bert")
        feed = LossFeed(client, None, lambda: visible, lambda _: changed.set())
        visible[:] = [job, replace(job, uid="waits", status=Status.PENDING)]
        await read(feed, changed)
        assert feed.values == {job.uid: (3.5, 2.5)}
        (asked,) = cluster.asked(LOG)
        assert asked.query["tailLines"] == "200" and asked.query.get("follow") != "true"


async def test_a_job_is_read_again_only_after_a_while_and_only_while_it_is_wanted() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, said("step 1 loss 3.5"))
        cluster.say(f"{PODS}/gpt-master-0/log", said("step 1 loss 9"), said("step 2 loss 8"))
        changed, visible = asyncio.Event(), list[Job]()
        feed = LossFeed(client, None, lambda: visible, lambda _: changed.set())
        visible[:] = [running("bert")]
        await read(feed, changed)
        visible[:] = [running("bert"), running("gpt")]
        await read(feed, changed)
        assert len(cluster.asked(LOG)) == 1 and len(cluster.asked(f"{PODS}/gpt-master-0/log")) == 1
        soon = LossFeed(client, None, lambda: visible, lambda _: changed.set(), read_s=0.01)
        visible[:] = [running("gpt")]
        await read(soon, changed)
        assert len(cluster.asked(LOG)) == 1 and soon.values["job-gpt"] == (8,)


async def test_only_the_jobs_that_were_read_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.feeds.loss_feed.MAX_JOBS", 2)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        changed, visible = asyncio.Event(), list[Job]()
        feed = LossFeed(client, None, lambda: visible, lambda _: changed.set())
        losses = count(9)
        another = Compute(lambda _: said(f"step 1 loss {next(losses)}"))
        for name in ("bert", "gpt", "vit"):
            cluster.say(f"{PODS}/{name}-master-0/log", another)
            visible[:] = [running(name)]
            await read(feed, changed)
        assert list(feed.values) == ["job-gpt", "job-vit"]
        visible[:] = [running("bert"), running("gpt"), running("vit")]
        await read(feed, changed)
        assert sorted(feed.values) == ["job-bert", "job-gpt", "job-vit"], "none in sight is forgotten"
        assert len(cluster.asked(LOG)) == 2
        hasty = LossFeed(client, None, lambda: visible, lambda _: changed.set(), read_s=0.01)
        for name in ("bert", "gpt", "bert", "vit"):
            visible[:] = [running(name)]
            await read(hasty, changed)
        assert sorted(hasty.values) == ["job-bert", "job-vit"], "bert was read again after gpt"


async def test_event_files_on_this_machine_come_first_and_no_log_is_read(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        learns = job_with_event_files("learns")
        serve_event_files(cluster, learns, tmp_path)
        write_losses(tmp_path / "logs", 1000)
        job = joined([], [pod_of(learns, "master-0", on="a", gpus=1)], [learns])[1]["learns"]
        changed, visible = asyncio.Event(), list[Job]()
        feed = LossFeed(client, None, lambda: visible, lambda _: changed.set())
        visible[:] = [replace(job, status=Status.RUNNING)]
        await read(feed, changed)
        values = feed.values[job.uid]
        assert (len(values), values[0], values[-1]) == (64, 1000.0, 1.0)
        curve = feed.curves[job.uid]
        assert (curve.tag, list(curve.steps)) == ("train/loss", list(range(1000)))
        assert cluster.asked(f"{PODS}/learns-master-0/log") == []


@pytest.mark.parametrize("lines", [("hello",), ("step 1 accuracy 0.5",), ()])
async def test_what_says_no_loss_has_none(lines: tuple[str, ...]) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, said(*lines))
        cluster.say(f"{PODS}/gpt-master-0/log", said("step 1 loss 9"))
        changed, visible = asyncio.Event(), list[Job]()
        feed = LossFeed(client, None, lambda: visible, lambda _: changed.set())
        visible[:] = [running("bert"), running("gpt")]  # one after the other
        await read(feed, changed)
        assert feed.values == {"job-gpt": (9,)} and cluster.asked(LOG)


async def test_logs_that_may_not_be_read_are_not_asked_for() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(REVIEWS, Answer({"status": {"allowed": False}}), method="POST")
        visible: list[Job] = []
        feed = LossFeed(client, Permissions(client), lambda: visible, lambda _: None)
        first, second = running("bert"), running("gpt")
        visible[:] = [first, second]
        reading = asyncio.create_task(feed.run())
        async with asyncio.timeout(WAIT_S):
            while len(feed._read_at_s) < 2:
                await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        assert not [each for each in cluster.requests if each.path.endswith("/log")]
