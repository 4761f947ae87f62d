"""A list that only one view needs, mirrored while it is shown."""

from __future__ import annotations

import asyncio

from k8s.cluster.backoff import ServerProbe
from k8s.models import Event
from k8s.models.resources import EVENTS as EVENT_LIST
from tests.scripted.server import WAIT_S, ScriptedCluster, Stream, page
from tui.feeds.list_feed import ListFeed

EVENTS = "/api/v1/namespaces/default/events"


async def test_events_are_mirrored_while_the_list_feed_runs() -> None:
    event = {"metadata": {"name": "e1", "uid": "e1"}, "reason": "Scheduled", "eventTime": None}
    stream = Stream()
    came = asyncio.Event()
    feed: ListFeed[Event] = ListFeed(EVENT_LIST, Event)
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(EVENTS, page([event]))
        cluster.say(EVENTS, stream, watch=True)
        feed.aim_at(client, ("default",), ServerProbe(client), came.set)
        task = asyncio.create_task(feed.run())
        await cluster.until_asked(EVENTS, watch=True)
        stream.event("ADDED", {"metadata": {"name": "e2", "uid": "e2"}, "reason": "Pulled"})
        async with asyncio.timeout(WAIT_S):
            while len(feed.objects) < 2:
                came.clear()
                await came.wait()
        assert {each.reason for each in feed.objects.values()} == {"Scheduled", "Pulled"}
        assert feed.state.problem is None
        task.cancel()
        await asyncio.wait([task])
        await stream.is_over.wait()
