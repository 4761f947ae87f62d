"""Alerts about the curves of running jobs, found while their logs are read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from k8s.snapshot import CurveAlert
from tests.scripted.server import WAIT_S, ScriptedCluster
from tests.tui.feeds.test_life_feed import LOG, now_said, running, running_feed, until
from tui.feeds.life_feed import LifeFeed
from tui.options import AlertRule


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
            await until(lambda: feed.overlay((job,))[0].alerts if until_found else feed.values)
            return feed.overlay((job,))[0].alerts


FALLS = [2.0 + 8.0 / (1 + place) for place in range(60)]
DIVERGES = [*FALLS, *[9.0] * 40]


async def test_a_loss_that_diverges_marks_the_job() -> None:
    (alert,) = await marks_of(DIVERGES)
    assert alert.rule == "diverged" and alert.text.startswith("its loss is far above its minimum of 2.1")


async def test_rules_that_are_off_mark_nothing() -> None:
    assert await marks_of(DIVERGES, until_found=False, rules=[AlertRule.NAN]) == ()
    assert await marks_of(FALLS, until_found=False) == ()
