"""Folders of runs: each job's own, found again on a volume, and moved with a clone."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from k8s.jobs.run_folders import job_of_run, list_runs, moved_folder, moved_to_run, run_name, run_stamp

NOW = datetime(2026, 11, 22, 8, 20, 33, 417_999, UTC)


def save(volume: Path, run: str, *steps: int, at_s: float = 1000.0) -> None:
    folder = volume / run / "checkpoints"
    folder.mkdir(parents=True)
    for step in steps:
        path = folder / f"step-{step:08d}.pt"
        path.touch()
        os.utime(path, (at_s, at_s))


def test_two_jobs_of_one_name_have_two_folders() -> None:
    stamps = [run_stamp(NOW), run_stamp(NOW + timedelta(milliseconds=1))]
    assert stamps == ["20261122-082033-417", "20261122-082033-418"]
    names = [run_name("digits-1", stamp) for stamp in stamps]
    assert names == ["digits-1-20261122-082033-417", "digits-1-20261122-082033-418"]
    assert [job_of_run(name) for name in (*names, "digits-1")] == ["digits-1"] * 3


def test_runs_on_a_volume_are_those_with_checkpoints_the_newest_first(tmp_path: Path) -> None:
    save(tmp_path, "digits-20261122-082033-417", 150, 520, 90, at_s=2000)
    save(tmp_path, "digits", 7, at_s=3000)
    save(tmp_path, "empty")
    (tmp_path / "digits" / "checkpoints" / ".step-00000900.pt.partial").touch()
    (tmp_path / "digits" / "checkpoints" / "step-x.pt").touch()
    (tmp_path / "file").touch()
    found = [(run.name, run.job, run.step, run.saved_s) for run in list_runs(tmp_path)]
    assert found == [("digits", "digits", 7, 3000), ("digits-20261122-082033-417", "digits", 520, 2000)]
    assert list_runs(tmp_path / "gone") == []


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("/workspace/bert/logs", "/workspace/RUN/logs"),
        ("/workspace/bert-20261122-082033-417/logs", "/workspace/RUN/logs"),
        ("/workspace/other-20261122-082033-417/logs-bert-20261122-082034-000", "/workspace/RUN/logs"),
        ("/mnt/saved", "/mnt/saved/RUN"),
        ("/mnt/saved/", "/mnt/saved/RUN"),
        ("/mnt/saved/bert-20261122-082033-417", "/mnt/saved/RUN"),
        ("saved", "saved/RUN"),
    ],
)
def test_a_folder_becomes_one_of_a_new_run(path: str, moved: str) -> None:
    assert moved_folder(path, "bert", "RUN", "logs") == moved


def test_a_command_that_goes_on_from_another_run_starts_anew_in_a_new_one() -> None:
    words = [
        "python", "--epochs", "3", "--log-dir=/w/a-20261122-082033-417/logs-bert-20261122-082034-000",
        "--checkpoint-dir", "/w/a-20261122-082033-417/checkpoints", "--resume", "must", "--out=/w/bert/x",
        "--data", "/w/bert/mnist", "--resume=must", "--resume", "never", "--log-dir",
    ]  # fmt: skip
    assert moved_to_run(words, "bert", "bert-2-S") == [
        "python", "--epochs", "3", "--log-dir=/w/bert-2-S/logs",
        "--checkpoint-dir", "/w/bert-2-S/checkpoints", "--out=/w/bert-2-S/x",
        "--data", "/w/bert-2-S/mnist", "--resume", "never", "--log-dir",
    ]  # fmt: skip
