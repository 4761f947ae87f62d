"""Storms of updates: keys work meanwhile, and what is painted ends as the truth."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from k8s.client.client import Client
from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.cluster.mirror import Mirror
from k8s.models import Reader, meta_of
from k8s.models.resources import PODS
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot
from tests.bench.figures import console_env
from tests.load.running import LoadServer, difference, seen, told
from tests.load.screen import (
    COLUMNS,
    LINES,
    PAINTED_S,
    Cost,
    TimedTerminal,
    demanded,
    press_down,
    until_painted,
    wrong_rows,
)
from tests.support.terminal import Terminal
from tui.tables.filters import own_names

pytestmark = pytest.mark.slow
JOBS, NODES = 60, 60  # six hundred pods: enough for each kind of change to happen often
RATE, EVENTS = 1500, 3000
PATIENCE_S = 90.0  # longest wait for a picture to become true; it takes a second or two


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with LoadServer(NODES, JOBS, lifetime_s=900) as running:
        yield running


class Picture:
    def __init__(self) -> None:
        self.snapshot = ClusterSnapshot()
        self.published = 0
        self._came = asyncio.Event()

    def publish(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.published += 1
        self._came.set()

    async def until_true(self, truth: Mapping[str, Any]) -> None:
        """Wait until nothing differs from the truth; fail with what does."""
        wanted = told(truth)
        wrong = ["nothing was published"]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while wrong := difference(wanted, seen(self.snapshot)):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            pytest.fail("\n".join(wrong))


@asynccontextmanager
async def cluster_feed(server: LoadServer) -> AsyncIterator[Picture]:
    picture = Picture()
    async with server.client() as client:
        mirror = ClusterMirror(client)
        JobReasons(mirror, own_names)
        task = asyncio.create_task(mirror.run(picture.publish))
        try:
            yield picture
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


def dicts(client: Client, changed: asyncio.Event) -> Mirror[dict[str, Any]]:
    """Return a mirror of whole pods, so that nothing depends on which fields are read."""
    return Mirror(client, PODS, ("",), Reader(dict), meta_of, changed.set)


async def until_equal(
    mirror: Mirror[dict[str, Any]], changed: asyncio.Event, versions: Mapping[str, int]
) -> None:
    """Wait until a mirror holds exactly these objects in exactly these versions."""

    def held() -> dict[str, int]:
        return {uid: int(pod["metadata"]["resourceVersion"]) for uid, pod in mirror.objects.items()}

    try:
        async with asyncio.timeout(PATIENCE_S):
            while held() != versions:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        wrong = dict(set(held().items()) ^ set(versions.items()))
        pytest.fail(f"{len(wrong)} of {len(versions)} pods are missing, too many or old: {list(wrong)[:5]}")


@pytest.mark.parametrize(
    "harm", [{}, {"drop": [EVENTS // 5, EVENTS * 4 // 5], "forget": [EVENTS // 2]}], ids=["plain", "broken"]
)
async def test_after_a_storm_every_gpu_and_every_pod_is_where_it_is(
    server: LoadServer, harm: dict[str, list[int]]
) -> None:
    """Far fewer snapshots are published than there are updates, and watches may break and be forgotten."""
    async with cluster_feed(server) as picture:
        before = await asyncio.to_thread(server.truth)
        await picture.until_true(before)
        published = picture.published
        await asyncio.to_thread(partial(server.storm, RATE, EVENTS, **harm))
        truth = await asyncio.to_thread(server.truth)
        assert truth["events"] - before["events"] >= EVENTS
        assert told(truth) != told(before)
        await picture.until_true(truth)
        assert picture.published - published < EVENTS / 10


async def test_a_list_read_during_a_storm_ends_in_the_correct_state(server: LoadServer) -> None:
    await asyncio.to_thread(server.storm, RATE, EVENTS)
    async with cluster_feed(server) as picture:
        await picture.until_true(await asyncio.to_thread(server.truth))


async def test_each_pod_is_there_in_its_last_version_and_no_other_pod(server: LoadServer) -> None:
    changed = asyncio.Event()
    async with server.client() as client:
        mirror = dicts(client, changed)
        task = asyncio.create_task(mirror.run())
        await asyncio.to_thread(server.storm, RATE, EVENTS, drop=[EVENTS // 3], forget=[EVENTS // 2])
        truth = await asyncio.to_thread(server.truth)
        await until_equal(mirror, changed, truth["pods"])
        task.cancel()
        await asyncio.wait([task])


async def test_replacing_the_same_pods_again_and_again_needs_no_more_memory(server: LoadServer) -> None:
    async with cluster_feed(server) as picture:

        async def blocks_after_a_storm() -> int:
            await asyncio.to_thread(server.storm, 10 * RATE, EVENTS)
            await picture.until_true(await asyncio.to_thread(server.truth))
            gc.collect()
            return sys.getallocatedblocks()

        counts = [await blocks_after_a_storm() for _ in range(5)]
        grown = [later - earlier for earlier, later in pairwise(counts)]
        # A leak grows with each storm; what is made only once, here or elsewhere in the process, with one.
        assert min(grown) < EVENTS // 4, f"{grown} more blocks of memory after {EVENTS} updates each"


LIFETIME_S = 900.0  # limit for the server, so that none outlives its test; far more than a test takes
CHANGES_PER_S, MINUTE_S = 100, 60
WARM_UP_PER_S = 1000
GROWTH_MIB = 32  # permitted growth in a minute: far less than the frames that were not written
Kind = TypeVar("Kind", bound=Terminal)


@contextmanager
def console(kind: type[Kind]) -> Iterator[tuple[LoadServer, Kind]]:
    """Open the console on a load server, with jobs that finished long ago too."""
    with LoadServer(60, 60, lifetime_s=LIFETIME_S) as server, console_env() as env:
        command = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
        with kind(command, columns=COLUMNS, lines=LINES, env=env) as terminal:
            terminal.wait_for("─ live", PAINTED_S)
            terminal.send("o")
            terminal.wait_for(lambda screen: "older hidden" not in screen, PAINTED_S)
            yield server, terminal


def test_keys_work_in_a_storm_and_every_painted_row_is_right_after_it() -> None:
    with console(TimedTerminal) as (server, terminal):
        before = server.truth()
        server.storm(1000, 2000, drop=[700], forget=[1200])
        for _ in range(5):
            press_down(terminal)
        truth = server.truth()
        assert demanded(truth) != demanded(before)
        until_painted(terminal, truth)
        assert wrong_rows(terminal, truth) == {}


def test_a_minute_without_reading_loses_nothing_and_costs_no_memory() -> None:
    with console(Terminal) as (server, terminal):
        server.storm(WARM_UP_PER_S, CHANGES_PER_S * MINUTE_S)  # caches and the allocator's arenas grow once
        until_painted(terminal, server.truth())
        before = Cost.of(terminal.pid)
        server.storm(CHANGES_PER_S, CHANGES_PER_S * MINUTE_S)
        truth = server.truth()  # comes when the storm is over; nobody reads the terminal until then
        grown_mib = Cost.of(terminal.pid).resident_mib - before.resident_mib
        until_painted(terminal, truth)
        assert wrong_rows(terminal, truth) == {}
    assert grown_mib < GROWTH_MIB
