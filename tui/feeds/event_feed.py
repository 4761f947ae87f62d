"""Follows what happens in one namespace, for the view of one job.

Nothing here draws, and nothing is asked while nobody looks: it is run for as long as a view is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from k8s.client.client import Client
from k8s.models import Event, Meta, Reader
from k8s.models.resources import EVENTS
from k8s.watch.backoff import ServerProbe
from k8s.watch.mirror import Mirror

PUBLISH_S = 0.1
"""Shortest time between two reports."""


async def follow_events(
    client: Client,
    namespace: str,
    on_change: Callable[[list[Event], str], None],
    probe: ServerProbe | None = None,
) -> None:
    """Mirror a namespace's events until cancelled.

    After each change, but ten times a second at most, all of them are handed over, with
    why they cannot be read or nothing.

    Args:
        client: The cluster.
        namespace: Whose events.
        on_change: Takes them.
        probe: Where to wait while the cluster is away: the console's, so that one probe does for all.
    """
    changed = asyncio.Event()
    mirror: Mirror[Event] = Mirror(client, EVENTS, (namespace,), Reader(Event), _meta, changed.set, probe)
    task = asyncio.create_task(mirror.run())
    try:
        while True:
            await changed.wait()
            changed.clear()
            problem = mirror.state.problem
            on_change(list(mirror.objects.values()), problem.why if problem else "")
            await asyncio.sleep(PUBLISH_S)
    finally:
        task.cancel()
        await asyncio.wait([task])


def _meta(event: Event) -> Meta:
    return event.metadata
