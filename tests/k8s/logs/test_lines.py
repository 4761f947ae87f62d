"""Streams cut into lines with timestamps, and resumed without duplicates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.logs.lines import Cursor, Piece, Splitter, read_stamp, to_stamp, write_stamp
from k8s.logs.prefixes import RULES, RankReader

AT = int(datetime(2026, 5, 14, 10, 0, 1, tzinfo=UTC).timestamp()) * 1_000_000_000


def test_kubelet_timestamps_are_parsed() -> None:
    cases: list[tuple[bytes, int]] = [
        (b"2026-05-14T10:00:01.123456789Z", AT + 123_456_789),
        (b"2026-05-14T10:00:01.5Z", AT + 500_000_000),
        (b"2026-05-14T10:00:01Z", AT),
        (b"2026-05-14T18:00:01.000000001+08:00", AT + 1),
        (b"2026-05-14T05:30:01.000000001-04:30", AT + 1),
    ]
    for stamp, ns in cases:
        assert read_stamp(stamp + b" text") == (ns, len(stamp) + 1)
        assert read_stamp(stamp) == (ns, len(stamp))


def test_lines_without_a_timestamp_are_kept_whole() -> None:
    cases = (
        b"|unable to retrieve container logs for containerd://abc|2026-05-14 10:00:01 text"
        b"|2026-99-14T10:00:01.1Z text|2026-05-14T10:00:01.1xZ text|2026-05-14T10:00:01.1 text"
        b"|xxxxxxxxxxTxxxxxxxxxxxxxxxxxxZ text|" + b"\xff" * 64
    ).split(b"|")
    for line in cases:
        assert read_stamp(line) == (0, 0)


@given(st.integers(1_000_000_000, 4_000_000_000_000_000_000))
def test_a_written_timestamp_is_parsed_back(ns: int) -> None:
    assert read_stamp(write_stamp(ns).encode() + b" x")[0] == ns


@given(st.binary(max_size=60))
def test_any_bytes_are_a_line(line: bytes) -> None:
    ns, start = read_stamp(line)
    assert ns >= 0
    assert 0 <= start <= len(line)


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")), max_size=20),
    cuts=st.lists(st.integers(0, 800), max_size=12),
)
def test_chunks_do_not_matter(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(
        write_stamp(AT + number).encode() + b" " + line + b"\n" for number, line in enumerate(lines)
    )
    splitter, start = Splitter(), 0
    found: list[Piece] = []
    for cut in [*sorted(cuts), len(stream)]:
        found += splitter.feed(stream[start:cut])
        start = max(start, cut)
    assert [piece.raw for piece in found] == lines
    assert not splitter.finish()


@pytest.mark.parametrize("step_s", [1e-6, 7, 40, 5000])
def test_lines_in_the_order_of_their_times_are_read_at_once(step_s: float) -> None:
    splitter, stamps = Splitter(), [to_stamp(AT + int(number * step_s * 1e9)) for number in range(90)]
    stream = b"".join(stamp + b"[rank0]: text\n" for stamp in stamps)
    halves = splitter.whole(stream[:2000]), splitter.whole(stream[2000:])
    assert [stamp for half in halves if half for stamp in half[0]] == stamps


STAMPS = b"2026-02-30T10:00:01.123456789Z |2026-05-14T10:00:61.123456789Z |2026-05-14T10:00:01.12345678 Z "
STAMPS += (
    b"|2026-05-14T10:00:01.123456789Z|2026-05-14T10:00:01.123456789+08:00 |1970-01-01T00:00:00.000000000Z "
)
REFUSED = [*STAMPS.split(b"|"), to_stamp(AT + 1) + b"x\n" + to_stamp(AT), to_stamp(AT) + b"x" * 99]


@pytest.mark.parametrize("chunk", [*(each + b"x\n" for each in REFUSED), b"2026"])
def test_other_lines_are_not_read_at_once(chunk: bytes) -> None:
    splitter, other = Splitter(100), Splitter(100)
    assert splitter.whole(chunk) is None
    assert (splitter.feed(chunk), splitter.finish()) == (other.feed(chunk), other.finish())


def test_names_replace_the_prefixes_of_lines() -> None:
    reader = RankReader((4, 5))
    lines = b"[rank5]: a|[rank5|[rank5]|[rankx]: b|[default0]:c||a]: b|[rank5]: |[rank12]: d|[rank5]: ".split(
        b"|"
    )
    for _ in range(3):
        named = reader.named([b"7" + line for line in lines], "w", 1)
        assert b"|".join(named) == (
            b"[w 5] a|[w] [rank5|[w] [rank5]|[w] [rankx]: b|[w 4] c|[w] |[w] a]: b|[w 5] |[w 12] d|[w 5] "
        )


@given(sizes=st.lists(st.integers(0, 300), max_size=6), kept=st.integers(1, 100), step=st.integers(1, 50))
def test_long_lines_are_cut_and_counted_to_the_byte(sizes: list[int], kept: int, step: int) -> None:
    stream = b"".join(b"x" * size + b"\n" for size in sizes)
    splitter = Splitter(kept)
    found = [piece for at in range(0, len(stream), step) for piece in splitter.feed(stream[at : at + step])]
    assert [len(piece.raw) + piece.missing_bytes for piece in found] == sizes
    assert all(len(piece.raw) <= kept for piece in found)


@given(
    steps=st.lists(st.integers(0, 2_500_000_000), min_size=1, max_size=60),
    drops=st.lists(st.integers(0, 60), max_size=5),
    has_blocks=st.booleans(),
)
def test_reading_again_from_a_whole_second_gives_each_line_once(
    steps: list[int], drops: list[int], has_blocks: bool
) -> None:
    pieces, at = [], AT
    for number, step in enumerate(steps):
        at += step
        pieces.append(Piece(at, b"%d" % number))
    cursor = Cursor()
    found: list[Piece] = []
    for drop in [*drops, len(pieces)]:
        since = cursor.since_time()
        since_ns = int(datetime.fromisoformat(since).timestamp()) * 10**9 if since else 0
        fresh = [piece for piece in pieces[: max(drop, len(found))] if piece.stamp_ns >= since_ns]
        if has_blocks and fresh and not cursor.is_resumed:
            for piece in fresh:
                cursor.add([to_stamp(piece.stamp_ns)])
        else:
            fresh = cursor.take(fresh)
        found += fresh
        assert cursor.knows
        assert cursor.missing_since_ns == 0
    assert found == pieces


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example)
def test_each_rule_finds_the_rank_of_its_own_example(rule: object) -> None:
    example = rule.example.encode()  # type: ignore[attr-defined]
    owner = RankReader((0, 1, 2, 3), prints_all_ranks=True).owner(example)
    assert owner.rank == 3


def test_prefixes_of_a_pod_with_ranks_4_to_7() -> None:
    cases: list[tuple[bytes, int, bool, bytes | None]] = [
        (b"[rank5]: loss 1.8", 5, True, b"loss 1.8"),
        (b"[rank5]:[E514 10:00:00.1 ProcessGroupNCCL.cpp:9] x", 5, True, None),
        (b"[rank5]:[titan] x", 5, False, b"[titan] x"),
        (b"[rank1]:[titan] x", 5, False, b"[titan] x"),
        (b"[default1]:  indented", 5, False, b"  indented"),
        (b"[1,7]<stderr>:Traceback", 7, True, b"Traceback"),
        (b"[prterun-h-1@1,7][h:12]<stdout>:hi", 7, True, b"hi"),
        (b"[1,7]<stdout>: what Open MPI 5 writes", 7, True, b"what Open MPI 5 writes"),
        (b"[1,7]<stderr>:   indented", 7, True, b"   indented"),
        (b"[1,mpirank:7,algo-1]<stderr>:  indented", 7, True, b"  indented"),
        (b"[7]<stderr>:Traceback", 7, True, b"Traceback"),
        (b"Mon Nov  2 07:07:18 2026[7]<stderr>:Killed", 7, True, b"Killed"),
        (b"[Sun Nov 22 11:27:33 2026][1,7]<stdout>: hi", 7, True, b"hi"),
        (b"[rank: 6] Seed set", 6, True, b"Seed set"),
        (b"[RANK 6] Seed set", 6, True, b"Seed set"),
        (b"rank=6 step=1", 6, True, b"rank=6 step=1"),
    ]
    for line, rank, is_proven, text in cases:
        owner = RankReader((4, 5, 6, 7)).owner(line)
        assert (owner.rank, owner.is_proven) == (rank, is_proven)
        if text is not None:
            assert line[owner.prefix_bytes :] == text


def test_a_line_that_only_resembles_a_rank_prefix_has_no_rank() -> None:
    cases = (
        b"3: a numbered list|[3] a footnote|h:12:34 [3] NCCL INFO x|[epoch3]: done|[INFO1]: done|rank=best||["
        b"|[default9]:no such place|ranking=3 of 4| [rank3]: not at the start|[rank-1]: x|Starting rank 3"
        b"|[rank99999999999999999999]: x|[rank\xd9\xa3]: arabic digit"
    ).split(b"|")
    for line in cases:
        assert RankReader((0, 1, 2, 3)).owner(line) == (None, False, 0)


def test_the_owner_of_an_unmarked_line_depends_on_the_pod() -> None:
    assert RankReader(prints_all_ranks=True).owner(b"[3] hi") == (3, True, 4)
    assert RankReader((9,)).owner(b"hello") == (9, False, 0)
    assert RankReader((0,), prints_all_ranks=True).owner(b"hello").rank is None


@given(line=st.binary(max_size=400), ranks=st.lists(st.integers(0, 99), max_size=8), launcher=st.booleans())
def test_any_bytes_lose_at_most_a_prefix(line: bytes, ranks: list[int], launcher: bool) -> None:
    owner = RankReader(ranks, prints_all_ranks=launcher).owner(line)
    assert 0 <= owner.prefix_bytes <= len(line)
    assert owner.rank is None or 0 <= owner.rank < 1_000_000
    assert owner.rank is not None or owner.prefix_bytes == 0


@given(rank=st.integers(0, 99_999), text=st.binary(max_size=200).filter(lambda text: b"\n" not in text))
def test_a_bracketed_rank_prefix_always_proves_the_rank(rank: int, text: bytes) -> None:
    line = b"[rank%d]: %s" % (rank, text)
    owner = RankReader((0, 1)).owner(line)
    assert (owner.rank, owner.is_proven, line[owner.prefix_bytes :]) == (rank, True, text)
