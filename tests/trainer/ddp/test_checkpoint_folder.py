"""Checkpoints of one run: whose they are, where they go, and writing while training continues."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="checkpoints are torch's, which gpuconsole[trainer] brings")

from trainer.ddp.checkpoint import State, list_checkpoints, load_checkpoint
from trainer.ddp.checkpoint_folder import CheckpointFolder, CheckpointWriter
from trainer.messages import NotFinite, TrainingError


def state(step: int) -> State:
    return {"step": step, "epoch": 2, "images": 0, "model": {"weights": torch.full((9,), float(step))}}


def saved(folder: CheckpointFolder, step: int) -> str:
    """Write the checkpoint of a step; returns its path."""
    return folder.write(state(step))


def folder_of(path: Path, job: str = "digits", continues: bool = False) -> CheckpointFolder:
    return CheckpointFolder(path, keep=2, model="cnn", job=job, continues_when_full=continues)


def resume(folder: CheckpointFolder, how: str) -> State:
    """Resume from the checkpoint that is found."""
    found = folder.load(how)
    assert found is not None
    folder.resumed(*found)
    return found[1]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.pt"))


def test_a_run_that_goes_on_says_first_of_which_job_and_since_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(folder_of(tmp_path, "ddp-digits-1"), 520)
    assert path == str(tmp_path / "step-00000520.pt")
    loaded = resume(folder_of(tmp_path, "another"), "auto")
    assert abs(loaded["saved_at"] - time.time()) < 200
    words, where = capsys.readouterr().out.splitlines()
    assert words.startswith("continues step 520 of ddp-digits-1, saved ")
    assert words.endswith(" s ago")
    assert where == f"resumed from {path}: epoch 3, step 520"


def test_a_checkpoint_from_before_names_were_recorded_is_as_old_as_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step-00000007.pt"
    torch.save({"format": 1, "network": "cnn", **state(7)}, path)
    os.utime(path, (time.time() - 330, time.time() - 330))
    assert resume(folder_of(tmp_path), "must")
    assert capsys.readouterr().out.startswith("continues step 7, saved 5 min ago\n")


def test_a_new_run_moves_the_old_ones_checkpoints_aside_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    for step in (150, 200):
        saved(folder, step)
    assert folder.load("never") is None
    assert capsys.readouterr().out == (
        f"starts from scratch; the old checkpoints (2) are now in {tmp_path}/old-1\n"
    )
    saved(folder, 118)
    assert folder.load("never") is None
    saved(folder, 3)
    assert tree(tmp_path) == [
        "old-1/step-00000150.pt", "old-1/step-00000200.pt", "old-2/step-00000118.pt", "step-00000003.pt",
    ]  # fmt: skip
    assert resume(folder, "auto")["step"] == 3


def test_a_new_run_in_an_empty_folder_moves_nothing_and_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder_of(tmp_path / "none").load("never") is None
    assert folder_of(tmp_path).load("never") is None
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


def test_what_is_damaged_and_ahead_goes_aside_so_that_the_next_checkpoint_is_the_newest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    for step in (150, 200):
        saved(folder, step)
    (tmp_path / "step-00000200.pt").write_bytes(b"torn")
    assert resume(folder, "auto")["step"] == 150
    saved(folder, 175)
    assert tree(tmp_path) == ["old-1/step-00000200.pt", "step-00000150.pt", "step-00000175.pt"]
    assert f"What could not be read is now in {tmp_path}/old-1." in capsys.readouterr().err


def test_a_checkpoint_that_is_only_read_is_not_said_to_be_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    for step in (150, 200):
        saved(folder, step)
    (tmp_path / "step-00000200.pt").write_bytes(b"torn")
    assert folder.load("auto") is not None
    assert capsys.readouterr().out == ""
    assert tree(tmp_path) == ["step-00000150.pt", "step-00000200.pt"], "it may be refused yet"


def test_a_file_that_has_the_name_of_the_folder_aside_is_left_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    saved(folder, 1)
    (tmp_path / "old-1").write_text("a file of somebody")
    assert folder.load("never") is None
    assert tree(tmp_path) == ["old-2/step-00000001.pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_stops_training_or_not_and_the_words_are_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / ".step-00000002.pt.partial"
    full.symlink_to("/dev/full")
    with pytest.raises(TrainingError) as caught:
        saved(folder_of(tmp_path), 2)
    assert str(caught.value) == (
        f"Could not write the checkpoint {tmp_path}/step-00000002.pt. No space left on device."
        f" Training stops; no checkpoint is in {tmp_path}."
        " Make room or choose another --checkpoint-dir, then start again;"
        " --on-full-disk continue would train on."
    )
    saved(folder_of(tmp_path), 1)
    full.symlink_to("/dev/full")
    going_on = folder_of(tmp_path, continues=True)
    assert saved(going_on, 2) == ""
    assert capsys.readouterr().err == (
        f"warning: Could not write the checkpoint {tmp_path}/step-00000002.pt. No space left on device."
        f" Training goes on; the last checkpoint is {tmp_path}/step-00000001.pt.\n"
    )
    assert saved(going_on, 2).endswith("step-00000002.pt")


def test_what_is_no_full_disk_stops_training_even_if_a_full_one_would_not(tmp_path: Path) -> None:
    (tmp_path / ".step-00000002.pt.partial").mkdir()
    with pytest.raises(TrainingError, match=r"Is a directory\. Training stops; ") as caught:
        saved(folder_of(tmp_path, continues=True), 2)
    assert "--on-full-disk" not in str(caught.value)
    assert list_checkpoints(tmp_path) == []


WAIT_S = 60


@dataclass(frozen=True)
class SlowFolder(CheckpointFolder):
    """A folder on a disk that writes when it is let."""

    may_write: threading.Event = field(default_factory=threading.Event)
    events: list[str] = field(default_factory=list)

    def write(self, state: State) -> str:
        self.events.append(f"starts {state['step']}")
        assert self.may_write.wait(WAIT_S)
        saved = super().write(state)
        self.events.append(f"wrote {state['step']}")
        return saved


def slow_folder(path: Path, continues: bool = False) -> SlowFolder:
    return SlowFolder(path, keep=9, model="cnn", job="", continues_when_full=continues)


def copied_state(step: int, weights: Any) -> State:
    return {
        "step": step, "epoch": 0, "images": 0, "model": {"weights": weights}, "random": [[weights.clone()]],
    }  # fmt: skip


def test_training_goes_on_while_a_copy_is_written(tmp_path: Path) -> None:
    folder = slow_folder(tmp_path)
    writer, weights = CheckpointWriter(folder), torch.full((9,), 1.0)
    writer.start(copied_state(1, weights))
    weights.fill_(7.0)
    assert list_checkpoints(tmp_path) == []
    folder.may_write.set()
    assert writer.finish() == str(tmp_path / "step-00000001.pt")
    saved = load_checkpoint(tmp_path / "step-00000001.pt")
    assert saved["model"]["weights"].tolist() == [1.0] * 9
    assert saved["random"][0][0].tolist() == [1.0] * 9


def test_the_next_waits_until_the_one_before_is_on_the_disk_and_the_last_is_whole_at_the_end(
    tmp_path: Path,
) -> None:
    folder = slow_folder(tmp_path)
    writer, weights = CheckpointWriter(folder), torch.zeros(9)
    writer.start(copied_state(1, weights))
    second = threading.Thread(target=writer.start, args=(copied_state(2, weights),))
    second.start()
    folder.may_write.set()
    second.join(WAIT_S)
    writer.close()
    assert folder.events == ["starts 1", "wrote 1", "starts 2", "wrote 2"]
    assert [load_checkpoint(path)["step"] for path in list_checkpoints(tmp_path)] == [2, 1]
    writer.close()


def test_weights_that_are_not_finite_are_refused_at_once_and_what_is_under_way_is_finished(
    tmp_path: Path,
) -> None:
    folder = slow_folder(tmp_path)
    folder.may_write.set()
    writer = CheckpointWriter(folder)
    writer.start(copied_state(1, torch.zeros(9)))
    with pytest.raises(NotFinite, match="no longer finite after step 2"):
        writer.start(copied_state(2, torch.full((9,), float("nan"))))
    writer.close()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000001.pt"]


def test_what_could_not_be_written_is_known_before_the_next_and_raised_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = slow_folder(tmp_path)
    folder.may_write.set()
    (tmp_path / ".step-00000001.pt.partial").mkdir()
    writer = CheckpointWriter(folder)
    writer.start(copied_state(1, torch.zeros(9)))
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(WAIT_S)
    assert writer.has_failed
    with pytest.raises(TrainingError, match=r"step-00000001.pt\. Is a directory\. Training stops; no"):
        writer.start(copied_state(2, torch.zeros(9)))
    assert not writer.has_failed
    writer.close()
    writer.start(copied_state(1, torch.zeros(9)))
    writer.close()
    assert capsys.readouterr().err.count("error: Could not write the checkpoint") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_on_a_full_disk_where_training_may_go_on_it_does(tmp_path: Path) -> None:
    folder = slow_folder(tmp_path, continues=True)
    folder.may_write.set()
    (tmp_path / ".step-00000001.pt.partial").symlink_to("/dev/full")
    writer = CheckpointWriter(folder)
    writer.start(copied_state(1, torch.zeros(9)))
    assert writer.finish() == ""
    assert not writer.has_failed
    writer.start(copied_state(2, torch.zeros(9)))
    assert writer.finish().endswith("step-00000002.pt")
