"""The time and text of the newest line: streamed for few logs, polled in turn for many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.cluster.backoff import ServerProbe
from k8s.logs import JobRanks, find_ranks, targets_of
from k8s.logs.hub import LogHub
from k8s.logs.last import LastLine, LastLines
from k8s.logs.tail import FLOODED_S, MAX_BYTES, MAX_READ_TIMES, PROBE_BYTES, read_tail
from tests.scripted.logs import NS, QUICK, START_NS, Fault, ScriptedPod, connected, target
from tests.scripted.mirror import HASTY
from tests.scripted.server import Answer, Flood, ScriptedCluster, until
from tests.support.objects import elastic_job, joined


@asynccontextmanager
async def looking(
    client: Client, *pods: ScriptedPod, status: str = "Running", hub: LogHub | None = None, **how: Any
) -> AsyncIterator[LastLines]:
    hub = hub or LogHub(client, backoff=QUICK, grace=lambda: asyncio.sleep(0))
    lines = LastLines(hub, ServerProbe(client, HASTY), **{"turn_s": 0.001, **how})
    lines.set_targets([target(pod, status=status) for pod in pods])
    task = asyncio.create_task(lines.run())
    try:
        yield lines
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def last_text(lines: LastLines, pod: ScriptedPod) -> bytes:
    found = lines.newest.get(pod.name)
    return found.raw if found is not None else b""


async def test_the_newest_line_of_each_log_is_known_as_it_comes() -> None:
    one, other = ScriptedPod("one"), ScriptedPod("other")
    one.write("step 1")
    async with connected(one, other) as (_, client), looking(client, one, other) as lines:
        await until(lambda: last_text(lines, one) == b"step 1")
        assert lines.newest["one"].stamp_ns == START_NS + 1_000_000
        await one.say("step 2", "step 3")
        await until(lambda: last_text(lines, one) == b"step 3")
        assert last_text(lines, other) == b""
        assert [asked.get("tailLines") for asked in one.requests] == ["1"]
        assert not lines.is_polled and lines.round_s == 0


async def test_an_empty_line_counts_as_a_sign_of_life_but_is_not_shown() -> None:
    pod = ScriptedPod("one")
    pod.write("step 1")
    async with connected(pod) as (_, client), looking(client, pod) as lines:
        await until(lambda: last_text(lines, pod) == b"step 1")
        await pod.say("", after_ns=5 * NS)
        await until(lambda: lines.newest["one"].stamp_ns > START_NS + 5 * NS)
        assert last_text(lines, pod) == b"step 1"


async def test_many_logs_are_polled_in_turn_and_not_streamed() -> None:
    pods = [ScriptedPod(f"pod-{number}") for number in range(5)]
    for pod in pods:
        pod.write("hello")
    async with connected(*pods) as (_, client), looking(client, *pods, max_streams=4) as lines:
        assert lines.is_polled and lines.round_s > 0
        await until(lambda: all(last_text(lines, pod) == b"hello" for pod in pods))
        pods[4].write("again")
        await until(lambda: last_text(lines, pods[4]) == b"again")
        asked = [request for pod in pods for request in pod.requests]
        assert all(each["tailLines"] == "1" and "follow" not in each for each in asked)
        assert max(len(pod.requests) for pod in pods) - min(len(pod.requests) for pod in pods) <= 1


# Sent and not read: what the buffers of sockets and of aiohttp hold.
BUFFERED = 16 * 2**20
STAMP = b"2026-05-14T10:00:00.000000000Z "


@pytest.mark.parametrize("line", [b"x" * 2**16, STAMP + b"x" * 2**15 + b"\n"], ids=["endless", "lines"])
async def test_a_log_that_floods_is_read_within_limits_and_probed_again_later(line: bytes) -> None:
    made, pods = elastic_job("flooded", 2)
    job, flood = joined([], pods, [made])[1]["flooded"], Flood(line)
    ranks, at_first_s = JobRanks(), time.monotonic()
    where = targets_of(job)[0]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say_everywhere(flood)
        await find_ranks(client, job, ranks=ranks)
        assert len(cluster.requests) == 2 and flood.sent < 2 * (MAX_READ_TIMES * PROBE_BYTES + BUFFERED)
        await find_ranks(client, job, ranks=ranks)
        assert len(cluster.requests) == 2
        assert min(ranks.probe_after_s.values()) >= at_first_s + FLOODED_S
        flood.sent = 0
        assert sum(len(each.raw) for each in await read_tail(client, where, 1)) <= MAX_BYTES
        assert flood.sent < MAX_READ_TIMES * MAX_BYTES + BUFFERED


async def test_one_of_many_logs_whose_line_never_ends_does_not_keep_the_others_waiting() -> None:
    flood, two = Flood(STAMP + b"x" * 2**16), [ScriptedPod("flooded"), ScriptedPod("usual")]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/api/v1/namespaces/lab/pods/flooded/log", flood)
        cluster.say("/api/v1/namespaces/lab/pods/usual/log", Answer(STAMP + b"step 1\n"))
        async with looking(client, *two, max_streams=1) as lines:
            await until(lambda: last_text(lines, two[1]) == b"step 1")
            assert last_text(lines, two[0]).startswith(b"xxx")
            turns = len(cluster.asked("/api/v1/namespaces/lab/pods/flooded/log"))
            assert flood.sent < turns * BUFFERED


async def test_a_polled_log_claims_no_more_silence_than_was_observed() -> None:
    line = LastLine(stamp_ns=100 * NS, raw=b"x", newest_until_s=130.0)
    assert line.silent_s(now_s=500.0) == 30.0
    assert LastLine(stamp_ns=100 * NS, raw=b"x").silent_s(now_s=500.0) == 400.0
    assert LastLine(stamp_ns=100 * NS, raw=b"x").silent_s(now_s=90.0) == 0.0  # its clock is ahead
    assert LastLine().silent_s(now_s=500.0) is None


async def test_a_forbidden_log_reports_the_reason_and_is_requested_again_by_the_next_view() -> None:
    pod, stopped = ScriptedPod("one"), asyncio.Event()
    words = 'pods "one" is forbidden: User "li" cannot get resource "pods/log"'
    pod.faults = [Fault(status=403, message=words)] * 10_000

    async def grace() -> None:
        stopped.set()

    async with connected(pod) as (_, client):
        hub = LogHub(client, backoff=QUICK, grace=grace)
        async with looking(client, pod, hub=hub) as lines:
            await until(lambda: words in lines.problem)
            await stopped.wait()
        pod.faults = []
        async with looking(client, pod, hub=hub) as lines:
            await pod.say("step 1")
            await until(lambda: last_text(lines, pod) == b"step 1" and not lines.problem)


async def test_a_line_is_not_known_to_be_the_newest_while_the_log_cannot_be_read() -> None:
    pod = ScriptedPod("one")
    pod.write("step 1")
    whole_line = len(STAMP + b"step 1\n")
    pod.faults = [Fault(cut_after=whole_line), *[Fault(status=503)] * 10_000]
    async with connected(pod) as (_, client), looking(client, pod) as lines:
        await until(lambda: last_text(lines, pod) == b"step 1")
        await until(lambda: lines.newest["one"].newest_until_s is not None)
        pod.faults = []
        await until(lambda: lines.newest["one"].newest_until_s is None)
        assert last_text(lines, pod) == b"step 1"


async def test_a_log_that_is_over_is_read_once() -> None:
    pod = ScriptedPod("one")
    pod.write("Traceback")
    pod.runs[-1].tail = b"CUDA error: out of memory"
    await pod.end(1)
    async with connected(pod) as (_, client), looking(client, pod, status="Failed") as lines:
        await until(lambda: lines.newest.get("one", LastLine()).newest_until_s is not None)
        assert last_text(lines, pod) == b"CUDA error: out of memory"
        lines.set_targets([target(pod, status="Failed", is_chief=True)])
        await asyncio.sleep(0.01)
        assert len(pod.requests) == 2, "once more, as its last line has no end"


async def test_logs_of_a_pending_pod_are_not_requested() -> None:
    pod = ScriptedPod("one")
    async with connected(pod) as (_, client), looking(client, pod, status="Pending") as lines:
        pod.write("hello")
        lines.set_targets([target(pod, status="Running")])
        await until(lambda: last_text(lines, pod) == b"hello")
        assert len(pod.requests) == 1


async def test_leaving_closes_every_stream() -> None:
    pods = [ScriptedPod(f"pod-{number}") for number in range(3)]
    async with connected(*pods) as (_, client):
        async with looking(client, *pods):
            for pod in pods:
                await pod.until(streams=1)
        for pod in pods:
            await pod.until(streams=0)
