"""Signs of life, loss and alerts of running jobs: where they are read, how seldom, and of whom never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.jobs.permissions import Permissions
from k8s.logs import Item, LogHub, LogRequest, targets_of
from k8s.snapshot import NO_SIGNS, CurveAlert, Job
from k8s.status import Status
from tests.scripted.server import WAIT_S, Answer, Compute, ScriptedCluster, Stream, page, refusal, until
from tests.support.event_files import job_with_event_files, serve_event_files, write_losses
from tests.support.objects import elastic_job, joined, pod_of, pytorch_job
from tests.support.sample_cluster import ago
from tests.tui.settings.keys.world import PODS, REVIEWS
from tui.commands.support.life import read_life
from tui.runs.journal.kept_facts import KeptCurves, kept_events
from tui.runs.journal.kept_logs import KEPT_LINES, KeptLogs
from tui.runs.record import RunRecord
from tui.runs.run_records import read_run
from tui.runs.store import RunStore
from tui.session.life_feed import LifeFeed
from tui.settings.options import AlertRule
from tui.text.format import Clock, trouble_text
from tui.text.instances import format_ranks

LOG = f"{PODS}/bert-master-0/log"
EVENTS = "/api/v1/namespaces/default/events"
RUNS = {"name": "pytorch", "state": {"running": {}}, "restartCount": 0}


def running(name: str, **meta: Any) -> Job:
    made = pytorch_job(name, gpus=4, **meta)
    job = joined([], [pod_of(made, "master-0", on="a", gpus=4)], [made])[1][name]
    return replace(job, status=Status.RUNNING)


def said(*lines: str) -> Answer:
    at = ago(minutes=1)
    return Answer("".join(f"{at} [rank0]: {line}\n" for line in lines).encode())


def feed_of(
    client: Client, visible: list[Job], changed: asyncio.Event, *, permissions: Any = None, **more: Any
) -> LifeFeed:
    """Return a feed of the visible jobs; of the user's own there are none."""
    feed = LifeFeed(client, permissions, tuple, **more)
    feed.life.watch("test", lambda: visible, lambda _: changed.set())
    return feed


async def read(feed: LifeFeed, changed: asyncio.Event, times: int = 1) -> None:
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


async def test_the_loss_of_running_jobs_is_read_from_the_last_1000_log_lines() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, said("step 1 loss 3.5 lr 0.1", "hello", "step 2 loss 2.5 lr 0.1"))
        visible: list[Job] = []
        changed, job = asyncio.Event(), running("bert")
        feed = feed_of(client, visible, changed)
        visible[:] = [job, replace(job, uid="waits", status=Status.PENDING)]
        await read(feed, changed)
        assert feed.life.losses == {job.uid: (3.5, 2.5)}
        (asked,) = cluster.asked(LOG)
        assert asked.query["tailLines"] == "1000" and asked.query.get("follow") != "true"


async def test_the_lines_of_a_followed_log_are_not_read_again() -> None:
    stream = Stream(said("step 1 loss 3.5").body, said("step 2 loss 2.5").body)
    made = pytorch_job("bert", gpus=4)
    pod = pod_of(made, "master-0", on="a", gpus=4, containerStatuses=[RUNS])
    job = replace(joined([], [pod], [made])[1]["bert"], status=Status.RUNNING)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(f"{PODS}/bert-master-0", Answer(pod))
        cluster.say(LOG, stream)
        hub, changed, seen = LogHub(client), asyncio.Event(), list[Item]()
        async with aclosing(hub.open(targets_of(job)[0], LogRequest(tail=1_000)).batches()) as batches:
            while len(seen) < 2:
                seen += await anext(batches)
            feed = feed_of(client, [job], changed, hub=hub)
            await read(feed, changed)
            assert feed.life.losses == {job.uid: (3.5, 2.5)}
            assert len(cluster.asked(LOG)) == 1
        await hub.close()


async def test_a_jobs_loss_is_polled_at_intervals_and_only_while_visible() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, said("step 1 loss 3.5"))
        cluster.say(f"{PODS}/gpt-master-0/log", said("step 1 loss 9"), said("step 2 loss 8"))
        changed, visible = asyncio.Event(), list[Job]()
        feed = feed_of(client, visible, changed)
        visible[:] = [running("bert")]
        await read(feed, changed)
        visible[:] = [running("bert"), running("gpt")]
        await read(feed, changed)
        assert len(cluster.asked(LOG)) == 1 and len(cluster.asked(f"{PODS}/gpt-master-0/log")) == 1
        soon = feed_of(client, visible, changed, read_s=0.01)
        visible[:] = [running("gpt")]
        await read(soon, changed)
        assert len(cluster.asked(LOG)) == 1 and soon.life.losses["job-gpt"] == (8,)


async def test_losses_are_cached_for_visible_and_most_recently_read_jobs_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tui.session.life_feed.MAX_JOBS", 2)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        changed, visible = asyncio.Event(), list[Job]()
        feed = feed_of(client, visible, changed)
        losses = count(9)
        another = Compute(lambda _: said(f"step 1 loss {next(losses)}"))
        for name in ("bert", "gpt", "vit"):
            cluster.say(f"{PODS}/{name}-master-0/log", another)
            visible[:] = [running(name)]
            await read(feed, changed)
        assert list(feed.life.losses) == ["job-gpt", "job-vit"]
        visible[:] = [running("bert"), running("gpt"), running("vit")]
        await read(feed, changed)
        assert sorted(feed.life.losses) == ["job-bert", "job-gpt", "job-vit"], "none in sight is forgotten"
        assert len(cluster.asked(LOG)) == 2
        hasty = feed_of(client, visible, changed, read_s=0.01)
        for name in ("bert", "gpt", "bert", "vit"):
            visible[:] = [running(name)]
            await read(hasty, changed)
        assert sorted(hasty.life.losses) == ["job-bert", "job-vit"], "bert was read again after gpt"


async def test_the_loss_in_event_files_on_this_machine_comes_first(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        learns = job_with_event_files("learns")
        serve_event_files(cluster, learns, tmp_path)
        write_losses(tmp_path / "logs", 1000)
        job = joined([], [pod_of(learns, "master-0", on="a", gpus=1)], [learns])[1]["learns"]
        changed, visible = asyncio.Event(), list[Job]()
        feed = feed_of(client, visible, changed)
        visible[:] = [replace(job, status=Status.RUNNING)]
        await read(feed, changed)
        values = feed.life.losses[job.uid]
        assert (len(values), values[0], values[-1]) == (64, 1000.0, 1.0)
        curve = feed.life.curves[job.uid]
        assert (curve.tag, list(curve.steps)) == ("train/loss", list(range(1000)))


@pytest.mark.parametrize("lines", [("hello",), ("step 1 accuracy 0.5",), ()])
async def test_a_log_without_a_loss_gives_no_value(lines: tuple[str, ...]) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, said(*lines))
        cluster.say(f"{PODS}/gpt-master-0/log", said("step 1 loss 9"))
        changed, visible = asyncio.Event(), list[Job]()
        feed = feed_of(client, visible, changed)
        visible[:] = [running("bert"), running("gpt")]  # one after the other
        await read(feed, changed)
        assert feed.life.losses == {"job-gpt": (9,)} and cluster.asked(LOG)


@pytest.mark.parametrize("marks", ["[rank1]: ", ""])
async def test_the_loss_of_an_elastic_job_is_read_from_the_pod_that_runs_rank_0(
    tmp_path: Path, marks: str
) -> None:
    made, pods = elastic_job("gale")
    job = joined([], pods, [made])[1]["gale"]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(f"{PODS}/gale-worker-0/log", now_said(*((50, f"{marks}joined"),) * bool(marks)))
        steps = (f"{'[rank0]: ' if marks else ''}step {place} loss 1.5" for place in range(20))
        cluster.say(
            f"{PODS}/gale-worker-1/log", now_said(*((40.0 - at, text) for at, text in enumerate(steps)))
        )
        changed = asyncio.Event()
        feed = feed_of(client, [job], changed)
        await read(feed, changed)
        assert feed.life.losses[job.uid][-1] == 1.5
        await until(lambda: feed.evidence)
        mirror = ClusterMirror(client)
        _, now = await read_life(mirror, [job], RunStore(tmp_path))
        assert now.losses[job.uid][-1] == 1.5
        for evidence in (feed.evidence, mirror.evidence):
            (found,) = joined([], pods, [made], evidence=evidence)[1].values()
            ranks = [format_ranks(each.ranks, each.ranks_proof) for each in found.instances]
            assert ranks == (["=1", "=0"] if marks else ["~1", "~0"])
            assert [each.is_chief for each in found.instances] == [False, True]
        assert (await read_run(client, job)).source == "the log of worker-1"
        over = replace(job, status=Status.SUCCEEDED)
        _, now = await read_life(mirror, [over], RunStore(tmp_path))
        assert now.losses[job.uid][-1] == 1.5


async def test_forbidden_logs_are_not_requested() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(REVIEWS, Answer({"status": {"allowed": False}}), method="POST")
        visible: list[Job] = []
        feed = feed_of(client, visible, asyncio.Event(), permissions=Permissions(client))
        first, second = running("bert"), running("gpt")
        visible[:] = [first, second]
        reading = asyncio.create_task(feed.run())
        async with asyncio.timeout(WAIT_S):
            while not feed.life.is_idle():
                await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        assert not [each for each in cluster.requests if each.path.endswith("/log")]


def now_said(*lines: tuple[float, str]) -> Answer:
    return Answer(
        "".join(f"{ago(seconds=seconds)[:-1]}.000000000Z {text}\n" for seconds, text in lines).encode()
    )


@asynccontextmanager
async def running_feed(feed: LifeFeed) -> AsyncIterator[None]:
    reading = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.wait([reading])


STEPS = [(100.0 - place, f"step {place} loss 1.5") for place in range(20)]


async def test_the_users_own_job_is_checked_for_silence_and_nan_while_not_visible() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        own = replace(running("bert"), user=client.config.acting_user)
        other = replace(running("gpt"), user="chen")
        cluster.say(LOG, now_said(*STEPS))
        marked = asyncio.Event()
        feed = LifeFeed(client, None, lambda: jobs, on_signs=marked.set, least_s=0.6, read_s=0.05)
        jobs = (own, other)
        assert feed.signs(jobs) == {}
        async with running_feed(feed), asyncio.timeout(WAIT_S):
            await marked.wait()
            signs = feed.signs(jobs)
            silence = signs[own.uid].silence
            assert silence is not None and silence.usual_s == 1.0 and signs.keys() == {own.uid}
            assert feed.signs([replace(own, status=Status.FAILED)]) == {own.uid: NO_SIGNS}
            assert not feed.evidence
            marked.clear()
            cluster.say(LOG, now_said(*STEPS, (0.0, "step 20 loss nan")))
            await until(lambda: [each.rule for each in feed.signs(jobs)[own.uid].alerts] == ["nan"])
        assert not cluster.asked(f"{PODS}/gpt-master-0/log")


@asynccontextmanager
async def ended(
    folder: Path, last: Answer, status: Status
) -> AsyncIterator[tuple[ScriptedCluster, Client, LifeFeed, Job]]:
    """Let a watched job of this user end, whose log is then answered with `last`, until that is recorded."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        job = replace(running("bert"), user=client.config.acting_user)
        answers = [now_said(*STEPS)]
        cluster.say(LOG, Compute(lambda _: answers[0]))
        told = [{"metadata": {"name": each}, "involvedObject": {"name": each}} for each in ("bert", "gpt")]
        cluster.say(EVENTS, page(told))
        jobs: tuple[Job, ...] = (job,)
        feed = LifeFeed(client, None, lambda: jobs, runs=RunStore(folder))
        async with running_feed(feed):
            await until(lambda: feed.life.losses)
            jobs = (replace(job, restarts=1),)
            await until(lambda: cluster.asked(EVENTS))
            await feed._with_events.join()
            assert len(kept_events(feed.runs.journal, job.uid)) == 1
            feed.runs.journal.write(("DELETE FROM events",))
            answers[0] = last
            jobs = (replace(job, status=status),)
            await until(lambda: job.uid in feed.runs)
            await feed._to_keep.join()
            await feed._with_events.join()
        yield cluster, client, feed, jobs[0]


async def test_the_last_loss_of_a_job_that_ends_is_read_once_more_and_stored(tmp_path: Path) -> None:
    last = now_said(*STEPS, (0.0, "step 20 loss 0.25"))
    async with ended(tmp_path, last, Status.SUCCEEDED) as (cluster, client, feed, job):
        assert RunStore(tmp_path).find(job.uid) == 0.25 and feed.life.losses[job.uid][-1] == 0.25
        asked = [each.query["tailLines"] for each in cluster.asked(LOG)]
        assert asked[-2:] == [str(KEPT_LINES), "1"] and asked.count(str(KEPT_LINES)) == 1
        kept = KeptLogs(feed.runs.journal, RunRecord(job.uid))
        assert [each.name for each in kept.targets] == ["master-0"]
        assert [about for about, _ in kept_events(feed.runs.journal, job.uid)] == ["job"]
        assert len(cluster.asked(EVENTS)) == 2
        (loss,) = KeptCurves(feed.runs.journal, job.uid).curves()
        assert (loss.tag, list(loss.steps)[-2:], loss.values[-1]) == ("loss", [19, 20], 0.25)
        await read_life(ClusterMirror(client), [job], RunStore())
        assert cluster.asked(LOG)[-1].query["tailLines"] == "1000"
        count = len(cluster.asked(LOG))
        _, now = await read_life(ClusterMirror(client), [job], RunStore(tmp_path))
        assert len(cluster.asked(LOG)) == count and not now.losses, "it is known"


async def test_no_final_loss_is_stored_if_the_pod_is_gone(tmp_path: Path) -> None:
    gone = refusal(404, "pods bert-master-0 not found", "NotFound")
    async with ended(tmp_path, gone, Status.FAILED) as (_, _, feed, job):
        assert RunStore(tmp_path).find(job.uid) is None and not feed.life.losses


async def test_hundreds_of_jobs_cost_no_more_requests_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.session.life_feed.BURST", 5)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        user = client.config.acting_user
        jobs = tuple(replace(running(f"job-{number}"), user=user) for number in range(200))
        feed = LifeFeed(client, None, lambda: jobs, read_s=0.01, per_s=0.001)
        async with running_feed(feed):
            await until(lambda: len(cluster.requests) >= 5)
            await asyncio.wait([asyncio.create_task(feed._limiter.acquire(is_urgent=False))], timeout=0.1)
        assert len([each for each in cluster.requests if each.path.endswith("/log")]) == 5
        assert len({each.path for each in cluster.requests}) == 5


async def test_a_job_that_is_deleted_while_it_is_watched_keeps_its_record(tmp_path: Path) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        user = client.config.acting_user
        job, hidden = (replace(running(name), user=user) for name in ("bert", "gpt"))
        cluster.say(LOG, now_said(*STEPS))
        cluster.say(f"{PODS}/gpt-master-0/log", now_said(*STEPS))
        path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
        there = {"metadata": {"name": "gpt", "namespace": "default", "uid": hidden.uid}}
        cluster.say(f"{path}/gpt", Answer(json.dumps(there).encode()))
        jobs: tuple[Job, ...] = (job, hidden)
        feed = LifeFeed(client, None, lambda: jobs, runs=RunStore(tmp_path))
        async with running_feed(feed):
            await until(lambda: len(feed.life.losses) == 2)
            jobs = ()  # another namespace is shown, and one of the jobs was deleted
            await until(lambda: feed.runs.get(job.uid) and not feed._gone)
            last = feed.life.losses[job.uid][-1]
            jobs = (replace(running("next"), status=Status.PENDING),)
            await until(lambda: not any(feed._by_uid))
        found = RunStore(tmp_path).get(job.uid)
        assert found is not None and (found.status, found.is_partial) == ("Deleted", True)
        assert found.loss == last and found.ended_s and hidden.uid not in feed.runs


CLOCK = Clock(datetime.now(UTC))


async def marks_of(losses: list[float], until_found: bool = True, **options: Any) -> tuple[CurveAlert, ...]:
    """Return the alerts of a job of the user that prints losses."""
    lines = [
        (float(len(losses) - place), f"step {place + 1} loss {loss}") for place, loss in enumerate(losses)
    ]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        job = replace(running("bert"), user=client.config.acting_user)
        cluster.say(LOG, now_said(*lines))
        feed = LifeFeed(client, None, lambda: (job,), **options)
        async with running_feed(feed), asyncio.timeout(WAIT_S):
            await until(lambda: feed.signs([job]) if until_found else feed.life.losses)
            return feed.signs([job]).get(job.uid, NO_SIGNS).alerts


FALLS = [2.0 + 8.0 / (1 + place) for place in range(60)]
DIVERGES = [*FALLS, *[9.0] * 40]


async def test_a_loss_that_diverges_marks_the_job() -> None:
    (alert,) = await marks_of(DIVERGES)
    assert alert.rule == "diverged" and alert.text.startswith("its loss is far above its minimum of 2.1")


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (DIVERGES, "its loss is far above its minimum of 2.14 since step 61"),
        ([*FALLS, float("nan")], "its last loss is not a finite number"),
        (FALLS, ""),
    ],
)
async def test_a_run_that_ends_with_nan_or_diverged_is_marked_also_from_its_record(
    tmp_path: Path, losses: list[float], words: str
) -> None:
    lines = [(100.0, f"step {place + 1} loss {loss}") for place, loss in enumerate(losses)]
    job = replace(running("bert"), status=Status.SUCCEEDED, reason="")
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, now_said(*lines))
        for is_read in (True, False):
            runs = RunStore(tmp_path)
            feed = LifeFeed(client, None, tuple, runs=runs)
            feed.life.watch("test", lambda: [job])
            async with running_feed(feed), asyncio.timeout(WAIT_S):
                while not (job.uid in runs and feed.life.is_idle()):
                    await asyncio.sleep(0.01)
            assert trouble_text(feed.signs([job]).get(job.uid, NO_SIGNS), CLOCK) == words
            _, now = await read_life(ClusterMirror(client), [job], RunStore(tmp_path / f"new {is_read}"))
            assert trouble_text(now.signs(job), CLOCK) == words
        asked = len([each for each in cluster.requests if each.path == LOG])
        assert asked == 3, "the feed that found a record read no log"


async def test_a_run_that_ended_diverged_stays_marked_while_other_jobs_are_read() -> None:
    lines = [(100.0, f"step {place + 1} loss {loss}") for place, loss in enumerate(DIVERGES)]
    over, other = replace(running("bert"), status=Status.SUCCEEDED, reason=""), running("gpt")
    log = f"{PODS}/gpt-master-0/log"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(LOG, now_said(*lines))
        cluster.say(log, now_said((50.0, "step 1 loss 3")))
        feed = LifeFeed(client, None, tuple, read_s=0.001)
        feed.life.watch("test", lambda: [over, other])
        async with running_feed(feed), asyncio.timeout(WAIT_S):
            await until(lambda: feed.signs([over]))
            asked = len(cluster.asked(log))
            await until(lambda: len(cluster.asked(log)) > asked + 3)
        assert trouble_text(feed.signs([over])[over.uid], CLOCK).startswith("its loss is far above")


async def test_rules_that_are_off_mark_nothing() -> None:
    assert await marks_of(DIVERGES, until_found=False, rules=[AlertRule.NAN]) == ()
    assert await marks_of(FALLS, until_found=False) == ()
