"""A mirror of pods that runs on a scripted cluster, and all the states it was in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from k8s.client.client import Client
from k8s.cluster.backoff import Backoff, ServerProbe
from k8s.cluster.mirror import Mirror
from k8s.models import Meta, Pod, Reader
from k8s.models.resources import PODS
from k8s.text.errors import KubeError
from tests.scripted.server import WAIT_S, Reply, ScriptedCluster

ALL = "/api/v1/pods"
MINE = "/api/v1/namespaces/mine/pods"
# So short that a test need not poke
HASTY = Backoff(first_s=0.01, longest_s=0.02, absent_s=0.02, unauthorized_s=0.02, healthy_s=60.0)


def pod(name: str, version: str = "1", uid: str = "", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or name, "resourceVersion": version}, "status": status}


class Watched:
    def __init__(self, client: Client, scopes: tuple[str, ...], backoff: Backoff = HASTY) -> None:
        self._changed = asyncio.Event()
        self.states: list[tuple[frozenset[str], bool, bool]] = []
        self.problems: list[type[KubeError]] = []
        self.client = client
        probe = ServerProbe(client, backoff)
        self.mirror: Mirror[Pod] = Mirror(client, PODS, scopes, Reader(Pod), _meta, self._on_change, probe)

    def _on_change(self) -> None:
        state = self.mirror.state
        self.states.append((frozenset(self.names), state.is_synced, state.is_live))
        if state.problem is not None:
            self.problems.append(type(state.problem))
        self._changed.set()

    @property
    def names(self) -> list[str]:
        return sorted(each.metadata.name for each in self.mirror.objects.values())

    @property
    def problem(self) -> KubeError | None:
        return self.mirror.state.problem

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def until_pods(self, *names: str) -> None:
        await self.until(lambda: self.names == sorted(names))

    async def until_problem(self, kind: type[KubeError]) -> None:
        """Wait until it had such a problem, which may be over already."""
        await self.until(lambda: any(issubclass(had, kind) for had in self.problems))


def _meta(found: Pod) -> Meta:
    return found.metadata


@asynccontextmanager
async def running(
    cluster: ScriptedCluster, *scopes: str, backoff: Backoff = HASTY, request_s: float = WAIT_S
) -> AsyncIterator[Watched]:
    async with cluster.client(request_s=request_s) as client:
        watched = Watched(client, scopes or ("",), backoff)
        task = asyncio.create_task(watched.mirror.run())
        try:
            yield watched
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


@asynccontextmanager
async def mirrored(
    lists: Sequence[Reply], *watches: Reply, **how: Any
) -> AsyncIterator[tuple[ScriptedCluster, Watched]]:
    """Run a mirror of all pods on a cluster that answers its lists and watches so, in turn."""
    async with ScriptedCluster() as cluster:
        cluster.say(ALL, *lists)
        cluster.say(ALL, *watches, watch=True)
        async with running(cluster, **how) as watched:
            yield cluster, watched
