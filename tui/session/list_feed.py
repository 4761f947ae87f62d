"""Collections that only one view needs, mirrored while it is shown.

The objects stay in memory while the view is hidden, and catch up afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from k8s.client.client import Client
from k8s.cluster.backoff import ServerProbe
from k8s.cluster.cluster_mirror import IDLE_FACTOR, PUBLISH_S, ClusterMirror, list_progress
from k8s.cluster.mirror import Mirror, MirrorState
from k8s.models import Meta, Reader
from k8s.models.resources import Resource
from k8s.snapshot import Missing
from k8s.text.errors import Forbidden
from tui.text.format import count

T = TypeVar("T")


class ListFeed(Generic[T]):
    """Live collection of one resource in the shown cluster and namespace."""

    def __init__(
        self, resource: Resource, value_type: Any, *, field_selector: str = "", is_of_all: bool = False
    ) -> None:
        """Prepare to follow a collection.

        Args:
            resource: The resource to follow.
            value_type: Type of the decoded objects; it has `metadata`.
            field_selector: Field selector in API syntax; empty for all objects.
            is_of_all: Follow all namespaces as far as permitted, whichever is shown.
        """
        self.resource = resource
        self.changes = 0
        """Number of changes so far, so that readers can tell whether to read again."""
        self._decoder: Reader[T] = Reader(value_type)
        self._field_selector = field_selector
        self._has_scope = resource.is_namespaced and not is_of_all
        self._aim: tuple[ClusterMirror, str] | None = None
        self._mirror: Mirror[T] | None = None

    def aim(self, mirror: ClusterMirror | None, changed: Callable[[], None]) -> bool:
        """Follow the cluster and namespace of `mirror` from now on; return True if they changed.

        Args:
            mirror: The shown cluster; None while there is none.
            changed: Called after every change.
        """
        namespace = mirror.namespace if mirror is not None and self._has_scope else ""
        aim = None if mirror is None else (mirror, namespace)
        if aim == self._aim:
            return False
        self._aim, self._mirror = aim, None
        self.changes += 1
        if mirror is not None:
            client = mirror.client
            is_all = self.resource.is_namespaced and not namespace
            scopes = ("", client.config.namespace) if is_all else (namespace,)
            self.aim_at(client, scopes, mirror.probe, changed)
        return True

    def aim_at(
        self, client: Client, scopes: tuple[str, ...], probe: ServerProbe, changed: Callable[[], None]
    ) -> None:
        """Follow the first of these namespaces that may be read; empty stands for all."""

        def record_change() -> None:
            self.changes += 1
            changed()

        self._mirror = Mirror(
            client, self.resource, scopes, self._decoder, _meta, record_change, probe, self._field_selector
        )

    async def run(self) -> None:
        """Mirror until cancelled; a later run continues from the last state."""
        if self._mirror is not None:
            await self._mirror.run()

    def retry_now(self) -> None:
        """Retry failed requests now."""
        if self._mirror is not None:
            self._mirror.retry_now()

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by UID."""
        return self._mirror.objects if self._mirror is not None else {}

    @property
    def state(self) -> MirrorState:
        """The state of the mirror."""
        return self._mirror.state if self._mirror is not None else MirrorState()

    @property
    def missing(self) -> Missing | None:
        """The part of the collection that the user may not read; None if there is none."""
        return self._mirror.missing if self._mirror is not None else None

    @property
    def is_refused(self) -> bool:
        """Return True if the user may not read any of it."""
        return self.state.is_absent and isinstance(self.state.problem, Forbidden)

    @property
    def trouble(self) -> str:
        """The reason that objects may be outdated or incomplete; empty if they are current."""
        state = self.state
        if state.problem is not None and not state.is_absent:
            return f"{self.resource.plural}: {state.problem.why or state.problem.what}"
        return f"{count(state.unreadable)} {self.resource.plural} cannot be read." if state.unreadable else ""

    @property
    def progress(self) -> str:
        """The progress of the first list; empty before and after."""
        return list_progress([(self.resource, self.state)])


async def follow(followed: Sequence[ListFeed[Any]], changed: asyncio.Event, draw: Callable[[], None]) -> None:
    """Mirror collections until cancelled, and call `draw` after changes.

    Draws at most ten times per second, and leaves time for keys between two draws.
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
            await asyncio.sleep(max(PUBLISH_S, IDLE_FACTOR * (clock() - began_s)))


def _meta(obj: Any) -> Meta:
    meta: Meta = obj.metadata
    return meta
