"""Alerts about the curves of running jobs, found while their logs are read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from k8s.snapshot import CurveAlert
from k8s.status import Status
from tests.scripted.server import WAIT_S, ScriptedCluster
from tests.tui.feeds.test_life_feed import LOG, now_said, running, running_feed, until
from tests.tui.keys.world import PODS
from tui.feeds.life_feed import LifeFeed, read_life
from tui.options import AlertRule
from tui.runs.store import RunStore
from tui.text.format import Clock, trouble_text

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
            await until(lambda: feed.overlay((job,))[0].alerts if until_found else feed.life.losses)
            return feed.overlay((job,))[0].alerts


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
            assert trouble_text(feed.overlay((job,))[0], CLOCK) == words
            life = await read_life(client, [job], RunStore(tmp_path / f"new {is_read}"))
            assert trouble_text(life.jobs[job.uid], CLOCK) == words
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
            await until(lambda: feed.overlay((over,))[0].alerts)
            asked = len(cluster.asked(log))
            await until(lambda: len(cluster.asked(log)) > asked + 3)
        assert trouble_text(feed.overlay((over,))[0], CLOCK).startswith("its loss is far above")


async def test_rules_that_are_off_mark_nothing() -> None:
    assert await marks_of(DIVERGES, until_found=False, rules=[AlertRule.NAN]) == ()
    assert await marks_of(FALLS, until_found=False) == ()
