"""The logs of a job: merged, split into ranks, in bounded memory; and the one-shot reading."""

from __future__ import annotations

import asyncio

import pytest

from k8s.logs import (
    EVERYTHING,
    Item,
    JobLogs,
    LineQueue,
    LogHub,
    LogLine,
    LogRequest,
    LogSelection,
    Mark,
    Marker,
    Target,
)
from k8s.logs.line_queue import HISTORY_ITEMS
from tests.k8s.logs.job_feed import ended, pod_of, running, taken_until, target_of, texts
from tests.scripted.logs import QUICK, START_NS, Fault, ScriptedPod, connected


async def test_the_lines_of_all_instances_come_in_the_order_of_their_times() -> None:
    pods = [pod_of(rank) for rank in range(3)]
    for pod in pods:
        await pod.end()
    async with connected(*pods) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [target_of(pod, rank) for rank, pod in enumerate(pods)])
        queue = logs.open(EVERYTHING)
        async with running(logs):
            items = await taken_until(queue, 12)
    lines = [item for item in items if isinstance(item, LogLine)]
    assert [line.stamp_ns for line in lines] == sorted(line.stamp_ns for line in lines)
    assert len(lines) == 9


async def test_sixty_four_ranks_with_forced_drops_lose_and_double_nothing() -> None:
    pods = [pod_of(rank, lines=40) for rank in range(64)]
    for rank, pod in enumerate(pods):
        pod.faults = [
            Fault(cut_after=97 + rank * 13),
            Fault(500, "kubelet"),
            Fault(cut_after=203 + rank * 7),
            Fault(end_after=333),
        ]
    async with connected(*pods) as (_, client):
        logs = JobLogs(
            LogHub(client, backoff=QUICK),
            [target_of(pod, rank) for rank, pod in enumerate(pods)],
            request=LogRequest(),
            max_streams=24,
        )
        queues = [logs.open(LogSelection(rank=rank)) for rank in range(64)]
        async with running(logs):
            for rank, pod in enumerate(pods):
                await pod.say(*(f"r{rank} later {number}" for number in range(10)))
                await pod.end()
            found: list[list[Item]] = [[] for _ in pods]
            async with asyncio.timeout(120):
                while not all(
                    items and isinstance(items[-1], Marker) and items[-1].mark is Mark.ENDED
                    for items in found
                ):
                    for items, queue in zip(found, queues, strict=True):
                        items += queue.take()
                    await asyncio.sleep(0)
    for items, pod in zip(found, pods, strict=True):
        assert [text for text in texts(items) if not text.startswith("--")] == pod.texts
        assert not any(isinstance(item, Marker) and item.may_lack_lines for item in items)
    assert logs.gaps == 0


async def test_a_pod_that_comes_later_joins() -> None:
    first, second = pod_of(0), pod_of(1)
    async with connected(first, second) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [target_of(first, 0)])
        queue = logs.open(EVERYTHING)
        async with running(logs):
            assert len(await taken_until(queue, 3)) == 3
            logs.set_targets([target_of(first, 0), target_of(second, 1)])
            assert texts(await taken_until(queue, 3)) == second.texts


async def test_a_rank_shows_its_own_lines_and_the_unmarked_lines_of_its_pod() -> None:
    pod = ScriptedPod("job-worker-1")
    for text in ("[rank4]: a", "torchrun says", "[rank5]: b", "[rank4]: c"):
        pod.write(text)
    other = pod_of(0)
    async with connected(pod, other) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [target_of(other, 0), target_of(pod, 4, 5)])
        queue = logs.open(LogSelection(rank=4))
        async with running(logs):
            assert texts(await taken_until(queue, 3)) == ["a", "torchrun says", "c"]
        rows = {row.rank: row for row in logs.rows()}
        assert list(rows) == [0, 4, 5]
        last = rows[4].proof, rows[4].instance, rows[4].lines, rows[4].is_split
        assert last == ("observed", "worker-1", 2, True)
        assert rows[0].proof == "declared"
        later = logs.open(LogSelection(rank=5))
        assert texts(later.take(everything=True)) == ["torchrun says", "b"]


async def test_an_observed_rank_overrides_its_declared_pod() -> None:
    pod = ScriptedPod("job-worker-1")
    pod.write("[rank2]: I am here")
    async with connected(pod, pod_of(0)) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [target_of(pod_of(0), 2, 3), target_of(pod, 4, 5)])
        queue = logs.open(EVERYTHING)
        async with running(logs):
            await taken_until(queue, 4)
        assert logs.instance_of_rank(2) == "worker-1"
        assert logs.instance_of_rank(3) == "worker-0"


async def test_launcher_ranks_are_listed_as_their_lines_arrive() -> None:
    pod = ScriptedPod("job-launcher-0")
    for rank in (0, 2, 1):
        pod.write(f"[1,{rank}]<stdout>:hello")
    async with connected(pod) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [target_of(pod, prints_all_ranks=True)])
        queue = logs.open(EVERYTHING)
        async with running(logs):
            await taken_until(queue, 3)
        assert [(row.rank, row.proof) for row in logs.rows()] == [(n, "observed") for n in range(3)]


async def test_lines_that_are_held_no_more_are_counted_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8s.logs.hub.SOURCE_LINES", 2_000)
    pods = [pod_of(0, lines=5_000), pod_of(1)]
    async with connected(*pods) as (_, client):
        targets = [target_of(pod, rank) for rank, pod in enumerate(pods)]
        logs = JobLogs(LogHub(client, backoff=QUICK), targets, request=LogRequest())
        queue = logs.open(EVERYTHING)
        async with running(logs):
            await taken_until(queue, 5_003)
        for selection in (LogSelection(rank=0), EVERYTHING):
            later = logs.open(selection)
            kept = [text for text in texts(later.take(everything=True)) if text.startswith("r0")]
            assert 1_000 < len(kept) <= 2_000 and kept[-1] == "r0 line 4999"
            assert later.dropped_lines["rank 0"] == 5_000 - len(kept)


async def test_older_lines_of_a_log_that_was_read_again_count_as_no_dropped_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("k8s.logs.hub.RESUME_S", -1.0)
    pod = pod_of(0, lines=10)
    async with connected(pod) as (_, client):
        hub = LogHub(client, backoff=QUICK, grace=lambda: asyncio.sleep(0))
        few, all_lines = (
            JobLogs(hub, [target_of(pod, 0)], request=LogRequest(tail=tail)) for tail in (3, 99)
        )
        for logs, amount in ((few, 3), (all_lines, 10)):
            async with running(logs):
                await taken_until(logs.open(), amount)
            await pod.until(streams=0)
        async with running(all_lines), running(few):
            await pod.say("r0 line 10")
            await taken_until(few.open(), 1)
            assert dict(few.open().dropped_lines) == {}
        await hub.close()


@pytest.mark.parametrize("is_over", [True, False])
async def test_existing_lines_are_read_with_backpressure_and_none_are_dropped(is_over: bool) -> None:
    pods = [ScriptedPod(f"job-worker-{rank}", restart_policy="Never") for rank in range(2)]
    for rank, pod in enumerate(pods):
        every = 1 + 9 * rank  # in the same time, rank 1 writes a tenth of what rank 0 does
        for number in range(0, 60_000, every):
            pod.write(f"r{rank} line {number}", stamp_ns=START_NS + number * 10_000_000 + rank)
        if is_over:
            await pod.end()
    async with connected(*pods) as (_, client):
        targets = [target_of(pod, rank) for rank, pod in enumerate(pods)]
        logs = JobLogs(LogHub(client, backoff=QUICK), targets, request=LogRequest())
        queue = logs.open(EVERYTHING)
        async with running(logs):
            async with asyncio.timeout(120):
                while queue.waiting < HISTORY_ITEMS:
                    await asyncio.sleep(0)
            for _ in range(300):  # what was read meanwhile: the last piece of each
                await asyncio.sleep(0)
            assert queue.waiting < 2 * HISTORY_ITEMS
            items = await taken_until(queue, 66_000 + 2 * is_over)
    lines = [item for item in items if isinstance(item, LogLine)]
    for rank, pod in enumerate(pods):
        assert [line.text.decode() for line in lines if line.rank == rank] == pod.texts
    assert [line.stamp_ns for line in lines] == sorted(line.stamp_ns for line in lines)
    assert not any(isinstance(item, Marker) and item.may_lack_lines for item in items)


@pytest.mark.slow
async def test_a_view_opened_late_drops_no_existing_lines() -> None:
    pods = [pod_of(rank, lines=40_000) for rank in range(3)]
    for pod in pods:
        await pod.end()
    async with connected(*pods) as (_, client):
        targets = [target_of(pod, rank) for rank, pod in enumerate(pods)]
        logs = JobLogs(LogHub(client, backoff=QUICK), targets, request=LogRequest())
        one = logs.open(LogSelection(rank=0))
        async with running(logs):
            async with asyncio.timeout(120):
                while one.waiting < HISTORY_ITEMS:
                    await asyncio.sleep(0)
            every = logs.open(EVERYTHING)
            logs.close(one)
            items = await taken_until(every, 120_003)
    for rank, pod in enumerate(pods):
        read_texts = [item.text.decode() for item in items if isinstance(item, LogLine) and item.rank == rank]
        assert read_texts == pod.texts


def flood(where: Target, start: int, amount: int, rank: int) -> list[Item]:
    return [LogLine(start + number, b"x", where, start + number, rank) for number in range(amount)]


async def test_a_flood_drops_the_oldest_new_lines_of_each_rank_and_keeps_the_history() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", max_items=10)
    where = Target("lab", "w0")
    queue.put(where, flood(where, 0, 50, 0), is_history=True)
    queue.put(where, [*flood(where, 100, 4, 0), Marker(Mark.GAP, "gap", where, 104, 104)])
    for number in range(3):
        queue.put(where, flood(where, 200 + 10 * number, 5, 1))
    items = queue.take(everything=True)
    assert texts(items[:2]) == [
        "-- 4 lines of rank 0 came faster than they were shown and were dropped",
        "-- 5 lines of rank 1 came faster than they were shown and were dropped",
    ]
    assert "-- gap" in texts(items)
    assert len([item for item in items if isinstance(item, LogLine)]) == 60
    assert queue.take(everything=True) == []


async def test_a_source_that_became_silent_does_not_hold_the_others_back() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", window_s=0.05, max_history=10)
    slow, quick = Target("lab", "w0"), Target("lab", "w1")
    queue.put(slow, flood(slow, 0, 1, 0), is_history=True)
    queue.put(quick, flood(quick, 100, 20, 1), is_history=True)
    items = await taken_until(queue, 21)
    assert [item.stamp_ns for item in items] == [0, *range(100, 120)]


async def test_a_source_that_delays_the_merge_is_read_even_when_the_queue_is_full() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", window_s=0.05, max_history=10)
    slow, quick = Target("lab", "w0"), Target("lab", "w1")
    queue.put(quick, flood(quick, 100, 20, 1), is_history=True)
    queue.expect(slow, 0)
    reading = asyncio.create_task(queue.until_writable(slow))
    async with asyncio.timeout(120):
        while not reading.done():
            queue.expect(slow, 0)
            assert queue.take() == []
            await asyncio.sleep(0)
    assert queue.waiting == 20


async def test_closing_a_view_releases_blocked_writers() -> None:
    queue = LineQueue(LogSelection(instance="w0"), lambda _: "", max_history=10)
    where = Target("lab", "w0")
    queue.put(where, flood(where, 0, 20, 0), is_history=True)
    waiting = asyncio.create_task(queue.until_writable(where))
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.close()
    async with asyncio.timeout(120):
        await waiting


async def test_a_view_that_falls_behind_gets_a_marker_for_the_dropped_lines() -> None:
    queue = LineQueue(EVERYTHING, lambda _: "", max_items=10)
    where = Target("lab", "w0")
    for number in range(5):
        queue.put(where, [LogLine(number, b"%d" % index, where, number * 5 + index) for index in range(5)])
    items = queue.take(everything=True)
    assert isinstance(items[0], Marker)
    assert items[0].text.startswith("15 lines")
    assert len(items) == 11


async def test_an_unreadable_log_is_reported_among_the_lines() -> None:
    pod = pod_of(0)
    bad = Target("lab", pod.name, "nope", pod.name, "worker-0", (0,))
    async with connected(pod) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [bad])
        queue = logs.open(EVERYTHING)
        async with running(logs):
            items = await taken_until(queue, 1)
    assert texts(items) == ['-- cannot be read. It has no container "nope".']


async def test_an_error_while_reading_a_previous_run_is_reported_once() -> None:
    pod = pod_of(0)
    pod.faults = [Fault(status=500, message="etcd is away")] * 10
    async with connected(pod) as (_, client):
        request = LogRequest(previous=True, follow=False)
        logs = JobLogs(LogHub(client, backoff=QUICK), [target_of(pod, 0)], request=request)
        queue = logs.open(EVERYTHING)
        async with running(logs):
            await pod.until(requests=4)
            items = await taken_until(queue, 1)
        items += queue.take(everything=True)
    assert [text.count("etcd is away") for text in texts(items)] == [1]


async def test_the_focused_rank_is_streamed_first() -> None:
    pods = [pod_of(rank) for rank in range(4)]
    async with connected(*pods) as (_, client):
        logs = JobLogs(
            LogHub(client, backoff=QUICK), [target_of(p, r) for r, p in enumerate(pods)], max_streams=1
        )
        queue = logs.open(LogSelection(rank=3))
        async with running(logs):
            await pods[0].until(requests=1)
            logs.focus([LogSelection(rank=3)])
            async with asyncio.timeout(120):
                while pods[3].requests[-1:] == [] or pods[3].requests[-1].get("follow") != "true":
                    await asyncio.sleep(0)
            await pods[3].say("now")
            assert "now" in texts(await taken_until(queue, 4))


async def test_changing_focus_while_logs_are_read_loses_and_duplicates_no_lines() -> None:
    cases: list[int] = [0, 1, 2, 3, 5]
    for turns in cases:
        pods = [pod_of(rank, lines=3_000) for rank in range(3)]
        for pod in pods:
            await pod.end()
        async with connected(*pods) as (_, client):
            targets = [target_of(pod, rank) for rank, pod in enumerate(pods)]
            logs = JobLogs(LogHub(client, backoff=QUICK), targets, request=LogRequest(), max_streams=1)
            queue = logs.open(EVERYTHING)
            items: list[Item] = []
            async with running(logs), asyncio.timeout(120):
                for rank in (1, 2, 0) * 5:
                    amount = len(items)
                    while len(items) == amount and not ended(items, 3):
                        await asyncio.sleep(0)
                        items += queue.take(everything=True)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    logs.focus([LogSelection(rank=rank)])
                while not ended(items, 3):
                    await asyncio.sleep(0)
                    items += queue.take(everything=True)
        for rank, pod in enumerate(pods):
            lines = [item.text.decode() for item in items if isinstance(item, LogLine) and item.rank == rank]
            assert lines == pod.texts
