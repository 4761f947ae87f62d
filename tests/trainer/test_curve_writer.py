"""Curves on a disk without room: said once, tried again, and nothing is lost once there is some."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.distributed.curves import CurveWriter
from trainer.tfevents import EventFolder


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


def test_points_that_found_no_room_are_written_when_there_is_some(
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


def test_a_disk_that_is_full_from_the_start_leaves_no_empty_files_and_is_said_once(
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


def test_what_is_lost_at_the_end_is_said_and_is_no_error(
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


def test_with_what_a_run_was_started_stands_in_its_file_also_where_there_was_no_room_at_first(
    tmp_path: Path,
) -> None:
    with files_of_at_most(100):
        curves = CurveWriter(tmp_path, {"lr": 0.25, "model": "cnn"})
    curves.write(1, {"train/loss": 0.5})
    curves.close()
    [file] = tmp_path.iterdir()
    assert file.read_bytes().count(b"_hparams_/session_start_info") == 1
    assert steps_in(tmp_path) == [1]
