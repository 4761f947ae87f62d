"""The checkpoints of one run: whose they are is said, and no other run's come between."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="checkpoints are torch's, which gpuconsole[trainer] brings")

from trainer.ddp.checkpoint import State, list_checkpoints  # noqa: E402
from trainer.ddp.checkpoint_folder import CheckpointFolder  # noqa: E402
from trainer.messages import TrainingError  # noqa: E402


def state(step: int) -> State:
    return {"step": step, "epoch": 2, "images": 0, "model": {"weights": torch.full((9,), float(step))}}


def folder_of(path: Path, job: str = "digits", continues: bool = False) -> CheckpointFolder:
    return CheckpointFolder(path, keep=2, model="cnn", job=job, continues_when_full=continues)


def resume(folder: CheckpointFolder, how: str) -> State:
    """Go on from the checkpoint that is found."""
    found = folder.load(how)
    assert found is not None
    folder.go_on_from(*found)
    return found[1]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.pt"))


def test_a_run_that_goes_on_says_first_of_which_job_and_since_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = folder_of(tmp_path, "ddp-digits-1").save(state(520))
    assert saved == str(tmp_path / "step-00000520.pt")
    loaded = resume(folder_of(tmp_path, "another"), "auto")
    assert abs(loaded["saved_at"] - time.time()) < 200
    words, where = capsys.readouterr().out.splitlines()
    assert words.startswith("continues step 520 of ddp-digits-1, saved ")
    assert words.endswith(" s ago")
    assert where == f"resumed from {saved}: epoch 3, step 520"


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
        folder.save(state(step))
    assert folder.load("never") is None
    assert capsys.readouterr().out == (
        f"starts anew; the checkpoints of an earlier run (2) are now in {tmp_path}/old-1\n"
    )
    folder.save(state(118))
    assert folder.load("never") is None
    folder.save(state(3))
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
        folder.save(state(step))
    (tmp_path / "step-00000200.pt").write_bytes(b"torn")
    assert resume(folder, "auto")["step"] == 150
    folder.save(state(175))
    assert tree(tmp_path) == ["old-1/step-00000200.pt", "step-00000150.pt", "step-00000175.pt"]
    assert f"What could not be read is now in {tmp_path}/old-1." in capsys.readouterr().err


def test_a_checkpoint_that_is_only_read_is_not_said_to_be_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path)
    for step in (150, 200):
        folder.save(state(step))
    (tmp_path / "step-00000200.pt").write_bytes(b"torn")
    assert folder.load("auto") is not None
    assert capsys.readouterr().out == ""
    assert tree(tmp_path) == ["step-00000150.pt", "step-00000200.pt"], "it may be refused yet"


def test_a_file_that_has_the_name_of_the_folder_aside_is_left_alone(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    folder.save(state(1))
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
        folder_of(tmp_path).save(state(2))
    assert str(caught.value) == (
        f"Could not write the checkpoint {tmp_path}/step-00000002.pt. No space left on device."
        f" Training stops; no checkpoint is in {tmp_path}."
        " Make room or choose another --checkpoint-dir, then start again;"
        " --on-full-disk continue would train on."
    )
    folder_of(tmp_path).save(state(1))
    full.symlink_to("/dev/full")
    going_on = folder_of(tmp_path, continues=True)
    assert going_on.save(state(2)) == ""
    assert capsys.readouterr().err == (
        f"warning: Could not write the checkpoint {tmp_path}/step-00000002.pt. No space left on device."
        f" Training goes on; the last checkpoint is {tmp_path}/step-00000001.pt.\n"
    )
    assert going_on.save(state(2)).endswith("step-00000002.pt")


def test_what_is_no_full_disk_stops_training_even_if_a_full_one_would_not(tmp_path: Path) -> None:
    (tmp_path / ".step-00000002.pt.partial").mkdir()
    with pytest.raises(TrainingError, match=r"Is a directory\. Training stops; ") as caught:
        folder_of(tmp_path, continues=True).save(state(2))
    assert "--on-full-disk" not in str(caught.value)
    assert list_checkpoints(tmp_path) == []
