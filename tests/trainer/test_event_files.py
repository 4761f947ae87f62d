"""Event files: what we write, follow, join, and say about damage or a disk without room."""

import contextlib
import errno
import gzip
import math
import os
import resource
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.distributed.outputs import CurveWriter
from trainer.tfevents import BrokenEvents, EventFiles, EventFolder, EventStream, EventWriter
from trainer.tfevents.event import (
    HEADER_BYTES,
    BadPayload,
    crc32c_in_python,
    decode_event,
    frame,
    payload_is_good,
    record_end,
)

quick = settings(max_examples=60)


def written(folder: Path, points: Iterable[tuple[str, int, float]], start: float = 1000.0) -> bytes:
    """Write points one second apart from `start` on and return the file's bytes."""
    with EventWriter(folder) as writer:
        for at, (tag, step, value) in enumerate(points):
            writer.write_scalar(tag, step, value, start + at)
    return writer.path.read_bytes()


def version(wall_time: float) -> bytes:
    """Make the first record of a file that was begun at `wall_time`."""
    return frame(b"\x09" + struct.pack("<d", wall_time) + b"\x1a\x0dbrain.Event:2")


def losses(*steps: int) -> list[tuple[str, int, float]]:
    return [("loss", step, step / 8) for step in steps]


def body(folder: Path, *steps: int, start: float) -> bytes:
    """Write one file of losses that was begun at `start`."""
    content = written(folder, losses(*steps), start)
    return version(start) + content[len(version(0.0)) :]


def streamed(content: bytes) -> EventStream:
    stream = EventStream()
    stream.feed(content)
    return stream


def steps_of(stream: EventStream, tag: str = "loss") -> list[int]:
    return list(stream.series[tag].steps)


def test_written_points_are_read_back(tmp_path: Path) -> None:
    points = [("train/loss", 0, 0.5), ("train/loss", 1, math.inf), ("val/π", 300, -2.0), ("loss", -5, 0.25)]
    content = written(tmp_path, [*points, ("x" * 200, 1 << 40, 1e300), ("loss", 9, math.nan)])
    (*read, huge, unknown), used = read_points(content)
    assert used == len(content)
    assert read == [Point(tag, step, 1000.0 + at, value) for at, (tag, step, value) in enumerate(points)]
    assert huge == Point("x" * 200, 1 << 40, 1004.0, math.inf)
    assert math.isnan(unknown.value)


def test_two_writers_in_one_second_have_a_file_each_and_closing_twice_does_no_harm(tmp_path: Path) -> None:
    first, second = EventWriter(tmp_path), EventWriter(tmp_path)
    assert first.path != second.path
    for writer in (first, second, second):
        writer.close()


def test_flushed_points_are_readable_while_the_writer_is_open(tmp_path: Path) -> None:
    with EventWriter(tmp_path, flush_s=1e9) as writer:
        folder = EventFolder(tmp_path)
        writer.write_scalar("loss", 1, 1.0)
        assert folder.read_new() == []
        writer.flush()
        assert [fresh.columns.tag for fresh in folder.read_new()] == ["loss"]
    with EventWriter(tmp_path, flush_s=0.0) as writer:
        writer.write_scalar("at once", 1, 1.0)
        assert [fresh.columns.tag for fresh in folder.read_new()] == ["at once"]


point = st.tuples(
    st.sampled_from(["a", "loss/train", "b" * 130]),
    st.integers(-3, 1 << 50),
    st.floats(width=32, allow_nan=False),
)


@quick
@given(st.lists(point, max_size=60), st.lists(st.integers(1, 500), max_size=10))
def test_a_stream_cut_anywhere_gives_the_points_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[str, int, float]], cuts: list[int]
) -> None:
    content = written(tmp_path_factory.mktemp("run"), points)
    stream = EventStream()
    rows, at = [], 0
    for length in [*cuts, len(content)]:
        for columns in stream.feed(content[at : at + length]):
            rows += [(columns.tag, *row) for row in zip(columns.steps, columns.values, strict=True)]
        at += length
    expected = [(point.tag, point.step, point.value) for point in read_points(content)[0]]
    for tag in {tag for tag, *_ in expected}:
        assert [row for row in rows if row[0] == tag] == [row for row in expected if row[0] == tag]
    assert stream.offset == len(content)
    assert not stream.problem


@quick
@given(st.integers(1, 3), st.integers(0, 40_000), st.integers(8, 400))
def test_many_rows_read_as_columns_are_the_points_read_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, tags: int, first: int, rows: int
) -> None:
    points = [(f"tag {k}", first + row, row / (k + 1)) for row in range(rows) for k in range(tags)]
    content = written(tmp_path_factory.mktemp("run"), points)
    with mock.patch("trainer.tfevents.columns.payload_is_good", None):  # no record is checked by itself
        stream = streamed(content)
    expected = read_points(content)[0]
    for tag, series in stream.series.items():
        points_read = zip(series.steps, series.wall_times, series.values, strict=True)
        assert [(tag, *point) for point in points_read] == [each for each in expected if each.tag == tag]
    assert sum(map(len, stream.series.values())) == len(expected)


@quick
@given(st.binary(max_size=400))
def test_arbitrary_bytes_raise_no_error(noise: bytes) -> None:
    stream = streamed(noise)
    stream.feed(frame(noise))
    try:
        points, used = read_points(frame(noise) + noise)
    except BrokenEvents:
        return
    assert used >= len(noise) or not points


@quick
@given(st.integers(0, 20 * 64), st.integers(0, 7))
def test_a_flipped_bit_costs_at_most_its_own_record_or_is_named(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    content = bytearray(written(tmp_path_factory.mktemp("run"), losses(*range(30))))
    at %= len(content)
    content[at] ^= 1 << bit
    stream = streamed(bytes(content))
    steps = steps_of(stream) if stream.series else []
    assert steps == sorted(set(steps))
    assert set(steps) <= set(range(30))
    if not stream.problem:
        assert stream.skipped == 1 or stream.offset > len(content) - 64
        assert len(steps) >= 29


@pytest.mark.parametrize("rows", [(20, 60), (60, 20), (0, 99), (50, 50)])
def test_damaged_payloads_are_skipped_and_counted(tmp_path: Path, rows: tuple[int, int]) -> None:
    tags = ("loss", "rate")
    points = [(tag, step, step / 8) for step in range(200, 300) for tag in tags]
    content = bytearray(written(tmp_path, points))
    record_bytes = (len(content) - len(version(0.0))) // len(points)
    for place, row in enumerate(rows):
        content[len(version(0.0)) + (2 * row + place + 1) * record_bytes - 5] ^= 0x40
    stream = streamed(bytes(content))
    assert stream.skipped == 2
    for tag, row in zip(tags, rows, strict=True):
        assert steps_of(stream, tag) == [step for step in range(200, 300) if step != 200 + row]


def test_a_damaged_record_length_ends_the_file_and_keeps_earlier_points(tmp_path: Path) -> None:
    content = written(tmp_path, losses(*range(9))) + b"\xff" * 64
    with pytest.raises(BrokenEvents, match="length does not match its CRC"):
        read_points(content)
    stream = streamed(content)
    assert steps_of(stream) == list(range(9))
    assert "length does not match its CRC" in stream.problem
    assert stream.feed(b"more") == []


def test_zeros_at_the_tail_are_a_hole_to_be_filled_not_damage(tmp_path: Path) -> None:
    content = written(tmp_path / "whole", losses(1, 2, 3))
    file = tmp_path / "run" / "events.out.tfevents.1.h.1.0"
    file.parent.mkdir()
    folder = EventFolder(file.parent)
    file.write_bytes(content[: len(version(0.0))] + bytes(64))
    assert folder.read_new() == []
    assert folder.problems == {}
    file.write_bytes(content)
    assert sum(len(fresh.columns) for fresh in folder.read_new()) == 3


def test_a_step_that_goes_back_replaces_later_points_and_marks_a_restart(tmp_path: Path) -> None:
    stream = streamed(written(tmp_path, [*losses(0, 1, 2, 3, 4, 5), ("loss", 2, 9.0), ("loss", 3, 9.5)]))
    series = stream.series["loss"]
    assert list(series.steps) == [0, 1, 2, 3]
    assert list(series.values) == [0, 0.125, 9.0, 9.5]
    assert [(mark.step, mark.wall_time) for mark in series.restarts] == [(2, 1006.0)]


def test_the_same_step_twice_keeps_the_last_without_a_mark(tmp_path: Path) -> None:
    stream = streamed(written(tmp_path, [("loss", 1, 1.0), ("loss", 1, 2.0), ("loss", 2, 3.0)]))
    assert list(stream.series["loss"].values) == [2.0, 3.0]
    assert stream.series["loss"].restarts == []


def test_a_restarted_job_goes_on_in_its_second_file(tmp_path: Path) -> None:
    files = EventFiles()
    files.feed("run/events.out.tfevents.1000.host.1.0", body(tmp_path / "a", 0, 1, 2, 3, 4, 5, start=1000))
    files.feed("run/events.out.tfevents.2000.host.9.0", body(tmp_path / "b", 3, 4, start=2000))
    [curve] = files.curves()
    assert (curve.run, curve.tag, curve.writer) == ("run", "loss", "events.out.tfevents.2000.host.9.0")
    assert list(curve.steps) == [0, 1, 2, 3, 4]
    assert list(curve.wall_times) == [1000, 1001, 1002, 2000, 2001]
    assert [mark.step for mark in curve.restarts] == [3]


def test_files_of_two_ranks_in_one_folder_give_separate_curves(tmp_path: Path) -> None:
    files = EventFiles()
    files.feed("events.out.tfevents.1000.host.1.0", body(tmp_path / "a", 0, 2, 4, start=1000))
    files.feed("events.out.tfevents.1000.host.2.0", body(tmp_path / "b", 1, 3, 5, start=1001))
    assert [list(curve.steps) for curve in files.curves()] == [[0, 2, 4], [1, 3, 5]]
    assert {curve.run for curve in files.curves()} == {"."}


def test_a_second_read_returns_only_appended_points(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path)
    with EventWriter(tmp_path / "run") as writer:
        for step in range(1000):
            writer.write_scalar("loss", step, 1.0)
        writer.flush()
        assert sum(len(fresh.columns) for fresh in folder.read_new()) == 1000
        assert folder.read_new() == []
        writer.write_scalar("loss", 1000, 2.0)
        writer.flush()
    [fresh] = folder.read_new()
    assert (fresh.run, list(fresh.columns.steps)) == ("run", [1000])
    assert [len(curve) for curve in folder.curves()] == [1001]


def test_a_replaced_file_is_read_again_and_a_removed_file_is_forgotten(tmp_path: Path) -> None:
    long, short = written(tmp_path / "a", losses(*range(50))), written(tmp_path / "b", losses(7))
    root = tmp_path / "root"
    root.mkdir()
    file = root / "events.out.tfevents.1.h.1.0"
    folder = EventFolder(root)
    file.write_bytes(long)
    folder.read_new()
    file.write_bytes(short)
    folder.read_new()
    assert [list(curve.steps) for curve in folder.curves()] == [[7]]
    file.unlink()
    folder.read_new()
    assert folder.curves() == []


def test_a_folder_that_cannot_be_read_forgets_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        written(tmp_path / name, losses(1, 2))
    folder = EventFolder(tmp_path)
    folder.read_new()
    before = [(curve.run, list(curve.steps)) for curve in folder.curves()]
    scandir = os.scandir

    def fails(path: str) -> Any:
        if Path(path).name == "b":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fails)  # root, who may run this, reads everything
        assert folder.read_new() == []
        assert folder.problems == {"b": "Permission denied"}
        assert [(curve.run, list(curve.steps)) for curve in folder.curves()] == before
    assert folder.read_new() == []
    assert (folder.problems, len(folder.curves())) == ({}, 2)


def test_a_packed_file_is_reported_and_an_empty_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.h.1.0").write_bytes(gzip.compress(version(1.0)))
    (tmp_path / "events.out.tfevents.2.h.1.0").touch()
    folder = EventFolder(tmp_path)
    assert folder.read_new() == []
    [(path, words)] = folder.problems.items()
    assert path == "events.out.tfevents.1.h.1.0"
    assert "gunzip" in words


def test_a_folder_that_is_not_there_yet_has_no_curves(tmp_path: Path) -> None:
    folder = EventFolder(tmp_path / "later")
    assert folder.read_new() == []
    assert folder.problems == {}
    written(tmp_path / "later", losses(1))
    assert len(folder.read_new()) == 1


def test_the_checksum_without_googles_library_is_the_same() -> None:
    google_crc32c = pytest.importorskip("google_crc32c")
    assert crc32c_in_python(b"123456789") == 0xE3069283
    assert crc32c_in_python(b"") == 0
    for octets in (bytes(range(256)), b"\0" * 32, b"\xff" * 32):
        assert crc32c_in_python(octets) == google_crc32c.value(octets)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let every write beyond `size` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def steps_in(folder: Path, tag: str = "train/loss") -> list[int]:
    events = EventFolder(folder)
    events.read_new()
    assert events.problems == {}
    return [step for curve in events.curves() if curve.tag == tag for step in curve.steps]


def test_points_are_written_once_the_disk_has_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = CurveWriter(tmp_path)
    for step in range(3):
        curves.write(step, {"train/loss": 0.5, "train/lr": 0.1})
    with files_of_at_most(300):
        for step in range(3, 400):
            curves.write(step, {"train/loss": 0.5, "train/lr": 0.1})
    assert steps_in(tmp_path) != list(range(400))
    curves.write(400, {"train/loss": 0.5, "train/lr": 0.1})
    assert steps_in(tmp_path) == list(range(401)) == steps_in(tmp_path, "train/lr")
    curves.close()
    assert len(list(tmp_path.iterdir())) == 1
    assert capsys.readouterr().err.count("Curves cannot be written") == 1


def test_a_full_disk_at_the_start_leaves_no_empty_files_and_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with files_of_at_most(0):
        curves = CurveWriter(tmp_path)
        for step in range(5):
            curves.write(step, {"train/loss": 0.5})
    assert list(tmp_path.iterdir()) == []
    curves.write(5, {"train/loss": 0.5})
    curves.close()
    assert steps_in(tmp_path) == list(range(6))
    said = capsys.readouterr()
    assert said.err == (
        f"warning: Curves cannot be written to {tmp_path}. File too large."
        " Training goes on; they are tried again with each line of progress.\n"
    )
    assert said.out == f"curves are written to {tmp_path} again\n"


def test_points_lost_at_the_end_cause_a_warning_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = CurveWriter(tmp_path)
    with files_of_at_most(100):
        curves.write(1, {"train/loss": 0.5})
        curves.write(2, {"train/loss": 0.5})
        curves.close()
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: Curves cannot be written")
    assert last == f"warning: The last points of the curves were not written to {tmp_path}."


def test_hyperparameters_are_written_even_after_an_initially_full_disk(tmp_path: Path) -> None:
    with files_of_at_most(100):
        curves = CurveWriter(tmp_path, {"lr": 0.25, "model": "cnn"})
    curves.write(1, {"train/loss": 0.5})
    curves.close()
    [file] = tmp_path.iterdir()
    assert file.read_bytes().count(b"_hparams_/session_start_info") == 1
    assert steps_in(tmp_path) == [1]


class Point(NamedTuple):
    tag: str
    step: int
    wall_time: float
    value: float


def read_points(chunk: bytes) -> tuple[list[Point], int]:
    """Decode every complete record of `chunk` one by one; return the scalars and the bytes used."""
    points: list[Point] = []
    used = 0
    while (end := record_end(chunk, used)) is not None:
        if payload_is_good(chunk, used, end):
            with contextlib.suppress(BadPayload):
                event = decode_event(chunk[used + HEADER_BYTES : end - 4])
                points += [
                    Point(found.tag, event.step, event.wall_time, found.value) for found in event.scalars
                ]
        used = end
    return points, used
