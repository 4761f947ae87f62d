"""Feeds read what is wanted, not more often than it changes, and keep it while it is fresh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from k8s.cluster.backoff import ServerProbe
from k8s.gpus.readings import NoReadings, NoReadingsCause, Telemetry
from k8s.models.event import Event
from k8s.models.resources import EVENTS as EVENT_LIST
from k8s.snapshot import Job, NodeRow
from k8s.text.errors import Unreachable
from tests.scripted.server import WAIT_S, ScriptedCluster, Stream, page
from tests.support.journal import record_job
from tests.support.objects import joined, node, pod_of, pytorch_job
from tests.support.telemetry import NO_EXPORTER, ScriptedReader, reading, telemetry_of
from tui.runs.journal.database import Journal
from tui.runs.journal.ledger import IdleMeter
from tui.session.list_feed import ListFeed
from tui.session.telemetry_feed import TelemetryFeed

BERT = pytorch_job("bert", 1, 8, annotations={"gpuconsole.dev/user": "li"})
NODES, JOBS = joined([node("a"), node("b"), node("c")], [pod_of(BERT, "master-0", on="a")], [BERT])


def whole() -> Telemetry:
    return telemetry_of(*(reading(name, index, 1.0) for name in "abc" for index in range(8)))


def feed_of(reader: ScriptedReader, read_s: float = 0.02) -> TelemetryFeed:
    return TelemetryFeed(
        reader, lambda: tuple(JOBS.values()), lambda: tuple(NODES.values()), read_s=read_s, rest_s=0.0
    )


@asynccontextmanager
async def followed(feed: TelemetryFeed) -> AsyncIterator[asyncio.Queue[Telemetry]]:
    """Follow a feed, and give what it knows after each round."""
    rounds: asyncio.Queue[Telemetry] = asyncio.Queue()
    task = asyncio.create_task(feed.follow(lambda: rounds.put_nowait(feed.telemetry)))
    try:
        async with asyncio.timeout(WAIT_S):
            yield rounds
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_only_requested_nodes_are_read_and_they_are_polled() -> None:
    reader = ScriptedReader(whole())
    feed = feed_of(reader)
    feed.aim(["b"])
    async with followed(feed) as rounds:
        for _ in range(3):
            assert set((await rounds.get()).nodes) == {"b"}
    assert set(reader.asked) == {("b",)}


async def test_a_newly_visible_node_is_read_at_once_and_all_are_read_again_on_retry() -> None:
    reader = ScriptedReader(whole())
    feed = feed_of(reader, read_s=1e9)
    feed.aim(["a"])
    async with followed(feed) as rounds:
        await rounds.get()
        for _ in range(10):  # it waits for the next round by now
            await asyncio.sleep(0)
        feed.aim(["a", "b"])
        assert set((await rounds.get()).nodes) == {"a", "b"}
        assert reader.asked == [("a",), ("b",)]
        feed.retry_now()
        await rounds.get()
    assert reader.asked[2:] == [("a", "b")] and reader.retries == 1


async def test_nothing_is_read_while_no_nodes_are_requested() -> None:
    reader = ScriptedReader(whole())
    feed = feed_of(reader)
    async with followed(feed) as rounds:
        await asyncio.sleep(0.1)
        assert reader.asked == []
        feed.aim(["c"])
        await rounds.get()
    assert reader.asked[0] == ("c",)


class Unanswered(ScriptedReader):
    """Answers once, and then the cluster is away."""

    async def read(self, nodes: Iterable[NodeRow], jobs: Iterable[Job] = ()) -> Telemetry:
        found = await super().read(nodes, jobs)
        if len(self.asked) > 1:
            raise Unreachable("Could not read.")
        return found


async def test_an_unreachable_cluster_keeps_the_last_readings_and_is_polled_again() -> None:
    reader = Unanswered(whole())
    feed = feed_of(reader)
    feed.aim(["a"])
    async with followed(feed) as rounds:
        for _ in range(3):
            assert set((await rounds.get()).nodes) == {"a"}
    assert len(reader.asked) >= 3


async def test_numbers_of_nodes_out_of_sight_are_kept_while_they_are_fresh() -> None:
    reader = ScriptedReader(whole())
    feed = feed_of(reader)
    await feed.read_once(["a"])
    old = telemetry_of(*(reading("b", index, 1.0, ago_s=600) for index in range(8)))
    reader.telemetry = old
    await feed.read_once(["b"])
    assert set(feed.telemetry.nodes) == {"a", "b"}
    reader.telemetry = whole()
    assert set((await feed.read_once(["c"])).nodes) == {"a", "c"}


async def test_the_reason_for_a_nodes_missing_readings_is_kept_while_only_pod_usage_is_read() -> None:
    reader = ScriptedReader(telemetry_of(missing={"a": NO_EXPORTER}))
    feed = feed_of(reader, read_s=1e9)
    feed.aim(["a"])
    async with followed(feed) as rounds:
        await rounds.get()
        feed.aim(["a"], [JOBS["bert"].ref])
        assert (await rounds.get()).nodes["a"].missing == NO_EXPORTER
    assert reader.asked == [("a",), ()]


async def test_the_history_takes_gpu_holders_from_nodes_if_the_exporter_omits_them() -> None:
    reader = ScriptedReader(whole())
    feed = feed_of(reader)
    await feed.read_once(["a"])
    key = next(iter(whole().gpus)).key
    assert [each.pod for each in feed.history.of(key)[0].holders] == ["bert-master-0"]


async def test_a_stale_reading_of_a_dead_exporter_is_not_attributed_to_the_new_holder() -> None:
    reader = ScriptedReader(telemetry_of(reading("a", 0, 1.0, ago_s=120)))
    rows = [replace(NODES["a"], holders=())]
    feed = TelemetryFeed(reader, lambda: tuple(JOBS.values()), lambda: rows)
    await feed.read_once(["a"])
    rows = [NODES["a"]]
    dead = NoReadings(NoReadingsCause.UNREACHABLE, "dead")
    old = feed.telemetry.nodes["a"]
    reader.telemetry = Telemetry({"a": replace(old, missing=dead)})
    await feed.read_once(["a"])
    (sample,) = feed.history.of(next(iter(old.gpus)).key)
    assert sample.holders == ()


async def test_an_allocated_gpu_that_was_idle_for_half_an_hour_is_a_warning_of_its_job() -> None:
    reader = ScriptedReader(whole())
    feed = feed_of(reader)
    job = JOBS["bert"]
    for minutes in range(0, 34, 4):
        gpus = [reading("a", index, 1.0, "bert-master-0", ago_s=2000 - minutes * 60) for index in range(8)]
        reader.telemetry = telemetry_of(*gpus)
        await feed.read_once(["a"])
    warnings = feed.job_warnings(feed.ranks(job))
    assert len(warnings) == 8
    assert {each.text for found in warnings.values() for each in found} == {
        "Allocated to default/bert-master-0, but idle for 32 min."
    }


async def test_a_feed_counts_the_idle_gpu_time_of_jobs(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record_job(journal, "job-bert", [])
    reader = ScriptedReader(telemetry_of(reading("a", 0, 1.0, ago_s=30)))
    meter = IdleMeter(journal.reopened(), "recorded", "console 1")
    feed = TelemetryFeed(reader, lambda: tuple(JOBS.values()), lambda: tuple(NODES.values()), meter=meter)
    await feed.read_once(["a"])
    reader.telemetry = telemetry_of(reading("a", 0, 2.0))
    await feed.read_once(["a"])
    await feed.close()
    ((seen, idle),) = journal.rows("SELECT sum(seen_gpu_s), sum(idle_gpu_s) FROM idle")
    assert seen == idle and 29 < seen < 90


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
