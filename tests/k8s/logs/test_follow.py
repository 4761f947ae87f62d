"""Following one container's log against a server that breaks on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff
from k8s.logs import (
    Follower,
    Item,
    LinePrinter,
    LogLine,
    LogRequest,
    Mark,
    Marker,
    Options,
    Target,
    write_stamp,
)
from k8s.logs.lines import LogBlock
from k8s.logs.liveness import LEAST_S
from k8s.logs.read import read
from k8s.logs.tail import read_tail
from k8s.text.errors import Forbidden, Invalid, KubeError
from tests.scripted.logs import (
    NS,
    QUICK,
    START_NS,
    CountedBackoff,
    Fault,
    Run,
    ScriptedPod,
    connected,
    target,
)
from tests.scripted.server import WAIT_S, Answer, Drop, Stream
from tests.scripted.server import ScriptedCluster as OtherCluster

EVERYTHING = LogRequest()


async def follow(
    client: Client, followed: Target, wanted: LogRequest = EVERYTHING, *, backoff: Backoff = QUICK
) -> AsyncIterator[Item]:
    async with aclosing(Follower(client, followed, wanted, backoff=backoff).batches()) as batches:
        async for batch in batches:
            for item in batch:
                yield item


async def read_all(
    pod: ScriptedPod, wanted: LogRequest = EVERYTHING, backoff: Backoff = QUICK
) -> tuple[list[str], list[Marker]]:
    """Follow a pod of a new cluster to its end."""
    async with connected(pod) as (_, client), asyncio.timeout(120):
        items = [item async for item in follow(client, target(pod), wanted, backoff=backoff)]
    texts = [item.text.decode() for item in items if isinstance(item, LogLine)]
    return texts, [item for item in items if isinstance(item, Marker)]


def ended_pod(lines: int = 5, exit_code: int = 0, **more: int) -> ScriptedPod:
    pod = ScriptedPod("w0")
    for number in range(lines):
        pod.write(f"line {number}", **more)
    pod.runs[-1].exit_code = exit_code
    return pod


async def test_a_finished_log_is_read_and_its_exit_code_is_reported() -> None:
    pod = ended_pod()
    texts, markers = await read_all(pod)
    assert texts == pod.texts
    assert [(each.mark, each.text) for each in markers] == [(Mark.ENDED, "ended, exit 0")]


async def test_timestamps_are_always_requested_and_stripped_from_the_line() -> None:
    pod = ended_pod(2)
    async with connected(pod) as (_, client):
        items = [item async for item in follow(client, target(pod), backoff=QUICK)]
    assert pod.requests[0]["timestamps"] == "true"
    assert [item.stamp_ns - START_NS for item in items] == [1_000_000, 2_000_000, 2_000_000]


async def test_a_line_without_a_timestamp_gets_that_of_the_previous_line() -> None:
    pod = ScriptedPod("w0")
    pod.write("hello\nunable to retrieve container logs")  # as the kubelet itself writes the second
    pod.runs[0].exit_code = 0
    async with connected(pod) as (_, client):
        lines = [i async for i in follow(client, target(pod), backoff=QUICK) if isinstance(i, LogLine)]
    assert [(line.stamp_ns - START_NS, line.is_stamped) for line in lines] == [
        (1_000_000, True),
        (1_000_000, False),
    ]


async def test_a_connection_cut_in_the_middle_of_a_line_loses_and_doubles_nothing() -> None:
    pod = ended_pod(50)
    pod.faults = [Fault(cut_after=500), Fault(cut_after=777), Fault(), Fault()]
    texts, markers = await read_all(pod)
    assert texts == pod.texts
    assert [each.mark for each in markers] == [Mark.RECONNECTED, Mark.RECONNECTED, Mark.ENDED]
    assert markers[0].text.endswith(" s, nothing lost")


async def test_wherever_the_connection_is_cut_every_line_comes_once() -> None:
    for cut in range(0, 400, 23):
        pod = ScriptedPod("w0")
        for number in range(10):
            pod.write(f"line {number}", after_ns=0 if number % 3 else 700_000_000)
        pod.runs[0].exit_code = 0
        pod.faults = [Fault(cut_after=cut), Fault(cut_after=cut + 31)]
        texts, _ = await read_all(pod)
        assert texts == pod.texts


@pytest.mark.parametrize("more", [[], [Fault(500, "connection refused")]], ids=["answers", "is dead"])
@pytest.mark.parametrize(
    "wanted",
    [
        LogRequest(),
        LogRequest(follow=False, tail=1_500),
        LogRequest(follow=False, previous=True),
        LogRequest(follow=False, is_raw=True),
        LogRequest(follow=False, is_named=True),
    ],
    ids=["follow", "tail", "previous", "raw", "named"],
)
async def test_an_answer_that_a_dying_kubelet_ends_after_a_line_is_read_again(
    wanted: LogRequest, more: list[Fault]
) -> None:
    pod = ScriptedPod("w0")
    for number in range(1_000, 3_000):
        pod.write(f"line {number} of a log that is longer than one piece")
    lines = pod.texts[-(wanted.tail or 2_000) :]
    pod.runs[0].exit_code = 0
    if wanted.previous:
        pod.runs.append(Run(exit_code=0))
    plain, stamped = len(f"{lines[0]}\n"), len(f"{write_stamp(START_NS + 1)} {lines[0]}\n")
    pod.faults = [Fault(end_after=1_400 * (plain if wanted.is_raw else stamped)), *more]
    async with connected(pod) as (_, client):
        items = [item async for item in follow(client, target(pod), wanted, backoff=QUICK)]
        pod.faults = [Fault(end_after=1_400 * stamped), *more]
        with pytest.raises(KubeError):
            await read_tail(client, target(pod), 2_000, previous=wanted.previous, is_whole=True)
    found = printed([each for each in items if each.text]).splitlines()
    if wanted.is_named:
        blocks = [each.lines for each in items if isinstance(each, LogBlock)]
        found = [line.decode().rpartition("] ")[2] for block in blocks for line in block] + found
    assert found == lines
    assert all(each.mark is not Mark.GAP for each in items if isinstance(each, Marker))


def printed(items: list[Item], **how: bool) -> str:
    printer = LinePrinter(**how)
    return b"".join(printer.format([each]) for each in items if isinstance(each, LogLine)).decode()


@pytest.mark.parametrize("piece_bytes", [1, 4, 7])
async def test_lines_in_pieces_are_whole_in_the_output_wherever_the_connection_is_cut(
    piece_bytes: int,
) -> None:
    for cut in range(0, 400, 29):
        pod = ScriptedPod("w0")
        for number in range(10):
            pod.write(f"line {number}" * (number % 4), after_ns=0 if number % 3 else 700_000_000)
        run = pod.runs[0]
        run.tail, run.exit_code = b"without an end", 0
        pod.faults = [Fault(cut_after=cut + more) for more in (0, 31, 38)]
        wanted = LogRequest(piece_bytes=piece_bytes)
        async with connected(pod) as (_, client), asyncio.timeout(120):
            found = [each async for each in follow(client, target(pod), wanted, backoff=QUICK)]
        lines = [*run.lines, (run.lines[-1][0] + 1, run.tail)]
        expected = "".join(f"{write_stamp(stamp)} {raw.decode()}\n" for stamp, raw in lines)
        assert printed(found, timestamps=True) == expected, cut
        assert max(len(each.raw) for each in found if isinstance(each, LogLine)) <= piece_bytes + 40


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_a_bar_is_printed_as_it_comes_and_once_after_a_reconnect(is_terminal: bool) -> None:
    pod, path = ScriptedPod("w0"), "/api/v1/namespaces/lab/pods/w0"
    stamp = f"{write_stamp(START_NS)} ".encode()
    first, second = Stream(stamp + b"[rank1]: \r 10%"), Stream(stamp + b"[rank1]: \r 10%\r 2")
    where = target(pod, ranks=(0, 1), ranks_proof="declared")
    options = Options(follow=True, instance="w0")
    out, printer = "", LinePrinter(is_terminal=is_terminal)
    async with OtherCluster() as cluster, cluster.client() as client, asyncio.timeout(WAIT_S):
        cluster.say(path, Answer(pod.as_json()))
        cluster.say(f"{path}/log", first, second)
        async with aclosing(read(client, [where], options, backoff=QUICK)) as batches:
            async for batch in batches:
                lines = [each for each in batch if isinstance(each, LogLine)]
                assert {each.rank for each in lines} <= {1}
                out += printer.format(lines).decode()
                if out.endswith("\r 10%"):
                    first.drop()
                elif out.endswith("\r 2"):
                    second.send(b"0%\n" + stamp.replace(b":00.", b":09.") + b"[rank1]: epoch")
                elif out.endswith("epoch"):
                    break
    assert out == "[rank1]: \r 10%\r 20%\n[rank1]: epoch"


async def test_a_log_stream_that_ends_while_the_container_runs_is_resumed() -> None:
    for end in range(0, 400, 37):
        pod = ScriptedPod("w0")
        for number in range(10):
            pod.write(f"line {number}", after_ns=400_000_000)
        pod.faults = [Fault(end_after=end)]
        async with connected(pod) as (_, client), asyncio.timeout(120):
            found = []
            async for item in follow(client, target(pod), backoff=QUICK):
                found.append(item)
                if isinstance(item, LogLine) and item.text == b"line 9":
                    await pod.end()
        assert [item.text.decode() for item in found if isinstance(item, LogLine)] == pod.texts


async def test_lines_with_equal_timestamps_are_deduplicated_by_count() -> None:
    pod = ended_pod(30, after_ns=0)
    pod.faults = [Fault(cut_after=41 * 7)]
    texts, _ = await read_all(pod)
    assert texts == pod.texts


async def test_lines_out_of_order_around_a_cut_are_not_lost() -> None:
    pod = ScriptedPod("w0")
    for number, offset in enumerate((10.0, 10.9, 11.1, 10.95, 11.2, 10.99, 11.3)):
        pod.write(f"line {number}", stamp_ns=START_NS + int(offset * NS))
    pod.runs[0].exit_code = 0
    pod.faults = [Fault(cut_after=38 * 3)]
    texts, _ = await read_all(pod)
    assert texts == pod.texts


async def test_a_tail_stays_a_tail_when_the_connection_is_lost() -> None:
    pod = ended_pod(100)
    pod.faults = [Fault(cut_after=150)]
    texts, _ = await read_all(pod, LogRequest(tail=10))
    assert texts == pod.texts[-10:]
    assert pod.requests[0]["tailLines"] == "10"
    assert "tailLines" not in pod.requests[1]


async def test_a_log_rotated_while_away_is_a_gap() -> None:
    pod = ended_pod(40, after_ns=NS)
    pod.faults = [Fault(cut_after=400)]
    async with connected(pod) as (_, client), asyncio.timeout(120):
        found: list[LogLine | Marker] = []
        async for item in follow(client, target(pod), backoff=QUICK):
            found.append(item)
            if len(found) == 3:
                pod.runs[0].first_kept = 30
    texts = [item.text.decode() for item in found if isinstance(item, LogLine)]
    gaps = [item for item in found if isinstance(item, Marker) and item.may_lack_lines]
    assert texts[-10:] == pod.texts[-10:]
    assert len(texts) < 40
    assert len(gaps) == 1
    assert "may be missing" in gaps[0].text
    after = found[found.index(gaps[0]) + 1]
    assert isinstance(after, LogLine) and after.text == b"line 30"


async def test_a_container_that_has_not_started_is_waited_for() -> None:
    pod = ScriptedPod("w0", waiting="ContainerCreating")
    async with connected(pod) as (_, client), asyncio.timeout(120):
        found = []
        async for item in follow(client, target(pod), backoff=QUICK):
            found.append(item)
            if len(found) == 1:
                pod.waiting = ""
                await pod.say("hello")
                await pod.end()
    assert [item.text if isinstance(item, Marker) else item.text.decode() for item in found] == [
        "waits: ContainerCreating",
        "hello",
        "ended, exit 0",
    ]


async def test_a_restart_is_followed_and_the_end_of_the_run_before_is_read() -> None:
    pod = ScriptedPod("w0")
    pod.write("first run")
    pod.faults = [Fault(cut_after=46)]
    async with connected(pod) as (_, client), asyncio.timeout(120):
        found: list[LogLine | Marker] = []
        async for item in follow(client, target(pod), backoff=QUICK):
            found.append(item)
            if len(found) == 1:
                pod.write("last words")
                pod.runs[0].exit_code, pod.runs[0].reason = 137, "OOMKilled"
                pod.runs.append(Run())
                pod.write("second run")
                await pod.end()
    assert [item.text if isinstance(item, Marker) else item.text.decode() for item in found if item] == [
        "first run",
        found[1].text,
        "last words",
        "restart #1, exit 137 OOMKilled",
        "second run",
        "ended, exit 0",
    ]
    assert isinstance(found[1], Marker) and found[1].mark is Mark.RECONNECTED


@pytest.mark.parametrize("rule", [(), (7, 3)])
async def test_a_container_that_crashes_is_waited_for_between_its_runs(rule: tuple[int, ...]) -> None:
    pod = ended_pod(2, exit_code=3)
    if rule:
        pod.restart_policy, pod.restarts_after = "Never", rule
    async with connected(pod) as (_, client), asyncio.timeout(120):
        words = []
        async for item in follow(client, target(pod), backoff=QUICK):
            if isinstance(item, Marker):
                words.append(item.text)
                if len(words) == 1:
                    pod.runs.append(Run())
                    pod.write("again")
                    await pod.end()
    assert words == ["ended, exit 3; waits for a restart", "restart #1, exit 3", "ended, exit 0"]


@pytest.mark.parametrize(("runs", "gap"), [(1, "1 short run was"), (2, "2 short runs were")])
async def test_runs_that_came_and_went_unread_are_a_gap(runs: int, gap: str) -> None:
    pod = ended_pod(2, exit_code=1)
    async with connected(pod) as (_, client), asyncio.timeout(120):
        markers = []
        async for item in follow(client, target(pod), backoff=QUICK):
            if isinstance(item, Marker):
                markers.append(item)
                if len(markers) == 1:
                    pod.runs += [*(Run(exit_code=1) for _ in range(runs)), Run(exit_code=0)]
    assert [each.mark for each in markers] == [Mark.ENDED, Mark.GAP, Mark.RESTART, Mark.ENDED]
    assert markers[1].text == f"gap: {gap} not read"


async def test_a_pod_that_is_deleted_ends_the_log() -> None:
    pod = ScriptedPod("w0")
    pod.write("hello")
    pod.faults = [Fault(cut_after=37)]
    async with connected(pod) as (_, client), asyncio.timeout(120):
        found = []
        async for item in follow(client, target(pod), backoff=QUICK):
            found.append(item)
            pod.is_gone = True
    assert [type(item) for item in found] == [LogLine, Marker]
    assert found[-1].text == "the pod is gone"


async def test_a_new_pod_with_the_same_name_is_not_followed() -> None:
    pod = ScriptedPod("w0", uid="one")
    pod.write("hello")
    followed = target(pod)
    pod.uid = "two"
    async with connected(pod) as (_, client), asyncio.timeout(120):
        found = [item async for item in follow(client, followed, backoff=QUICK)]
    assert [item.text for item in found] == ["the pod is gone"]


async def test_server_errors_are_retried_until_the_log_is_read() -> None:
    pod = ended_pod(3)
    pod.faults = [Fault(500, "kubelet refused"), Fault(503, "etcd"), Fault(500, "kubelet refused")]
    texts, markers = await read_all(pod)
    assert texts == pod.texts
    assert [each.mark for each in markers] == [Mark.LOST, Mark.LOST, Mark.RECONNECTED, Mark.ENDED]
    assert "etcd" in markers[0].text


async def test_a_successful_read_resets_the_backoff() -> None:
    backoff = CountedBackoff()
    pod = ended_pod(20)
    pod.faults = [Fault(500), Fault(500), Fault(cut_after=400), Fault(500), Fault(cut_after=600), Fault(500)]
    texts, _ = await read_all(pod, backoff=backoff)
    assert texts == pod.texts
    assert backoff.failures == [1, 2, 1, 2, 1, 2]


async def test_streams_that_end_at_once_are_reopened_after_growing_delays() -> None:
    backoff = CountedBackoff(first_s=60.0)
    pod = ScriptedPod("w0", faults=[Fault(end_after=0)] * 4)
    pod.write("a")
    async with connected(pod) as (_, client), asyncio.timeout(120):
        async for item in follow(client, target(pod), backoff=backoff):
            if isinstance(item, LogLine):
                break
    assert backoff.failures == [1, 2, 3, 4]


async def test_an_unreachable_cluster_is_reported_once_and_retried() -> None:
    pod = ScriptedPod("w0")
    pod.write("before")
    async with connected(pod) as (cluster, client), asyncio.timeout(120):
        cluster.say_everywhere(Drop())
        found = []
        async for item in follow(client, target(pod), backoff=QUICK):
            found.append(item)
            cluster.say_everywhere(None)
            if isinstance(item, LogLine):
                await pod.end()
    marks = [item.mark if isinstance(item, Marker) else item.text for item in found]
    assert marks == [Mark.LOST, Mark.RECONNECTED, b"before", Mark.ENDED]


async def test_a_stalled_connection_is_reopened_silently() -> None:
    pod = ended_pod(20)
    pod.faults = [Fault(stall_after=300)]
    texts, markers = await read_all(
        pod, backoff=Backoff(first_s=0.005, longest_s=0.02, idle_s=0.2, waiting_s=0.01, poll_s=0.01)
    )
    assert texts == pod.texts
    assert [each.mark for each in markers] == [Mark.ENDED]


async def test_a_log_that_stalls_at_a_rotation_is_opened_again_before_its_job_counts_as_silent() -> None:
    assert DEFAULT_BACKOFF.quiet_s < LEAST_S
    assert [DEFAULT_BACKOFF.idle_limit_s(each) for each in (0, 1, 2, 9)] == [45, 90, 180, 240]
    pod = ended_pod(20)
    pod.faults = [Fault(stall_after=300)]
    texts, markers = await read_all(pod, backoff=replace(QUICK, quiet_s=0.2, idle_s=600.0))
    assert texts == pod.texts
    assert [each.mark for each in markers] == [Mark.ENDED]


async def test_a_last_line_without_an_end_is_read_once() -> None:
    pod = ended_pod(3)
    pod.runs[0].tail = b"Segmentation fault"
    texts, _ = await read_all(pod)
    assert texts == [*pod.texts, "Segmentation fault"]


async def test_an_overlong_line_is_cut_and_counts_its_missing_bytes() -> None:
    pod = ScriptedPod("w0")
    pod.write(b"x" * 300_000)
    pod.write("short")
    pod.runs[0].exit_code = 0
    async with connected(pod) as (_, client):
        lines = [i async for i in follow(client, target(pod), backoff=QUICK) if isinstance(i, LogLine)]
    assert [(len(line.raw), line.missing_bytes) for line in lines] == [(65_536, 234_464), (5, 0)]


async def test_binary_log_lines_are_kept_unchanged() -> None:
    pod = ScriptedPod("w0")
    pod.write(bytes(set(range(256)) - {10}))
    pod.runs[0].exit_code = 0
    async with connected(pod) as (_, client):
        lines = [i async for i in follow(client, target(pod), backoff=QUICK) if isinstance(i, LogLine)]
    assert lines[0].raw == pod.runs[0].lines[0][1]


async def test_cancelling_closes_the_connection_at_once() -> None:
    pod = ScriptedPod("w0")
    pod.write("hello")
    async with connected(pod) as (_, client):
        read = asyncio.Event()

        async def run() -> None:
            async for _ in follow(client, target(pod), backoff=QUICK):
                read.set()

        task = asyncio.create_task(run())
        await read.wait()
        task.cancel()
        await pod.until(streams=0)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_silent_log_that_is_polled_is_read_again_at_its_pace() -> None:
    backoff = CountedBackoff(poll_s=0.01)
    pod = ScriptedPod("w0")
    async with connected(pod) as (_, client), asyncio.timeout(120):
        follower = Follower(client, target(pod), backoff=backoff)
        follower.is_streamed = False
        async with aclosing(follower.batches()) as batches:
            first = asyncio.ensure_future(anext(batches))
            await pod.until(requests=3)
            pod.write("late")
            assert [item.raw for item in await first if isinstance(item, LogLine)] == [b"late"]
    assert backoff.failures == []


async def test_without_follow_a_refusal_is_an_error() -> None:
    pod = ended_pod()
    pod.faults = [Fault(403, 'pods "w0" is forbidden')]
    with pytest.raises(Forbidden):
        await read_all(pod, LogRequest(follow=False))


async def test_a_container_that_the_pod_lacks_is_an_error() -> None:
    pod = ended_pod()
    async with connected(pod) as (_, client):
        with pytest.raises(Invalid, match="no container"):
            async for _ in follow(client, target(pod, container="sidecar"), backoff=QUICK):
                pass


async def test_without_follow_a_running_container_is_read_up_to_now() -> None:
    pod = ScriptedPod("w0")
    pod.write("a")
    texts, markers = await read_all(pod, LogRequest(follow=False))
    assert (texts, markers) == (["a"], [])


async def test_the_previous_run_can_be_read() -> None:
    pod = ended_pod(3, exit_code=1)
    pod.runs.append(Run())
    pod.write("now")
    texts, _ = await read_all(pod, LogRequest(previous=True))
    assert texts == ["line 0", "line 1", "line 2"]
