"""The events of a namespace, mirrored while a view is shown."""

from __future__ import annotations

import asyncio

from k8s.models import Event
from tests.scripted.server import WAIT_S, ScriptedCluster, Stream, page
from tui.feeds.event_feed import follow_events

EVENTS = "/api/v1/namespaces/default/events"


async def test_events_are_mirrored_while_somebody_looks() -> None:
    event = {"metadata": {"name": "e1", "uid": "e1"}, "reason": "Scheduled", "eventTime": None}
    stream = Stream()
    found: list[list[Event]] = []
    came = asyncio.Event()

    def on_change(events: list[Event], problem: str) -> None:
        assert not problem
        found.append(events)
        came.set()

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EVENTS, page([event]))
        cluster.say(EVENTS, stream, watch=True)
        task = asyncio.create_task(follow_events(client, "default", on_change))
        await cluster.until_asked(EVENTS, watch=True)
        stream.event("ADDED", {"metadata": {"name": "e2", "uid": "e2"}, "reason": "Pulled"})
        async with asyncio.timeout(WAIT_S):
            while not found or len(found[-1]) < 2:
                came.clear()
                await came.wait()
        assert {each.reason for each in found[-1]} == {"Scheduled", "Pulled"}
        task.cancel()
        await asyncio.wait([task])
        await stream.is_over.wait()
