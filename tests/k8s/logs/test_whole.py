"""Whole logs read again, with held lines where the server no longer has them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from k8s.client.client import Client
from k8s.logs import EVERYTHING, Item, JobLogs, LogLine, LogRequest, Target
from k8s.logs.job import full_log
from tests.k8s.logs.job_feed import running, taken_until, texts
from tests.scripted.logs import QUICK, START_NS, Fault, Run, ScriptedPod, connected, target


def pod_of(lines: int = 6) -> ScriptedPod:
    pod = ScriptedPod("w0")
    for number in range(lines):
        pod.write(f"line {number}")
    return pod


def held_of(pod: ScriptedPod, first: int, run: int = 0) -> list[Item]:
    """Return the lines that a view holds of a run of a pod, from one on."""
    lines = pod.runs[run].lines[first:]
    return [LogLine(stamp, raw, target(pod), number, 0) for number, (stamp, raw) in enumerate(lines)]


async def whole(client: Client, of: Target, **more: object) -> list[str]:
    async with asyncio.timeout(20), aclosing(full_log(client, of, backoff=QUICK, **more)) as batches:  # type: ignore[arg-type]
        return texts([item async for batch in batches for item in batch])


async def test_all_lines_come_from_the_start_though_the_connection_is_lost_on_the_way() -> None:
    pod = pod_of(200)
    pod.faults = [Fault(cut_after=1000), Fault(500, "kubelet")]
    async with connected(pod) as (_, client):
        found = await whole(client, target(pod), held=held_of(pod, 190), gone={"rank 0": 190})
    assert [text for text in found if not text.startswith("--")] == pod.texts


async def test_what_was_rotated_away_comes_from_what_was_held_and_the_rest_is_said_to_be_missing() -> None:
    pod = pod_of()
    held = held_of(pod, 2)
    pod.runs[0].first_kept = 4
    gone = {"rank 0": 2}
    async with connected(pod) as (_, client):
        found = await whole(client, target(pod), held=held, gone=gone)
    assert found == [
        "-- rank 0: 2 earlier lines cannot be read again",
        "-- 2 lines that the server no longer has, as they were held here",
        "line 2",
        "line 3",
        "-- from here on as the server has them",
        "line 4",
        "line 5",
    ]


async def test_of_a_pod_that_another_one_has_replaced_there_is_what_was_held() -> None:
    pod = pod_of()
    followed, held = target(pod), held_of(pod, 0)
    pod.uid = "another"
    async with connected(pod) as (_, client):
        found = await whole(client, followed, held=held)
    assert [text for text in found if text.startswith("line")] == pod.texts
    assert "the server no longer has" in "".join(found)


async def test_a_log_that_breaks_off_goes_on_with_what_was_held() -> None:
    pod = pod_of()
    pod.faults = [Fault(cut_after=80)] + [Fault(500, "kubelet is away")] * 9
    async with connected(pod) as (_, client):
        found = await whole(client, target(pod), held=held_of(pod, 0))
    assert [text for text in found if text.startswith("line")] == pod.texts
    assert any("cannot be read to its end" in text and "kubelet is away" in text for text in found)


async def test_the_run_before_a_restart_that_was_followed_is_read_again_too() -> None:
    pod = pod_of()
    async with connected(pod) as (_, client):
        logs = JobLogs(client, [target(pod, ranks=(0,))], request=LogRequest(tail=2), backoff=QUICK)
        feed = logs.open(EVERYTHING)
        async with running(logs):
            await taken_until(feed, 2)
            pod.runs[0].exit_code = 1
            pod.runs.append(Run([(START_NS + 3_600_000_000_000, b"second run")]))
            await pod.tell()
            while not any("second run" in text for text in texts(feed.take(everything=True))):
                await asyncio.sleep(0)
        found = texts([item async for item in logs.read_full(EVERYTHING)])
    assert [text for text in found if not text.startswith("--")] == [*pod.texts]


async def test_a_view_of_the_run_before_saves_that_run() -> None:
    pod = pod_of()
    pod.runs[0].exit_code = 1
    pod.runs.append(Run([(START_NS + 3_600_000_000_000, b"second run")]))
    async with connected(pod) as (_, client):
        before = LogRequest(previous=True, follow=False)
        logs = JobLogs(client, [target(pod, ranks=(0,))], request=before, backoff=QUICK)
        found = texts([item async for item in logs.read_full(EVERYTHING)])
    assert found == [f"line {number}" for number in range(6)]
