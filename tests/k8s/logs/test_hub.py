"""One follower per container, however many read its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from k8s.client.client import Client
from k8s.logs import Item, LogHub, LogRequest, Mark, Subscription
from tests.k8s.logs.job_feed import texts
from tests.scripted.logs import QUICK, Fault, ScriptedPod, connected, target

TAIL = LogRequest(tail=100)


class Reader:
    """A subscription read in a task, and what it was given."""

    def __init__(self, log: Subscription) -> None:
        self.log = log
        self.items: list[Item] = []
        self._grew = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with aclosing(self.log.batches()) as batches:
            async for batch in batches:
                self.items += batch
                self._grew.set()

    @property
    def texts(self) -> list[str]:
        return texts(self.items)

    async def until(self, *last: str) -> None:
        """Wait for these last lines."""
        async with asyncio.timeout(30):
            while self.texts[-len(last) :] != [*last]:
                self._grew.clear()
                await self._grew.wait()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def hub_of(client: Client, grace: asyncio.Event | None = None) -> AsyncIterator[LogHub]:
    hub = LogHub(client, backoff=QUICK, grace=(grace or asyncio.Event()).wait)
    try:
        yield hub
    finally:
        await hub.close()


def followed(lines: int = 3) -> ScriptedPod:
    pod = ScriptedPod("one", restart_policy="Never")
    for number in range(lines):
        pod.write(f"line {number}")
    return pod


async def test_all_subscriptions_of_a_log_share_one_stream_and_get_every_line() -> None:
    pod = followed()
    async with connected(pod) as (_, client), hub_of(client) as hub:
        early = Reader(hub.open(target(pod), TAIL))
        await early.until("line 2")
        late = [Reader(hub.open(target(pod), LogRequest(tail=tail))) for tail in (100, 50)]
        await pod.say("line 3")
        for reader in (early, *late):
            await reader.until("line 0", "line 1", "line 2", "line 3")
        assert len(pod.requests) == 1
        assert late[0].items[0] is early.items[0], "a line is held once"


async def test_a_closed_stream_ends_after_the_grace_and_resumes_without_repetition() -> None:
    pod, grace = followed(), asyncio.Event()
    async with connected(pod) as (_, client), hub_of(client, grace) as hub:
        reader = Reader(hub.open(target(pod), TAIL))
        await reader.until("line 2")
        await reader.close()
        again = Reader(hub.open(target(pod), TAIL))
        await again.until("line 2")
        await again.close()
        assert (len(pod.requests), pod.open_streams) == (1, 1), "within the grace nothing is requested"
        grace.set()
        await pod.until(streams=0)
        pod.write("line 3")
        resumed, new = Reader(reader.log), Reader(hub.open(target(pod), TAIL))
        await resumed.until("line 3")
        await new.until("line 0", "line 1", "line 2", "line 3")
        assert resumed.texts == ["line 3"]
        assert "sinceTime" in pod.requests[1] and len(pod.requests) == 2


@pytest.mark.parametrize("tail", [3, 6])
async def test_a_log_read_again_repeats_nothing_and_marks_a_gap(
    monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    monkeypatch.setattr("k8s.logs.hub.RESUME_S", -1.0)
    pod, grace = followed(), asyncio.Event()
    async with connected(pod) as (_, client), hub_of(client, grace) as hub:
        grace.set()
        before = Reader(hub.open(target(pod), LogRequest(tail=tail)))
        await before.until("line 2")
        await before.close()
        await pod.until(streams=0)
        await pod.say("line 3", "line 4", "line 5", "line 6")
        anew = Reader(before.log)
        await anew.until("line 6")
        if tail == 3:
            assert anew.texts[0].startswith("-- gap: lines after 2026-05-14")
            assert anew.texts[1:] == ["line 4", "line 5", "line 6"]
        else:
            assert anew.texts == ["line 3", "line 4", "line 5", "line 6"]


async def test_few_streams_without_subscriptions_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8s.logs.hub.MAX_IDLE_STREAMS", 1)
    monkeypatch.setattr("k8s.logs.hub.MAX_IDLE_SOURCES", 1)
    pods = [ScriptedPod(f"pod-{number}") for number in range(3)]
    async with connected(*pods) as (_, client), hub_of(client) as hub:
        for number, pod in enumerate(pods):
            pod.write("hello")
            reader = Reader(hub.open(target(pod, is_chief=number == 0), TAIL))
            await reader.until("hello")
            await reader.close()
        for pod in pods[1:]:
            await pod.until(streams=0)
        assert pods[0].open_streams == 1, "that of the chief"


@pytest.mark.parametrize("held", [3, 8])
async def test_a_subscription_that_wants_more_lines_reads_only_the_older_ones(held: int) -> None:
    pod = followed(20)
    async with connected(pod) as (_, client), hub_of(client) as hub:
        few = Reader(hub.open(target(pod), LogRequest(tail=3)))
        await few.until("line 17", "line 18", "line 19")
        more = Reader(hub.open(target(pod), LogRequest(tail=held)))
        await more.until(*(f"line {number}" for number in range(20 - held, 20)))
        third = Reader(hub.open(target(pod), LogRequest(tail=held)))
        await third.until(*more.texts)
        await pod.say("line 20")
        for reader in (few, more, third):
            await reader.until("line 20")
            assert len(reader.texts) == len(set(reader.texts))
        assert [each["tailLines"] for each in pod.requests] == ["3", "8"][: 1 + (held > 3)]
        assert len(few.items) == 4


async def test_older_lines_that_cannot_be_read_are_marked_as_a_gap() -> None:
    pod = followed(20)
    async with connected(pod) as (_, client), hub_of(client) as hub:
        few = Reader(hub.open(target(pod), LogRequest(tail=3)))
        await few.until("line 19")
        pod.faults = [Fault(400, "no such log")]
        more = Reader(hub.open(target(pod), LogRequest(tail=8)))
        await more.until("line 17", "line 18", "line 19")
        assert more.texts[0].startswith("-- gap: earlier lines cannot be read.")


async def test_a_slow_subscription_loses_lines_with_a_marker_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("k8s.logs.hub.SOURCE_LINES", 50)
    pod = followed(1)
    async with connected(pod) as (_, client), hub_of(client) as hub:
        slow = hub.open(target(pod), TAIL)
        async with aclosing(slow.batches()) as batches:
            assert texts(await anext(batches)) == ["line 0"]
            fast = Reader(hub.open(target(pod), TAIL))
            for number in range(1, 300):
                await pod.say(f"line {number}")
                await fast.until(f"line {number}")
            assert hub.size_bytes < 60 * 300
            marker, *lines = await anext(batches)
            assert texts([marker]) == ["-- 249 lines of one came faster than they were read"]
            assert texts(lines)[0] == "line 250"
        assert fast.texts == pod.texts and len(pod.requests) == 1


async def test_a_log_is_read_no_faster_than_its_fastest_subscription() -> None:
    pod = followed(1)
    pod.runs[-1].lines = [(stamp, b"x" * 50_000) for stamp, _ in pod.runs[-1].lines * 2_000]
    async with connected(pod) as (_, client), hub_of(client) as hub:
        log = hub.open(target(pod), LogRequest())
        async with aclosing(log.batches()) as batches:
            await anext(batches)
            for _ in range(200):
                await asyncio.sleep(0)
            assert hub.size_bytes < 2**20


async def test_total_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8s.logs.hub.TOTAL_BYTES", 200_000)
    pods = [followed(2_000), followed(10)]
    pods[1].name = "two"
    async with connected(*pods) as (_, client), hub_of(client) as hub:
        for pod in pods:
            reader = Reader(hub.open(target(pod), LogRequest(tail=2_000)))
            await reader.until(pod.texts[-1])
            assert reader.texts == pod.texts
        assert hub.size_bytes <= 200_000
        late = Reader(hub.open(target(pods[1]), TAIL))
        await late.until(*pods[1].texts)


async def test_markers_of_lost_connections_and_restarts_reach_all() -> None:
    pod = followed()
    pod.restart_policy = "Always"
    pod.faults = [Fault(cut_after=60)]
    async with connected(pod) as (_, client), hub_of(client) as hub:
        readers = [Reader(hub.open(target(pod), TAIL)) for _ in range(2)]
        for reader in readers:
            await reader.until("line 2")
        await pod.end(1)
        await pod.restart()
        await pod.say("again")
        for reader in readers:
            await reader.until("again")
            assert [text for text in reader.texts if not text.startswith("--")] == pod.texts
            marks = [str(getattr(item, "mark", "")) for item in reader.items]
            assert Mark.RECONNECTED in marks and Mark.RESTART in marks
        held = hub.held_lines(target(pod), 10, newer_than_ns=0)
        assert held is not None and texts(held) == ["again"], "only the current run"


async def test_the_run_before_and_windows_have_followers_of_their_own() -> None:
    pod = followed(1)
    await pod.end(1)
    await pod.restart()
    pod.write("now")
    async with connected(pod) as (_, client), hub_of(client) as hub:
        current = Reader(hub.open(target(pod), TAIL))
        before = LogRequest(previous=True, follow=False)
        readers = [Reader(hub.open(target(pod), before)) for _ in range(2)]
        await current.until("now")
        for reader in readers:
            await reader.task
            assert reader.texts == ["line 0"] and reader.log.is_over
        assert [each.get("tailLines") for each in pod.requests if "previous" in each] == [None, "1"]


async def test_an_error_is_reported_to_every_subscription_and_a_new_one_tries_again() -> None:
    pod = followed()
    request = LogRequest(follow=False)
    pod.faults = [Fault(400, "no such container")]
    async with connected(pod) as (_, client), hub_of(client) as hub:
        readers = [Reader(hub.open(target(pod), request)) for _ in range(2)]
        for reader in readers:
            await reader.task
            (text,) = reader.texts
            assert text.startswith("-- cannot be read.") and "no such container" in text
        again = Reader(hub.open(target(pod), request))
        await again.task
        assert again.texts == pod.texts


async def test_a_pod_that_was_not_found_is_read_by_the_next_subscription() -> None:
    pod = followed()
    pod.is_gone = True  # as a server answers that is behind
    async with connected(pod) as (_, client), hub_of(client) as hub:
        early = Reader(hub.open(target(pod), TAIL))
        await early.until("-- the pod is gone")
        pod.is_gone = False
        await Reader(hub.open(target(pod), TAIL)).until("line 2")


async def test_closing_the_hub_ends_streams_and_subscriptions() -> None:
    pod = followed()
    async with connected(pod) as (_, client), hub_of(client) as hub:
        reader = Reader(hub.open(target(pod), TAIL))
        await reader.until("line 2")
        await hub.close()
        await reader.task
        await pod.until(streams=0)


async def test_held_lines_answer_for_a_read_only_if_nothing_can_be_missing() -> None:
    pod = followed(20)
    of = target(pod)
    async with connected(pod) as (_, client), hub_of(client) as hub:
        assert hub.held_lines(of, 5, newer_than_ns=0) is None, "it is not followed"
        assert hub.streamed_lines(of, 5) == ()
        reader = Reader(hub.open(of, LogRequest(tail=10)))
        await reader.until("line 19")
        held = hub.held_lines(of, 5, newer_than_ns=0)
        assert held is not None and texts(held) == [f"line {number}" for number in range(15, 20)]
        assert hub.held_lines(of, 15, newer_than_ns=0) is None, "too few are held"
        assert [len(hub.streamed_lines(of, most)) for most in (5, 15)] == [5, 10]
        assert hub.held_lines(of, 5, newer_than_ns=reader.log.reached_ns) is None, "none is new"
        assert hub.held_lines(of, 5) is None, "the run goes on"
        await pod.end()
        await reader.task
        held = hub.held_lines(of, 5)
        assert held is not None and texts(held)[-1] == "line 19"
