"""The time and text of the newest line: streamed for few logs, polled in turn for many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from k8s.client.client import Client
from k8s.cluster.backoff import ServerProbe
from k8s.logs.last import LastLine, LastLines
from tests.scripted.logs import NS, START_NS, Fault, ScriptedPod, connected, target
from tests.scripted.mirror import HASTY
from tests.scripted.server import WAIT_S


@asynccontextmanager
async def looking(
    client: Client, *pods: ScriptedPod, status: str = "Running", **how: float
) -> AsyncIterator[LastLines]:
    """Read the newest lines of some pods."""
    lines = LastLines(
        client,
        ServerProbe(client, HASTY),
        max_streams=int(how.get("max_streams", 16)),
        turn_s=how.get("turn_s", 0.001),
    )
    lines.set_targets([target(pod, status=status) for pod in pods])
    task = asyncio.create_task(lines.run())
    try:
        yield lines
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.005)


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


async def test_a_polled_log_claims_no_more_silence_than_was_observed() -> None:
    line = LastLine(stamp_ns=100 * NS, raw=b"x", newest_until_s=130.0)
    assert line.silent_s(now_s=500.0) == 30.0
    assert LastLine(stamp_ns=100 * NS, raw=b"x").silent_s(now_s=500.0) == 400.0
    assert LastLine(stamp_ns=100 * NS, raw=b"x").silent_s(now_s=90.0) == 0.0  # its clock is ahead
    assert LastLine().silent_s(now_s=500.0) is None


async def test_a_forbidden_log_reports_the_reason_and_is_not_requested_again() -> None:
    pod = ScriptedPod("one")
    words = 'pods "one" is forbidden: User "li" cannot get resource "pods/log"'
    pod.faults = [Fault(status=403, message=words)] * 2
    async with connected(pod) as (_, client), looking(client, pod) as lines:
        await until(lambda: lines.problem)
        assert words in lines.problem
        await asyncio.sleep(0)
        assert len(pod.requests) == 1


async def test_a_broken_stream_is_taken_up_again() -> None:
    pod = ScriptedPod("one")
    pod.write("step 1")
    pod.faults = [Fault(cut_after=20)]
    async with connected(pod) as (_, client), looking(client, pod) as lines:
        await until(lambda: len(pod.requests) >= 2)
        await pod.say("step 2")
        await until(lambda: last_text(lines, pod) == b"step 2")


async def test_a_log_that_is_over_is_read_once() -> None:
    pod = ScriptedPod("one")
    pod.write("Traceback")
    pod.runs[-1].tail = b"CUDA error: out of memory"
    await pod.end(1)
    async with connected(pod) as (_, client), looking(client, pod, status="Failed") as lines:
        await until(lambda: last_text(lines, pod) == b"CUDA error: out of memory")
        assert lines.newest["one"].newest_until_s is not None
        lines.set_targets([target(pod, status="Failed", is_chief=True)])
        await asyncio.sleep(0)
        assert len(pod.requests) == 1


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
