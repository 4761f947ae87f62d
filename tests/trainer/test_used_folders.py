"""Files that a run saves, and their use by the next run in the same folders, with real processes."""

import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import LONG, SMALL, Job
from trainer.ddp.checkpoints import list_checkpoints

pytestmark = pytest.mark.slow

TRAINER = "trainer.train_ddp"


def run(folder: Path, *arguments: str, status: int = 0) -> list[str]:
    """Run a training of one process to its end; returns its lines."""
    with Job(folder, forks=True) as job:
        job.start([TRAINER, *arguments])
        assert job.end() == [status], job.lines
        return job.lines[0]


def stop_after(job: Job, words: str) -> int:
    """Ask a job to stop once it said `words`, and return the step at which it did."""
    job.wait_for(words)
    job.processes[0].send_signal(signal.SIGTERM)
    assert set(job.end()) == {143}, job.lines
    [said] = [line for line in job.lines[0] if line.startswith("Stopped by SIGTERM after step ")]
    return int(said.split("after step ")[1].split(".")[0])


def test_a_new_run_in_a_used_folder_resumes_from_its_own_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--epochs", "2")
    with Job(tmp_path, forks=True) as job:
        job.start([TRAINER, *LONG, "--resume", "never"], HOSTNAME="digits-2-master-0")
        step = stop_after(job, " step 14/")
    saved = tmp_path / "checkpoints" / f"step-{step:08d}.pt"
    assert job.lines[0][-1] == (
        f"Stopped by SIGTERM after step {step}."
        f" checkpoints/{saved.name} holds everything. Start again to go on from there."
    )
    assert list_checkpoints(saved.parent)[0] == saved
    old = list_checkpoints(saved.parent / "old-1")
    assert [path.name for path in old] == ["step-00000040.pt", "step-00000020.pt"]
    with Job(tmp_path, forks=True) as job:
        job.start([TRAINER, *LONG])
        assert job.wait_for("continues").startswith(f"continues step {step} of digits-2, saved ")
        assert len(job.lines[0]) == 1


def test_checkpoints_of_which_none_can_be_read_end_the_run_with_a_status_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-00000010.pt").write_bytes(b"torn")
    warning, error = run(tmp_path, *SMALL, status=3)
    assert warning.startswith("warning: The checkpoint checkpoints/step-00000010.pt cannot be read. ")
    assert error == (
        "error: None of the 1 checkpoints in checkpoints can be read."
        " Move them away, or start from scratch with --resume never."
    )


def test_weights_with_which_validation_gives_no_number_are_not_saved(tmp_path: Path) -> None:
    one_step = ["--train-images", "32", "--val-images", "10", "--batch-size", "32", "--epochs", "3"]
    run(tmp_path, *one_step)
    last = run(tmp_path, *one_step, "--resume", "never", "--lr", "1e30", status=4)[-1]
    assert last.startswith("error: The validation loss became nan by step 1; all ranks stop.")
    assert list_checkpoints(tmp_path / "checkpoints") == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_on_full_disk_continue_trains_on_and_saves_later_checkpoints(job: Job) -> None:
    folder = job.folder / "checkpoints"
    folder.mkdir()
    (folder / ".step-00000010.pt.partial").symlink_to("/dev/full")
    job.start_two([*SMALL, "--epochs", "2", "--on-full-disk", "continue"])
    assert job.end() == [0, 0], job.lines
    said = "warning: Could not write the checkpoint checkpoints/step-00000010.pt. No space left on device."
    assert f"{said} Training goes on; no checkpoint is in checkpoints." in job.lines[0]
    assert [path.name for path in list_checkpoints(folder)] == ["step-00000020.pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize(
    ("when_full", "words"),
    [
        ("stop", "error: Could not write the checkpoint checkpoints/step-00000020.pt. No space left"),
        ("continue", "error: Training is complete, but the disk had no room for the last checkpoint."),
    ],
)
def test_a_run_whose_last_weights_found_no_room_is_no_success(
    tmp_path: Path, when_full: str, words: str
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".step-00000020.pt.partial").symlink_to("/dev/full")
    lines = run(tmp_path, *SMALL, "--epochs", "1", "--on-full-disk", when_full, status=1)
    assert lines[-1].startswith(words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_checkpoint_that_failed_while_training_went_on_stops_all_ranks(job: Job) -> None:
    folder = job.folder / "checkpoints"
    folder.mkdir()
    (folder / ".step-00000050.pt.partial").symlink_to("/dev/full")
    job.start_two([*LONG, "--train-images", "3200"])
    assert job.end() == [1, 1], job.lines
    for lines in job.lines:
        assert lines[-1].startswith(
            "error: Could not write the checkpoint checkpoints/step-00000050.pt. No space"
        )
    assert " Training stops; no checkpoint is in checkpoints. Make room or " in job.lines[0][-1]


def test_the_learning_rate_goes_on_where_it_was_when_a_step_becomes_half_as_many_images(
    tmp_path: Path,
) -> None:
    with Job(tmp_path, forks=True) as job:
        job.start([TRAINER, *SMALL, "--epochs", "8", "--batch-size", "64"])
        stop_after(job, "epoch 3/8 ")
    with Job(tmp_path, forks=True) as job:
        job.start([TRAINER, *SMALL, "--epochs", "8", "--batch-size", "32"])
        assert job.end() == [0], job.lines
        rates = list(job.curves()["train/lr"].values)
    highest = rates.index(max(rates))
    assert rates[highest:] == sorted(rates[highest:], reverse=True)
    assert rates[highest] > 0.0029
    assert rates[-1] < 1e-6
