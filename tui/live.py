"""Feeds the console: mirrors of a cluster's collections, joined into one snapshot at a time.

Nothing here draws, so that the one-shot commands read clusters in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from k8s.client import Client
from k8s.cluster import join
from k8s.errors import Forbidden, KubeError, NotFound
from k8s.kinds import KINDS, DeclaredJob
from k8s.kinds.reader import JobReader
from k8s.mirror import Mirror
from k8s.models import Event, Node, Pod, Reader
from k8s.resources import EVENTS, NODES, PODS
from k8s.snapshot import ClusterSnapshot

PUBLISH_S = 0.1
"""Shortest time between two snapshots."""
RESTS = 4
"""Times as long as making a snapshot took, there is none: keys are answered in between."""


class Live:
    """One cluster, mirrored, and the newest picture of it."""

    def __init__(self, client: Client, namespace: str = "") -> None:
        """Prepare to mirror what `client` may see.

        Args:
            client: The cluster.
            namespace: Whose jobs to show; empty for all namespaces.
        """
        self.client = client
        """The cluster that is mirrored."""
        self.namespace = namespace
        """Whose jobs are shown, empty for all. May be changed at any time: see `show_namespace`."""
        self._changed = asyncio.Event()
        scopes = ("", client.access.namespace)
        self._nodes: Mirror[Node] = Mirror(client, NODES, ("",), Reader(Node), _meta, self._changed.set)
        self._pods: Mirror[Pod] = Mirror(client, PODS, scopes, Reader(Pod), _meta, self._changed.set)
        self._jobs: list[Mirror[DeclaredJob]] = [
            Mirror(client, kind.resource, scopes, JobReader(kind), _meta_of_job, self._changed.set)
            for kind in KINDS
        ]

    @property
    def _mirrors(self) -> list[Mirror[Any]]:
        return [self._nodes, self._pods, *self._jobs]

    def show_namespace(self, namespace: str) -> None:
        """Show the jobs of another namespace; empty for all."""
        self.namespace = namespace
        self._changed.set()

    def try_again(self) -> None:
        """Reconnect now whatever waits to be tried again."""
        for mirror in self._mirrors:
            mirror.poke()

    async def run(self, publish: Callable[[ClusterSnapshot], None]) -> None:
        """Mirror for ever, and publish a new snapshot after changes, ten a second at most."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(mirror.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                began_s = asyncio.get_running_loop().time()
                publish(self.snapshot())
                took_s = asyncio.get_running_loop().time() - began_s
                await asyncio.sleep(max(PUBLISH_S, RESTS * took_s))

    async def read_once(self) -> ClusterSnapshot:
        """List everything once and return the picture, for a command that ends.

        What may not be read, or is not served, is named in the snapshot's problems.

        Raises:
            KubeError: The cluster could not be read at all.
        """
        refusals = await asyncio.gather(*(self._list_once(mirror) for mirror in self._mirrors))
        snapshot = self.snapshot()
        refused = {name: error.why for name, error in refusals if isinstance(error, Forbidden)}
        return replace(snapshot, problems={**snapshot.problems, **refused}, is_synced=True)

    async def _list_once(self, mirror: Mirror[Any]) -> tuple[str, KubeError | None]:
        try:
            await mirror.list_once()
        except (Forbidden, NotFound) as error:
            return mirror.resource.plural, error
        return mirror.resource.plural, None

    def snapshot(self) -> ClusterSnapshot:
        """Return the picture as it is now."""
        nodes, jobs = join(
            self._nodes.objects.values(),
            self._pods.objects.values(),
            [job for mirror in self._jobs for job in mirror.objects.values()],
        )
        if self.namespace:
            jobs = tuple(job for job in jobs if job.ref.namespace == self.namespace)
        access = self.client.access
        away = [
            m
            for m in self._mirrors
            if m.state.problem and not isinstance(m.state.problem, (Forbidden, NotFound))
        ]
        problems = {}
        for mirror in self._mirrors:
            if isinstance(mirror.state.problem, Forbidden):
                problems[mirror.resource.plural] = mirror.state.problem.why
            elif mirror.narrowed is not None:
                problems[mirror.resource.plural] = (
                    f"Only those in namespace {mirror.namespace} are shown. {mirror.narrowed.why}"
                )
        return ClusterSnapshot(
            context=access.context,
            user=access.user,
            namespace=self.namespace,
            nodes=nodes,
            jobs=jobs,
            is_synced=all(mirror.state.is_synced for mirror in self._mirrors),
            stale=_reason(away[0].state.problem) if away else "",
            stale_since_s=min((mirror.state.heard_at_s for mirror in away), default=0.0),
            problems=problems,
        )


async def follow_events(
    client: Client, namespace: str, on_change: Callable[[list[Event], str], None]
) -> None:
    """Mirror a namespace's events until cancelled.

    After each change, but ten times a second at most, all of them are handed over, with
    why they cannot be read or nothing.
    """
    changed = asyncio.Event()
    mirror: Mirror[Event] = Mirror(client, EVENTS, (namespace,), Reader(Event), _meta, changed.set)
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


def _reason(problem: KubeError | None) -> str:
    return (problem.why or problem.what) if problem is not None else ""


def _meta(obj: Node | Pod | Event) -> Any:
    return obj.metadata


def _meta_of_job(job: DeclaredJob) -> Any:
    return job.meta
