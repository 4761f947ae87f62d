"""Logs read once, or followed to their end: ranks, pods, order and errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from itertools import product
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.logs import (
    EVERYTHING,
    Follower,
    Item,
    JobLogs,
    LinePrinter,
    LogHub,
    LogLine,
    LogRequest,
    Mark,
    Marker,
    Options,
    Target,
    find_ranks,
    targets_of,
)
from k8s.logs.job import full_log
from k8s.logs.line_queue import LogSelection, by_time
from k8s.logs.lines import MAX_LINE_BYTES, LogBlock, Splitter, to_stamp
from k8s.logs.read import _named, _OwnLines, _RankBlocks, read
from k8s.snapshot import Job
from k8s.text.errors import Invalid, NotFound
from tests.k8s.logs.job_feed import pod_of, running, taken_until, target_of, texts
from tests.scripted.logs import QUICK, START_NS, Fault, Run, ScriptedPod, connected, target
from tests.support.objects import elastic_job, joined
from tui.text.instances import format_ranks


async def test_following_ends_when_the_job_is_over_after_its_last_pod() -> None:
    pod = pod_of(0)
    await pod.end()
    is_over = asyncio.Event()

    async def snapshots() -> AsyncIterator[Sequence[Target]]:
        yield [target_of(pod, 0)]
        await is_over.wait()

    async with connected(pod) as (_, client), asyncio.timeout(120):
        found: list[Item] = []
        async for batch in read(client, snapshots(), Options(follow=True, every=True), backoff=QUICK):
            found += batch
            if any(isinstance(item, Marker) and item.mark is Mark.ENDED for item in batch):
                asyncio.get_running_loop().call_later(0.05, is_over.set)
    assert [text for text in texts(found) if not text.startswith("--")] == pod.texts


async def read_texts(client: Client, targets: Sequence[Target], options: Options) -> list[str]:
    return texts(await read_items(client, targets, options))


async def read_items(
    client: Client, targets: Sequence[Target] | AsyncIterator[Sequence[Target]], options: Options
) -> list[Item]:
    async with asyncio.timeout(120):
        return [item async for batch in read(client, targets, options, backoff=QUICK) for item in batch]


async def test_one_shot_reads_rank_0_of_the_chief_by_default() -> None:
    chief, other = ScriptedPod("job-worker-0"), pod_of(1)
    for text in ("[rank0]: a", "[rank1]: b", "torchrun"):
        chief.write(text)
    targets = [target_of(other, 2), target_of(chief, 0, 1, is_chief=True)]
    async with connected(chief, other) as (_, client):
        assert await read_texts(client, targets, Options()) == ["a", "torchrun"]
        assert await read_texts(client, targets, Options(rank=1)) == ["b"]
        unmarked = [target_of(other, 2, 3)]
        assert await read_texts(client, unmarked, Options(rank=3)) == other.texts, "any may be its own"
        assert await read_texts(client, targets, Options(instance="worker-0")) == ["a", "b", "torchrun"]
        assert await read_texts(client, targets, Options(rank=2, tail=1)) == ["r1 line 2"]
        assert sorted(await read_texts(client, targets, Options(every=True))) == sorted(
            ["a", "b", "torchrun", *other.texts]
        )
        with pytest.raises(NotFound, match="ranks 0 to 2"):
            await read_texts(client, targets, Options(rank=7))
        with pytest.raises(NotFound, match="worker-1, worker-0"):
            await read_texts(client, targets, Options(instance="worker-9"))


@pytest.mark.parametrize("is_followed", [False, True])
async def test_logs_that_cannot_be_read_end_the_reading_with_an_error(is_followed: bool) -> None:
    pods = [pod_of(0), pod_of(1)]
    targets = [target(pod, instance=pod.name, container="sidecar") for pod in pods]
    async with connected(*pods) as (_, client):
        with pytest.raises(Invalid, match="no container"):
            await read_texts(client, targets, Options(every=True, follow=is_followed))


async def test_an_undeclared_rank_is_found_by_its_lines_or_raises_an_error() -> None:
    silent, spoken = ScriptedPod("job-worker-0"), ScriptedPod("job-worker-1")
    silent.write("a pod that names no rank")
    for text in ("torchrun", "[rank2]: a", "[rank3]: b", "[rank2]: c"):
        spoken.write(text)
    targets = [target_of(silent, is_chief=True), target_of(spoken)]
    async with connected(silent, spoken) as (_, client):
        assert await read_texts(client, targets, Options(rank=2)) == ["torchrun", "a", "c"]
        assert await read_texts(client, targets, Options(rank=0)) == ["a pod that names no rank"]
        with pytest.raises(NotFound, match="no line of rank 9") as raised:
            await read_texts(client, targets, Options(rank=9))
        assert "name ranks 2, 3" in raised.value.why
        with pytest.raises(NotFound, match="no line of rank 7") as raised:
            await read_texts(client, targets[:1], Options(rank=7))
        assert "no line names a rank" in raised.value.why
        launcher = [target_of(spoken, prints_all_ranks=True)]
        assert await read_texts(client, launcher, Options(rank=3)) == ["torchrun", "b"]
        # Of a launcher all ranks are printed, unless only the first is wanted.
        assert len(await read_texts(client, launcher, Options())) == len(spoken.texts)
        assert await read_texts(client, launcher, Options(first_rank=True)) == ["torchrun"]
        with pytest.raises(NotFound, match="no line of rank 9"):
            await read_texts(client, launcher, Options(rank=9))


def elastic(workers: int, processes: int = 1, proof: str = "assumed") -> Job:
    made, pods = elastic_job("warp", workers, processes, "auto" if proof == "none" else "", namespace="lab")
    return joined([], pods, [made])[1]["warp"]


@pytest.mark.parametrize(
    ("said", "processes", "proof", "expected"),
    [
        (("[rank1]: hi", "[rank0]: hi"), 1, "assumed", "=1 =0*"),
        (("[rank0]: hi", "[rank1]: hi"), 1, "assumed", "=0* ~1"),
        (("[rank2]: a|[rank3]: b", "torchrun", "[rank1]: a"), 2, "assumed", "=2-3 ~4-5 =0-1*"),
        # The newest lines count: ranks move when the workers meet again.
        (("[rank0]: old|[rank1]: new", "[rank1]: old|[rank0]: new"), 1, "assumed", "=1 =0*"),
        # A pod that was there first and left no newer proof keeps what nobody else proves.
        (("[rank0]: old", "x|x|x|[rank0]: new"), 1, "assumed", "=0* ~1"),
        (("[rank4]: a|[rank5]: a", "[rank0]: a|[rank1]: a"), 1, "none", "=4-5 =0-1*"),
        # Without any proof: the chief that has printed, or else the first that has.
        (("plain", "plain"), 1, "assumed", "~0* ~1"),
        (("", "", "loss 0.5"), 1, "assumed", "~2 ~1 ~0*"),
        (("", "loss 0.5"), 1, "none", "– –*"),
    ],
)
async def test_the_pod_of_a_rank_is_found_by_its_lines_where_ranks_are_assumed(
    said: Sequence[str], processes: int, proof: str, expected: str
) -> None:
    job = elastic(len(said), processes, proof)
    pods = [ScriptedPod(each.pod, uid=each.pod_uid) for each in job.instances]
    for pod, text in zip(pods, said, strict=True):
        for line in text.split("|") if text else ():
            pod.write(line)
    async with connected(*pods) as (_, client):
        found = await find_ranks(client, job)
        shown = [format_ranks(each.ranks, each.ranks_proof) + "*" * each.is_chief for each in found.instances]
        assert " ".join(shown) == expected
        chief = targets_of(found)[0]
        assert chief.name == found.instances[[each.endswith("*") for each in shown].index(True)].name
        if first := [line for text in said for line in text.split("|") if line.startswith("[rank0]: ")]:
            printed = await read_texts(client, targets_of(found), Options())
            assert first[-1].removeprefix("[rank0]: ") in [*printed, "new"]
            assert printed == await read_texts(client, targets_of(found), Options(rank=0))
        assert (await find_ranks(client, found)).instances == found.instances, "it stays as it was found"


async def test_a_followed_rank_is_printed_from_whichever_pod_turns_out_to_run_it() -> None:
    job = elastic(2)
    pods = [ScriptedPod(each.pod, uid=each.pod_uid, restart_policy="Never") for each in job.instances]
    other, first = pods
    other.write("torchrun starts")

    async def write() -> None:
        await other.until(streams=1)
        await first.until(streams=1)
        await other.say("[rank1]: ready")
        await first.say("[rank0]: step 1", "[rank0]: step 2")
        for pod in pods:
            await pod.end()

    async with connected(*pods) as (_, client):
        for options, printed in (
            (Options(follow=True), ["torchrun starts", "step 1", "step 2"]),
            (Options(follow=True, rank=1), ["ready"]),
        ):
            targets = targets_of(job)
            reading = asyncio.create_task(read_texts(client, targets, options))
            if options.rank is None:
                await write()
            assert [text for text in await reading if not text.startswith("--")] == printed


async def test_following_a_nonexistent_rank_ends_with_an_error() -> None:
    pod = pod_of(0)
    await pod.end()
    async with connected(pod) as (_, client):
        with pytest.raises(NotFound, match="no line of rank 9"):
            await read_texts(client, [target_of(pod)], Options(rank=9, follow=True))


async def test_unmarked_lines_are_buffered_within_a_limit_until_the_requested_rank_appears() -> None:
    pod = ScriptedPod("job-launcher-0")
    for number in range(10_003):
        pod.write(f"mpirun {number}")
    pod.write("[1,5]<stdout>:here")
    async with connected(pod) as (_, client):
        found = await read_texts(client, [target_of(pod, prints_all_ranks=True)], Options(rank=5))
    assert found[0] == "-- 3 earlier lines that name no rank are not printed"
    assert (found[1], found[-1], len(found)) == ("mpirun 3", "here", 10_002)


async def test_one_shot_follows_all_pods_and_includes_new_pods() -> None:
    first, second = pod_of(0), pod_of(1)
    await first.end()
    await second.end()

    async def snapshots() -> AsyncIterator[Sequence[Target]]:
        yield [target_of(first, 0)]
        yield [target_of(first, 0), target_of(second, 1)]

    async with connected(first, second) as (_, client):
        items = await read_items(client, snapshots(), Options(follow=True, every=True))
    assert sorted(texts([item for item in items if isinstance(item, LogLine)])) == sorted(
        first.texts + second.texts
    )


async def test_batches_that_overlap_are_merged_and_a_source_keeps_its_own_order() -> None:
    async def source(name: str, *batches: Sequence[int]) -> AsyncGenerator[list[Item], None]:
        for batch in batches:
            yield [LogLine(stamp, b"%d" % stamp, Target("lab", name), 0) for stamp in batch]

    first, second = source("a", [1, 5, 4], [9]), source("b", [2], [3, 5], [6, 10])
    found = [item async for batch in by_time([first, second]) for item in batch]
    assert texts(found) == ["1", "2", "3", "5", "4", "5", "6", "9", "10"]
    assert [item.source.pod for item in found] == [*"abbaabbab"]


def printed_as(streams: Sequence[Sequence[bytes]], *, is_raw: bool) -> bytes:
    """Merge logs that come in chunks, and print their lines with the names of their writers."""
    targets = [Target("lab", f"w{place}", ranks=(place, 9)) for place in range(len(streams))]

    async def source(place: int) -> AsyncGenerator[list[Item], None]:
        splitter = Splitter()
        follower = Follower(Client(ClusterConfig("")), targets[place])
        for chunk in (*streams[place], b"\n"):
            whole = splitter.whole(chunk) if is_raw else None
            if items := follower._named(*whole) if whole else follower._items(splitter.feed(chunk)):
                yield items

    async def merge() -> bytes:
        sources = [source(place) for place in range(len(streams))]
        merged = _named(sources) if is_raw else by_time(sources)
        printer = LinePrinter(name=True)
        return b"".join([printer.format(cast("Sequence[LogLine]", batch)) async for batch in merged])

    return asyncio.run(merge())


TIMES = st.integers(0, 3).map(lambda step: to_stamp(START_NS + step * 700_000_000)) | st.just(b"x ")
PREFIXES = b"|[rank0]: |[rank12]: |[rank0]:|[rank0|[rank3]:  |[rankx]: |]: |[rank 3] ]: ".split(b"|")
LINE = st.tuples(TIMES, st.sampled_from(PREFIXES), st.binary(max_size=9)).map(b"".join)


@given(st.lists(st.lists(st.lists(LINE, max_size=5).map(b"\n".join), max_size=5), min_size=1, max_size=3))
def test_blocks_for_a_pipe_and_lines_print_the_same_bytes(streams: Sequence[Sequence[bytes]]) -> None:
    assert printed_as(streams, is_raw=True) == printed_as(streams, is_raw=False)


@pytest.mark.parametrize("pods", [1, 3, 33])
@pytest.mark.parametrize(
    "options", [{}, {"tail": 3}, {"since_time": "2026-05-14T10:00:03Z"}, {"previous": True}]
)
async def test_all_pods_come_to_a_pipe_as_they_do_to_a_terminal(pods: int, options: dict[str, Any]) -> None:
    found = []
    for is_raw in (True, False):
        made = [raw_pod(7, exit_code=1) for _ in range(pods)]
        for number, pod in enumerate(made):
            pod.name = f"job-worker-{number}"
            pod.runs.append(Run([(START_NS + 10**10, b"[rank5]: again")]))
            pod.faults = [Fault(cut_after=100 + 31 * number), Fault(500)]
        async with connected(*made) as (_, client):
            targets = [target_of(pod, number) for number, pod in enumerate(made)]
            items = await read_items(client, targets, Options(every=True, raw=is_raw, **options))
        lines = [each for each in items if isinstance(each, LogLine)]
        marks = sorted(re.sub(r"[\d.]+ s", "s", each.text) for each in items if isinstance(each, Marker))
        found.append((LinePrinter(name=True).format(lines), marks))
        assert {type(each) for each in lines} == {LogBlock if is_raw else LogLine}
        times = [line.stamp_ns for line in lines]
        assert is_raw or pods > 32 or times == sorted(times)
    assert found[0] == found[1]
    assert found[0][0].count(b"\n") >= pods


def test_a_pipe_gets_the_bytes_and_a_terminal_gets_harmless_text() -> None:
    where = Target("lab", "w0", instance="worker-0")
    line = LogLine(START_NS, b"[rank3]: \x1b]0;gotcha\x07ok\xff", where, 0, 3, True, 9)
    raw = b"\x1b]0;gotcha\x07ok\xff\n"
    assert LinePrinter().format([line, line]) == 2 * (b"[rank3]: " + raw)
    assert LinePrinter(name=True).format([line, line]) == 2 * (b"[worker-0 3] " + raw)
    stamped = b"2026-05-14T10:00:00.000000000Z [worker-0 3] " + raw
    assert LinePrinter(name=True, timestamps=True).format([line]) == stamped
    assert b"\x1b" not in LinePrinter(is_terminal=True).format([line])


RAW = Options(raw=True)


async def read_raw(
    pod: ScriptedPod, options: Options = RAW, ranks: Sequence[int] = ()
) -> tuple[bytes, list[str]]:
    """Read a log as for a pipe; return its bytes, and its markers without the seconds in them."""
    async with connected(pod) as (_, client):
        items = await read_items(client, [target_of(pod, *ranks)], options)
    printed = LinePrinter().format([each for each in items if isinstance(each, LogLine)])
    marks = [re.sub(r"[\d.]+ s", "s", each.text) for each in items if isinstance(each, Marker)]
    return printed, marks


def raw_pod(lines: int = 12, **run: Any) -> ScriptedPod:
    pod = ScriptedPod("job-worker-0", restart_policy="Never", runs=[Run(**run)])
    for number in range(lines):
        pod.write(b"line %d \xff\r" % number, after_ns=0 if number % 3 else 700_000_000)
    return pod


def bytes_of(pod: ScriptedPod, first: int = 0) -> bytes:
    return b"".join(raw + b"\n" for run in pod.runs for _, raw in run.lines[first:])


LOST = "reconnected, s, nothing lost"
CUT = "gap: lines may be missing; the log was cut"


@pytest.mark.parametrize("run", [{}, {"exit_code": 0}, {"exit_code": 1, "tail": b"Segmentation fault"}])
async def test_wherever_the_connection_of_a_raw_log_is_cut_every_byte_comes_once(run: Any) -> None:
    whole = bytes_of(raw_pod()) + (b"Segmentation fault\n" if "tail" in run else b"")
    for cut in range(0, 260, 13):
        pod = raw_pod(**run)
        pod.faults = [Fault(cut_after=cut), Fault(cut_after=40 * cut % 701), Fault(cut_after=cut + 300)]
        printed, marks = await read_raw(pod)
        assert printed == whole, cut
        assert {*marks} <= {LOST, "reconnected, s"}
        assert "timestamps" not in pod.requests[0]


async def test_a_lost_connection_of_a_raw_log_is_reported_once_and_loses_no_bytes() -> None:
    pod = raw_pod()
    pod.faults = [Fault(cut_after=100), Fault(cut_after=20), Fault(500)]
    assert await read_raw(pod) == (bytes_of(pod), [LOST])
    assert [each.get("timestamps") for each in pod.requests] == [None, *["true"] * 4]


MARKED = ("torchrun", "[rank0]: a", "[rank1]: b", "[rank1]:[W1 1] c", "", "torchrun", "[rank0]: d")
UNMARKED = tuple(f"{number}" if number % 4 else "" for number in range(20_004))


@pytest.mark.parametrize("texts", [MARKED, UNMARKED])
@pytest.mark.parametrize("options", [Options(), Options(rank=0), Options(rank=1)], ids=str)
async def test_raw_and_timestamped_reads_select_the_same_lines(
    options: Options, texts: Sequence[str]
) -> None:
    for ranks in ((0, 1), (0, 1, 2)):
        pods = ScriptedPod("job-worker-0"), ScriptedPod("job-worker-0")
        for pod, each in product(pods, texts):
            pod.write(each)
        pods[0].faults = [Fault(cut_after=30), Fault(cut_after=160)]
        raw, _ = await read_raw(pods[0], replace(options, raw=True), ranks)
        assert raw == (await read_raw(pods[1], options, ranks))[0]
        assert texts is MARKED or raw == bytes_of(pods[0]), "any may be the rank's"
        assert [pod.requests[0].get("timestamps") for pod in pods] == [None, "true"]


LONG = b"." * 1_000_000
# asyncio hands over at most 2^18 bytes at once, on top of those that aiohttp has buffered.
LARGEST_PIECE = 2**17 + 2**18 + MAX_LINE_BYTES


@pytest.mark.parametrize("options", [Options(), Options(rank=0), Options(rank=1)], ids=str)
@pytest.mark.parametrize(
    "texts",
    [
        (LONG,),
        (b"a", LONG, b"b"),
        (b"[rank0]: " + LONG, b"[rank1]: " + LONG, b"[rank0]: a"),
        (b"a", LONG, b"[rank1]: b", LONG, b"[rank0]: c"),
    ],
    ids=["alone", "between", "marked", "unmarked first"],
)
async def test_a_line_without_an_end_comes_in_pieces(texts: Sequence[bytes], options: Options) -> None:
    pods = ScriptedPod("job-worker-0"), ScriptedPod("job-worker-0")
    for pod, each in product(pods, texts):
        pod.write(each)
    raw, _ = await read_raw(pods[0], replace(options, raw=True), (0, 1))
    assert raw == (await read_raw(pods[1], options, (0, 1)))[0]
    async with connected(pods[0]) as (_, client):
        items = await read_items(client, [target_of(pods[0], 0, 1)], replace(options, raw=True))
    pieces = [len(each.raw) for each in items if isinstance(each, LogLine)]
    assert options.rank is not None or max(pieces) <= LARGEST_PIECE


def test_a_rank_of_a_log_without_line_ends_is_withheld_within_a_limit() -> None:
    blocks = _RankBlocks(
        Target("ns", "p", ranks=(0, 1)), 1, _OwnLines(LogSelection(rank=1), "p", withholds=True)
    )
    chunk = LogBlock(0, b"." * 2**20, Target("ns", "p"), 0)
    taken = [[each for each in blocks.take([chunk]) if isinstance(each, LogLine)] for _ in range(20)]
    passed = [sum(len(each.raw) for each in found) >> 20 for found in taken]
    assert passed == [0] * 16 + [17, 1, 1, 1]


async def test_a_raw_log_that_ends_within_a_line_is_read_again() -> None:
    pod = raw_pod(exit_code=0)
    pod.faults = [Fault(end_after=54)]
    assert await read_raw(pod) == (bytes_of(pod), [])


def rotate(pod: ScriptedPod) -> None:
    pod.runs[0].first_kept = 970


def rewrite(pod: ScriptedPod) -> None:
    pod.runs[0].lines[800] = (pod.runs[0].lines[800][0], b"LINE 800 \xff\r")


def shorten(pod: ScriptedPod) -> None:
    del pod.runs[0].lines[500:]


CHANGES = (
    (rotate, lambda whole: b"\n" + whole[whole.index(b"line 970") :]),
    (rewrite, lambda whole: whole[10_000:]),
    (shorten, lambda whole: b""),
)


@pytest.mark.parametrize(("change", "following"), CHANGES)
async def test_a_raw_log_that_is_another_one_after_a_lost_connection_is_a_gap(
    change: Callable[[ScriptedPod], None], following: Callable[[bytes], bytes]
) -> None:
    pod, printed, marks = raw_pod(1000), b"", []
    whole = bytes_of(pod)
    pod.faults = [Fault(cut_after=10_000)]
    async with connected(pod) as (_, client):
        async for batch in read(client, [target_of(pod)], Options(raw=True), backoff=QUICK):
            if not printed:
                change(pod)
            printed += b"".join(each.raw for each in batch if isinstance(each, LogLine))
            marks += [each.text for each in batch if isinstance(each, Marker)]
    assert printed == whole[:10_000] + following(whole)
    assert marks == [CUT]


async def test_a_restart_while_a_raw_log_is_read_comes_after_the_end_of_the_run_before() -> None:
    pod, printed = raw_pod(), b""
    pod.faults = [Fault(cut_after=100)]
    async with connected(pod) as (_, client):
        async for batch in read(client, [target_of(pod)], Options(raw=True), backoff=QUICK):
            if not printed:
                pod.runs[0].exit_code = 1
                await pod.restart()
                pod.write("second run")
            printed += b"".join(each.raw for each in batch if isinstance(each, LogLine))
    assert printed == bytes_of(pod)


@pytest.mark.parametrize(
    "more", [{"tail": 100}, {"since_s": 10**9}, {"since_time": "2020-01-01T00:00:00Z"}, {"raw": False}]
)
async def test_a_log_of_which_lines_are_chosen_is_read_with_times(more: dict[str, Any]) -> None:
    pod = raw_pod(exit_code=0)
    async with connected(pod) as (_, client):
        await read_items(client, [target_of(pod, 0)], replace(RAW, **more))
    assert pod.requests[0]["timestamps"] == "true"


def written_pod(lines: int = 6) -> ScriptedPod:
    pod = ScriptedPod("w0")
    for number in range(lines):
        pod.write(f"line {number}")
    return pod


def held_of(pod: ScriptedPod, first: int, run: int = 0) -> list[Item]:
    """Return the lines that a view holds of a run of a pod, from one on."""
    lines = pod.runs[run].lines[first:]
    return [LogLine(stamp, raw, target(pod), number, 0) for number, (stamp, raw) in enumerate(lines)]


async def whole(client: Client, of: Target, **more: object) -> list[str]:
    async with asyncio.timeout(120), aclosing(full_log(client, of, backoff=QUICK, **more)) as batches:  # type: ignore[arg-type]
        return texts([item async for batch in batches for item in batch])


async def test_all_lines_come_from_the_start_though_the_connection_is_lost_on_the_way() -> None:
    pod = written_pod(200)
    pod.faults = [Fault(cut_after=1000), Fault(500, "kubelet")]
    async with connected(pod) as (_, client):
        found = await whole(client, target(pod), held=held_of(pod, 190), gone={"rank 0": 190})
    assert [text for text in found if not text.startswith("--")] == pod.texts


async def test_rotated_lines_come_from_the_buffer_and_missing_lines_are_reported() -> None:
    pod = written_pod()
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


async def test_the_log_of_a_replaced_pod_comes_from_the_buffer() -> None:
    pod = written_pod()
    followed, held = target(pod), held_of(pod, 0)
    pod.uid = "another"
    async with connected(pod) as (_, client):
        found = await whole(client, followed, held=held)
    assert [text for text in found if text.startswith("line")] == pod.texts
    assert "the server no longer has" in "".join(found)


async def test_an_interrupted_log_is_completed_from_the_buffer() -> None:
    pod = written_pod()
    pod.faults = [Fault(cut_after=80)] + [Fault(500, "kubelet is away")] * 9
    async with connected(pod) as (_, client):
        found = await whole(client, target(pod), held=held_of(pod, 0))
    assert [text for text in found if text.startswith("line")] == pod.texts
    assert any("cannot be read to its end" in text and "kubelet is away" in text for text in found)


async def test_the_run_before_a_restart_that_was_followed_is_read_again_too() -> None:
    pod = written_pod()
    async with connected(pod) as (_, client):
        logs = JobLogs(LogHub(client, backoff=QUICK), [target(pod, ranks=(0,))], request=LogRequest(tail=2))
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
    pod = written_pod()
    pod.runs[0].exit_code = 1
    pod.runs.append(Run([(START_NS + 3_600_000_000_000, b"second run")]))
    async with connected(pod) as (_, client):
        before = LogRequest(previous=True, follow=False)
        logs = JobLogs(LogHub(client, backoff=QUICK), [target(pod, ranks=(0,))], request=before)
        found = texts([item async for item in logs.read_full(EVERYTHING)])
    assert found == [f"line {number}" for number in range(6)]
