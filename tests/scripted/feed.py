"""A feed of the console on a scripted cluster, and everything that it has published."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

from k8s.cluster.backoff import Backoff
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.kinds import KINDS
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot
from tests.scripted.server import WAIT_S, Answer, ScriptedCluster, Stream, page
from tests.support.objects import node, pod_of, pytorch_job
from tui.tables.filters import own_names

# So short that no test waits
HASTY = Backoff(first_s=0.01, longest_s=0.05, absent_s=0.05, unauthorized_s=0.05)
# So long that whatever is asked again was asked at once, or by the user
PATIENT = Backoff(first_s=60.0, absent_s=60.0, unauthorized_s=60.0)
NODES, PODS, JOBS = "/api/v1/nodes", "/api/v1/pods", "/apis/kubeflow.org/v1/pytorchjobs"
BERT = pytorch_job("bert")
VERBS = ["get", "list", "watch"]


def serve(cluster: ScriptedCluster) -> dict[str, Stream]:
    """Serve a node with a job on it, and of every other kind nothing; return the watches."""
    lists: dict[str, list[Any]] = {kind.resource.path(): [] for kind in KINDS}
    lists |= {NODES: [node("n1")], PODS: [pod_of(BERT, "master-0", on="n1")], JOBS: [BERT]}
    return serve_lists(cluster, lists)


def serve_small(cluster: ScriptedCluster) -> dict[str, Stream]:
    """Serve the same on a server that has no other kind, and says so; return the watches."""
    say_kinds(cluster, {"kubeflow.org/v1": ["pytorchjobs"]})
    cluster.say("/version", Answer({"major": "1", "minor": "20"}))
    return serve_lists(
        cluster, {NODES: [node("n1")], PODS: [pod_of(BERT, "master-0", on="n1")], JOBS: [BERT]}
    )


def serve_lists(cluster: ScriptedCluster, lists: dict[str, list[Any]]) -> dict[str, Stream]:
    """Serve these, in version 5, and return the watches."""
    streams = {path: Stream() for path in lists}
    for path, items in lists.items():
        cluster.say(path, page(items, "5"))
        cluster.say(path, streams[path], watch=True)
    return streams


def say_kinds(cluster: ScriptedCluster, plurals: dict[str, list[str]]) -> None:
    """Say from now on that the server has these groups and versions, with these resources."""
    versions = [{"groupVersion": name, "version": name.rpartition("/")[2]} for name in plurals]
    groups = [
        {"name": each["groupVersion"].rpartition("/")[0], "versions": [each], "preferredVersion": each}
        for each in [{"groupVersion": "apps/v1", "version": "v1"}, *versions]
    ]
    cluster.replace("/apis", Answer({"groups": groups}))
    for name, resources in plurals.items():
        held = [{"name": each, "kind": each, "namespaced": True, "verbs": VERBS} for each in resources]
        cluster.replace(f"/apis/{name}", Answer({"resources": held}))


WATCHED = (NODES, PODS, JOBS)  # resources that are watched on the small server


class Feed:
    def __init__(self, mirror: ClusterMirror) -> None:
        self.mirror = mirror
        self.reasons = JobReasons(mirror, own_names)
        self.published: list[tuple[float, ClusterSnapshot]] = []
        self._came = asyncio.Event()
        self.on_publish = self.publish  # receiver of the snapshots; a test may put a slower one in its place
        self.prepare: Callable[[ClusterSnapshot], Iterable[None]] = lambda _: ()

    def publish(self, snapshot: ClusterSnapshot) -> None:
        self.published.append((asyncio.get_running_loop().time(), snapshot))
        self._came.set()

    @property
    def snapshots(self) -> list[ClusterSnapshot]:
        return [snapshot for _, snapshot in self.published]

    @property
    def newest(self) -> ClusterSnapshot:
        """Newest snapshot; empty before the first."""
        return self.published[-1][1] if self.published else ClusterSnapshot()

    async def until(self, is_so: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        try:
            async with asyncio.timeout(WAIT_S):
                while not (self.published and is_so(self.newest)):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"never came true; the last: {self.described()}") from None
        return self.newest

    def described(self) -> str:
        jobs = "\n".join(
            f"{each.ref.kind} {each.ref.namespace}/{each.ref.name}: {each.status}, {each.reason};"
            f" {each.gpus_allocated}/{each.gpus_requested};"
            f" {[(one.name, one.status.value) for one in each.instances]}"
            for each in self.newest.jobs
        )
        return f"stale {self.newest.stale!r}, problems {self.newest.problems}\n{jobs}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        task = asyncio.create_task(
            self.mirror.run(
                lambda snapshot: self.on_publish(snapshot), lambda snapshot: self.prepare(snapshot)
            )
        )
        try:
            yield self
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until_live(self, cluster: ScriptedCluster, paths: Iterable[str]) -> ClusterSnapshot:
        for path in paths:
            await cluster.until_asked(path, watch=True)
        return await self.until(lambda each: each.is_synced and not each.stale)


@asynccontextmanager
async def running(
    cluster: ScriptedCluster, namespace: str = "", *, backoff: Any = None, **client: Any
) -> AsyncIterator[Feed]:
    async with (
        cluster.client(**client) as connected,
        Feed(ClusterMirror(connected, namespace, backoff=backoff)).running() as feed,
    ):
        yield feed


async def poked_until(feed: Feed, is_so: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
    """Press ctrl+r until it is so: a key that comes while a request is under way changes nothing."""
    async with pressing(feed):
        return await feed.until(is_so)


@asynccontextmanager
async def pressing(feed: Feed) -> AsyncIterator[None]:
    """Press ctrl+r all the time meanwhile."""
    task = asyncio.create_task(_press(feed))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _press(feed: Feed) -> None:
    while True:
        feed.mirror.retry_now()
        await asyncio.sleep(0.02)


def jobs_of(snapshot: ClusterSnapshot) -> list[str]:
    return [job.ref.name for job in snapshot.jobs]


def keeps_its_rows(feed: Feed) -> bool:
    """Return True if the job and the node were in every complete picture."""
    complete = [snapshot for snapshot in feed.snapshots if snapshot.is_synced]
    return bool(complete) and all(
        jobs_of(snapshot) == ["bert"] and len(snapshot.nodes) == 1 for snapshot in complete
    )
