"""Training as a user meets it: processes, their lines, their files and their exit status."""

import os
import pty
import re
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import LINE, LONG, SMALL, Job
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint

pytestmark = pytest.mark.slow


def newest(folder: Path) -> dict[str, object]:
    return load_checkpoint(list_checkpoints(folder / "checkpoints")[0])


def test_two_processes_of_an_operator_train_together_and_leave_curves_and_a_checkpoint(job: Job) -> None:
    job.forks = False
    job.start_two([*SMALL, "--epochs", "2"])
    assert job.end() == [0, 0], job.lines
    for line in job.lines[0]:
        assert LINE.search(line) is None or re.search(r" wait \d+\.\dms step \d+\.\dms comm \d+\.\dms$", line)
    for rank in (0, 1):
        assert [line[:4] for line in job.progress(rank)] == [
            (str(1 + step // 11), "2", str(step), "20") for step in range(2, 21, 2)
        ]
    [done] = [line for lines in job.lines for line in lines if line.startswith("done: ")]
    assert re.fullmatch(r"done: val_accuracy 0\.\d{4} val_loss \d+\.\d{4} in \d+ s", done)
    drawn = job.curves()
    assert drawn.keys() == {
        *("train/loss", "train/lr", "train/images_per_s", "val/loss", "val/accuracy"),
        *("time/wait_ms", "time/step_ms", "time/communication_ms", "time/communication_exposed_ms"),
    }
    for tag, curve in drawn.items():
        if tag.startswith("time/"):
            assert min(curve.values) >= 0 and max(curve.values) < 100_000, tag
    assert list(drawn["train/loss"].steps) == list(range(2, 21, 2))
    assert list(drawn["val/accuracy"].steps) == [10, 20]
    [event_file] = (job.folder / "logs").glob("events.out.tfevents.*")
    written = event_file.read_bytes()
    assert b"_hparams_/session_start_info" in written
    assert b"world-size" in written and b"batch-size" in written
    state = newest(job.folder)
    assert (state["step"], state["epoch"], state["images"]) == (20, 2, 0)
    text = "\n".join(job.lines[0])
    for words in (
        "device cpu",
        "backend gloo",
        "world size 2",
        "640 training images",
        "101 validation images",
        "event files in",
    ):
        assert words in text


def test_points_are_on_disk_in_the_middle_of_an_epoch(job: Job) -> None:
    images = ["--train-images", "3200", "--val-images", "101", "--log-every", "1", "--epochs", "1"]
    job.start_two(images)
    job.wait_for("epoch 1/1 step 6/")  # a line is printed before its points are written
    assert {5} <= set(job.curves()["train/loss"].steps)
    assert job.progress()[-1][2] == "6"


def test_a_signal_to_one_rank_stops_all_at_the_same_step_with_a_checkpoint(job: Job) -> None:
    job.start_two(LONG)
    job.wait_for("epoch 2/2000 step 14/", process=1)
    job.processes[1].send_signal(signal.SIGTERM)
    assert job.end() == [143, 143], job.lines
    step = newest(job.folder)["step"]
    for lines in job.lines:
        assert lines[-1].startswith(f"Stopped by SIGTERM after step {step}. checkpoints/step-")
    assert job.curves()["train/loss"].steps[-1] in (step, int(str(step)) - 1)


def test_a_terminal_that_hangs_up_leaves_a_checkpoint(job: Job) -> None:
    """SIGHUP comes, and what is printed from then on fails."""
    terminal, end = pty.openpty()
    job.stdout = end
    job.start(["trainer.train_ddp", *LONG])
    os.close(end)
    with os.fdopen(terminal, "rb") as lines:
        assert any(b" step 14/" in line for line in lines)
    job.processes[0].send_signal(signal.SIGHUP)
    assert job.processes[0].wait(100) == 128 + signal.SIGHUP
    assert int(str(newest(job.folder)["step"])) >= 14


def test_under_nohup_a_hangup_is_ignored(job: Job) -> None:
    job.forks = False  # a fork has decided at its import which signals stop it
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        job.start(["trainer.train_ddp", *LONG])
    finally:
        signal.signal(signal.SIGHUP, before)
    job.wait_for(" step 14/")
    job.processes[0].send_signal(signal.SIGHUP)
    job.wait_for(" step 40/")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [143]


def test_a_finished_run_trains_nothing_and_with_other_settings_has_a_status_of_its_own(job: Job) -> None:
    first = ["trainer.train_ddp", *SMALL, "--epochs", "2"]
    changes = [["--precision", "fp64"], ["--epochs", "1"], ["--momentum", "0.5"]]
    for command in (first, *([*first, *words] for words in changes), first):
        job.start(command)
        job.processes[-1].wait(100)
    assert job.end() == [0, 8, 8, 1, 0], job.lines
    for words, lines in zip(changes[:2], job.lines[1:3], strict=True):
        assert lines[-1].startswith("error: Nothing was trained: checkpoints/step-")
        assert f"{words[0]} {words[1]} (was " in lines[-1]
    assert job.lines[3][-1] == (
        "error: The checkpoint was made with --optimizer adamw (here sgd), --momentum 0 (here 0.5)."
        " Choose what it was made with, another --checkpoint-dir, or --resume never."
    )
    for lines in job.lines[1:4]:
        assert not [
            line for line in lines if line.startswith(("continues ", "resumed ")) or "val_acc" in line
        ]
    assert job.lines[-1][0].startswith("continues step 40, saved ")
    assert job.lines[-1][2].startswith("nothing left to train: 2 of 2 epochs are done")


def test_under_bare_torchrun_the_checkpoint_is_written_too(job: Job) -> None:
    command = ["torch.distributed.run", "-m", "trainer.train_ddp", *LONG]
    job.start(command, PET_STANDALONE="1", PET_NPROC_PER_NODE="2")
    job.wait_for(" step 14/")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [1]
    assert sum("Stopped by SIGTERM after step" in line for line in job.lines[0]) == 2
    assert list_checkpoints(job.folder / "checkpoints")


def test_a_nan_loss_stops_both_ranks_and_is_in_the_curve(job: Job) -> None:
    job.start_two([*LONG, "--lr", "1e30"])
    assert job.end() == [4, 4], job.lines
    for lines in job.lines:
        assert lines[-1].startswith("error: The loss became nan by step ")
    assert str(job.curves()["train/loss"].values[-1]) == "nan"
    assert list_checkpoints(job.folder / "checkpoints") == []


def test_when_a_rank_is_killed_the_other_rank_fails_with_a_message(job: Job) -> None:
    job.start_two(LONG)
    job.wait_for(" step 14/")
    job.processes[1].kill()
    assert job.end() == [1, -signal.SIGKILL], job.lines
    assert job.lines[0][-1].startswith("error: Another rank of the job is gone, so this one stops (")


def test_an_error_of_rank_0_stops_the_other_rank_too(job: Job) -> None:
    (job.folder / "taken").touch()
    job.start_two([*LONG, "--log-dir", "taken"])
    assert job.end() == [1, 1], job.lines
    for lines in job.lines:
        assert lines[-1] == "error: Cannot write to taken. File exists. Choose another folder with --log-dir."


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--epochs", "0"], 2, "error: argument --epochs: 0 is not 1 or more."),
        (["--dataset", "mnist"], 5, "error: MNIST is not complete: there is no mnist/MNIST/raw/train-images"),
        (["--device", "cuda"], 6, "error: --device cuda: torch finds no GPU here. Ask for a GPU, or"),
        (["--resume", "must"], 1, "error: There is no checkpoint in checkpoints."),
    ],
)
def test_an_invalid_start_is_reported_in_a_single_line(
    job: Job, arguments: list[str], status: int, words: str
) -> None:
    job.start(["trainer.train_ddp", *arguments])
    assert job.end() == [status]
    assert len(job.lines[0]) == 1
    assert job.lines[0][0].startswith(words)


@pytest.mark.timeout(400)
def test_with_the_defaults_two_processes_learn_the_digits_to_97_percent(job: Job) -> None:
    job.start_two([])
    assert job.end() == [0, 0], job.lines
    [accuracy] = [
        float(words[1]) for line in job.lines[0] if (words := re.search(r"^done: val_accuracy (\S+)", line))
    ]
    assert accuracy > 0.97
