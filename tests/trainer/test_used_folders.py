"""Files that a run saves, and their use by the next run in the same folders."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import LONG, SMALL, Job
from trainer.ddp.checkpoints import list_checkpoints

Run = Callable[..., list[str]]
NEEDS_DEV_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")


def full_at(folder: Path, *steps: int) -> None:
    """Let the checkpoints of these steps find a full disk."""
    folder.mkdir()
    for step in steps:
        (folder / f".step-{step:08}.pt.partial").symlink_to("/dev/full")


def test_a_new_run_in_a_used_folder_resumes_from_its_own_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: Run
) -> None:
    run_here(*SMALL, "--epochs", "2")
    monkeypatch.setenv("HOSTNAME", "digits-2-master-0")
    stopped = run_here(*SMALL, "--epochs", "3", "--resume", "never", stop_after=1, status=143)[-1]
    step = int(stopped.split("after step ")[1].split(".")[0])
    saved = tmp_path / "checkpoints" / f"step-{step:08d}.pt"
    assert stopped == (
        f"Stopped by SIGTERM after step {step}."
        f" checkpoints/{saved.name} holds everything. Start again to go on from there."
    )
    assert list_checkpoints(saved.parent)[0] == saved
    old = list_checkpoints(saved.parent / "old-1")
    assert [path.name for path in old] == ["step-00000040.pt", "step-00000020.pt"]
    lines = run_here(*SMALL, "--epochs", "3", stop_after=1, status=143)
    assert re.fullmatch(rf"continues step {step} of digits-2, saved \d+ s ago", lines[0])
    assert lines[1] == f"resumed from checkpoints/{saved.name}: epoch {1 + step // 20}, step {step}"


def test_unreadable_checkpoints_end_the_run_with_status_3(tmp_path: Path, run_here: Run) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-00000010.pt").write_bytes(b"torn")
    warning, error = run_here(*SMALL, status=3)
    assert warning.startswith("warning: The checkpoint checkpoints/step-00000010.pt cannot be read. ")
    assert error == (
        "error: None of the 1 checkpoints in checkpoints can be read."
        " Move them away, or start from scratch with --resume never."
    )


def test_weights_with_a_nan_validation_loss_are_not_saved(tmp_path: Path, run_here: Run) -> None:
    one_step = ["--train-images", "32", "--val-images", "10", "--batch-size", "32", "--epochs", "3"]
    run_here(*one_step)
    last = run_here(*one_step, "--resume", "never", "--lr", "1e30", status=4)[-1]
    assert last.startswith("error: The validation loss became nan by step 1; all ranks stop.")
    assert list_checkpoints(tmp_path / "checkpoints") == []


def test_a_finished_run_trains_nothing_and_refuses_other_settings(run_here: Run) -> None:
    run_here(*SMALL, "--epochs", "2")
    refused = [
        run_here(*SMALL, "--epochs", "2", *words, status=status)
        for words, status in (
            (["--precision", "fp64"], 8),
            (["--epochs", "1"], 8),
            (["--momentum", "0.5"], 1),
        )
    ]
    for lines, changed in zip(refused, ("--precision fp64 (was ", "--epochs 1 (was "), strict=False):
        assert lines[-1].startswith("error: Nothing was trained: checkpoints/step-") and changed in lines[-1]
    assert refused[2][-1] == (
        "error: The checkpoint was made with --optimizer adamw (here sgd), --momentum 0 (here 0.5)."
        " Choose what it was made with, another --checkpoint-dir, or --resume never."
    )
    for lines in refused:
        assert not [
            each for each in lines if each.startswith(("continues ", "resumed ")) or "val_acc" in each
        ]
    again = run_here(*SMALL, "--epochs", "2")
    assert again[0].startswith("continues step 40, saved ")
    assert again[2].startswith("nothing left to train: 2 of 2 epochs are done")


@NEEDS_DEV_FULL
@pytest.mark.parametrize(
    ("when_full", "words"),
    [
        ("stop", "error: Could not write the checkpoint checkpoints/step-00000020.pt. No space left"),
        ("continue", "error: Training is complete, but the disk had no room for the last checkpoint."),
    ],
)
def test_a_full_disk_at_the_last_checkpoint_fails_the_run(
    tmp_path: Path, run_here: Run, when_full: str, words: str
) -> None:
    full_at(tmp_path / "checkpoints", 20)
    lines = run_here(*SMALL, "--epochs", "1", "--on-full-disk", when_full, status=1)
    assert lines[-1].startswith(words)


@NEEDS_DEV_FULL
def test_on_full_disk_continue_trains_on_and_saves_later_checkpoints(tmp_path: Path, run_here: Run) -> None:
    full_at(tmp_path / "checkpoints", 20)
    lines = run_here(*SMALL, "--epochs", "2", "--on-full-disk", "continue")
    why = "warning: Could not write the checkpoint checkpoints/step-00000020.pt. No space left on device."
    assert f"{why} Training goes on; no checkpoint is in checkpoints." in lines
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")] == ["step-00000040.pt"]


@NEEDS_DEV_FULL
@pytest.mark.slow
def test_a_checkpoint_that_failed_while_training_went_on_stops_all_ranks(job: Job) -> None:
    full_at(job.folder / "checkpoints", 10)
    job.start_two(LONG)
    assert job.end() == [1, 1], job.lines
    for lines in job.lines:
        assert lines[-1].startswith(
            "error: Could not write the checkpoint checkpoints/step-00000010.pt. No space"
        )
    assert " Training stops; no checkpoint is in checkpoints. Make room or " in job.lines[0][-1]


def test_the_learning_rate_continues_with_another_batch_size(tmp_path: Path, run_here: Run) -> None:
    run_here(*SMALL, "--epochs", "8", "--batch-size", "16", stop_after=4, status=143)
    run_here(*SMALL, "--epochs", "8")
    rates = list(Job(tmp_path).curves()["train/lr"].values)
    highest = rates.index(max(rates))
    assert rates[highest:] == sorted(rates[highest:], reverse=True)
    assert rates[highest] > 0.0029
    assert rates[-1] < 1e-6
