"""Streams cut into lines with timestamps, and resumed without duplicates."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from k8s.logs.follow import Cursor
from k8s.logs.lines import Piece, Splitter, read_stamp, write_stamp

AT = int(datetime(2026, 5, 14, 10, 0, 1, tzinfo=UTC).timestamp()) * 1_000_000_000


def test_times_as_kubelets_write_them() -> None:
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


def test_what_bears_no_time_is_kept_whole() -> None:
    cases: list[bytes] = [
        b"",
        b"unable to retrieve container logs for containerd://abc",
        b"2026-05-14 10:00:01 text",
        b"2026-99-14T10:00:01.1Z text",
        b"2026-05-14T10:00:01.1xZ text",
        b"2026-05-14T10:00:01.1 text",
        b"xxxxxxxxxxTxxxxxxxxxxxxxxxxxxZ text",
        b"\xff" * 64,
    ]
    for line in cases:
        assert read_stamp(line) == (0, 0)


@given(st.integers(1_000_000_000, 4_000_000_000_000_000_000))
def test_a_time_written_is_read_again(ns: int) -> None:
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
)
def test_reading_again_from_a_whole_second_gives_each_line_once(steps: list[int], drops: list[int]) -> None:
    pieces, at = [], AT
    for number, step in enumerate(steps):
        at += step
        pieces.append(Piece(at, b"%d" % number))
    cursor = Cursor()
    found: list[Piece] = []
    for drop in [*drops, len(pieces)]:
        since = cursor.since_time()
        since_ns = int(datetime.fromisoformat(since).timestamp()) * 10**9 if since else 0
        found += cursor.take(
            [piece for piece in pieces[: max(drop, len(found))] if piece.stamp_ns >= since_ns]
        )
        assert cursor.knows
        assert cursor.missing_since_ns == 0
    assert found == pieces
