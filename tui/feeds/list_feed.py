"""Collections that only one view needs: mirrored while it is shown, and let go of when it is not.

Nothing here draws. What was read stays when nobody looks, and is caught up with afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from k8s.client.client import Client
from k8s.errors import Forbidden
from k8s.models import Meta, Reader
from k8s.models.resources import Resource
from k8s.snapshot import Missing
from k8s.watch.backoff import ServerProbe
from k8s.watch.mirror import Mirror, MirrorState
from tui.feeds.cluster_feed import PUBLISH_S, RESTS, ClusterFeed
from tui.feeds.trouble import list_progress
from tui.text.format import count

T = TypeVar("T")


class ListFeed(Generic[T]):
    """One collection of the cluster and the namespace that the console shows."""

    def __init__(
        self, resource: Resource, value_type: Any, *, field_selector: str = "", is_of_all: bool = False
    ) -> None:
        """Prepare to follow a collection.

        Args:
            resource: What to follow.
            value_type: What its objects are decoded into; it has `metadata`.
            field_selector: Which of them, as the API words it; empty for all.
            is_of_all: Those of all namespaces, as far as they may be read, whichever is shown.
        """
        self.resource = resource
        """What is followed."""
        self.changes = 0
        """Grows with every change, so that whoever reads knows whether to read again."""
        self._decoder: Reader[T] = Reader(value_type)
        self._field_selector = field_selector
        self._has_scope = resource.is_namespaced and not is_of_all
        self._aim: tuple[ClusterFeed, str] | None = None
        self._mirror: Mirror[T] | None = None

    def aim(self, cluster_feed: ClusterFeed | None, changed: Callable[[], None]) -> bool:
        """Follow it as `cluster_feed` shows it from now on; tell whether that is another one than before.

        Args:
            cluster_feed: The cluster, and the namespace shown of it; None while there is none.
            changed: Called after every change.
        """
        namespace = cluster_feed.namespace if cluster_feed is not None and self._has_scope else ""
        aim = None if cluster_feed is None else (cluster_feed, namespace)
        if aim == self._aim:
            return False
        self._aim, self._mirror = aim, None
        self.changes += 1
        if cluster_feed is not None:
            client = cluster_feed.client
            is_all = self.resource.is_namespaced and not namespace
            scopes = ("", client.config.namespace) if is_all else (namespace,)
            self.aim_at(client, scopes, cluster_feed.probe, changed)
        return True

    def aim_at(
        self, client: Client, scopes: tuple[str, ...], probe: ServerProbe, changed: Callable[[], None]
    ) -> None:
        """Follow it in the first of these namespaces in which it may be read; empty stands for all."""

        def note() -> None:
            self.changes += 1
            changed()

        self._mirror = Mirror(
            client, self.resource, scopes, self._decoder, _meta, note, probe, self._field_selector
        )

    async def run(self) -> None:
        """Keep it up to date until cancelled. Run again it goes on where it was."""
        if self._mirror is not None:
            await self._mirror.run()

    def retry_now(self) -> None:
        """Try again now what waits to be tried again."""
        if self._mirror is not None:
            self._mirror.retry_now()

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by uid."""
        return self._mirror.objects if self._mirror is not None else {}

    @property
    def state(self) -> MirrorState:
        """How far they can be trusted."""
        return self._mirror.state if self._mirror is not None else MirrorState()

    @property
    def missing(self) -> Missing | None:
        """What of it this user may not read, if anything."""
        return self._mirror.missing if self._mirror is not None else None

    @property
    def is_refused(self) -> bool:
        """Tell whether none of it may be read."""
        return self.state.is_absent and isinstance(self.state.problem, Forbidden)

    @property
    def trouble(self) -> str:
        """Why what is shown may be old, or not all there is; empty while all is well."""
        state = self.state
        if state.problem is not None and not state.is_absent:
            return f"{self.resource.plural}: {state.problem.why or state.problem.what}"
        return f"{count(state.unreadable)} {self.resource.plural} make no sense." if state.unreadable else ""

    @property
    def progress(self) -> str:
        """How much of the first list has come; empty before, and once all is there."""
        return list_progress([(self.resource, self.state)])


async def follow(followed: Sequence[ListFeed[Any]], changed: asyncio.Event, draw: Callable[[], None]) -> None:
    """Keep collections up to date until cancelled, and draw after changes.

    It draws ten times a second at most, and no more often than leaves time for the keys.
    """
    clock = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as group:
        for each in followed:
            group.create_task(each.run())
        while True:
            await changed.wait()
            changed.clear()
            began_s = clock()
            draw()
            await asyncio.sleep(max(PUBLISH_S, RESTS * (clock() - began_s)))


def _meta(obj: Any) -> Meta:
    meta: Meta = obj.metadata
    return meta
