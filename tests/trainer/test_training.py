"""Training as a user meets it: processes, their lines and files, and how each ends."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

from tests.trainer.jobs import LINE, LONG, SMALL, Job
from trainer.ddp.checkpoints import list_checkpoints, load_checkpoint


def newest(folder: Path) -> dict[str, object]:
    return load_checkpoint(list_checkpoints(folder / "checkpoints")[0])


@pytest.mark.slow
def test_two_processes_of_an_operator_train_together_and_leave_curves_and_a_checkpoint(job: Job) -> None:
    job.forks = False
    job.start_two([*SMALL, "--epochs", "2"])
    job.wait_for("epoch 1/2 step 6/")  # a line is printed before its points are written
    assert {2, 4} <= set(job.curves()["train/loss"].steps), "points are on the disk within an epoch"
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
        "160 training images",
        "33 validation images",
        "event files in",
    ):
        assert words in text


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


@pytest.mark.slow
def test_under_bare_torchrun_the_checkpoint_is_written_too(job: Job) -> None:
    command = ["torch.distributed.run", "-m", "trainer.train_ddp", *LONG]
    job.start(command, PET_STANDALONE="1", PET_NPROC_PER_NODE="1")
    job.wait_for(" step 14/")
    job.processes[0].send_signal(signal.SIGTERM)
    assert job.end() == [1]
    assert sum("Stopped by SIGTERM after step" in line for line in job.lines[0]) == 1
    assert list_checkpoints(job.folder / "checkpoints")


def test_a_nan_loss_stops_both_ranks_and_is_in_the_curve(job: Job) -> None:
    job.start_two([*LONG, "--lr", "1e30"])
    assert job.end() == [4, 4], job.lines
    for lines in job.lines:
        assert lines[-1].startswith("error: The loss became nan by step ")
    assert str(job.curves()["train/loss"].values[-1]) == "nan"
    assert list_checkpoints(job.folder / "checkpoints") == []


@pytest.mark.slow
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
    run_here: Callable[..., list[str]], arguments: list[str], status: int, words: str
) -> None:
    [line] = run_here(*SMALL, *arguments, status=status)
    assert line.startswith(words)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_with_the_defaults_two_processes_learn_the_digits_to_97_percent(job: Job) -> None:
    job.start_two([])
    assert job.end() == [0, 0], job.lines
    [accuracy] = [
        float(words[1]) for line in job.lines[0] if (words := re.search(r"^done: val_accuracy (\S+)", line))
    ]
    assert accuracy > 0.97


from tests import ROOT
from trainer.distributed.runtime import run_to_exit_status
from trainer.messages import MissingData, TrainingError
from trainer.signals import StopRequest


def ended(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    def work() -> None:
        raise error

    status = run_to_exit_status(work, StopRequest(), memory_full="Take less.")
    return status, capsys.readouterr().err


def of_compiler(words: str) -> RuntimeError:
    exc = pytest.importorskip("torch._dynamo.exc")
    error: RuntimeError = exc.TorchDynamoException(words)
    return error


INDUCTOR = """CppCompileError: C++ compile error

Command:
g++ /tmp/header.hpp -O3 -ferror-limit=1 -o /tmp/header.gch

Output:
/tmp/header.hpp:1:10: fatal error: Python.h: No such file or directory
compilation terminated.
"""


def test_a_torch_compile_error_quotes_the_compiler_and_gives_a_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(of_compiler(INDUCTOR), capsys) == (
        1,
        "error: torch.compile failed. /tmp/header.hpp:1:10: fatal error: Python.h: No such file or directory."
        " Use --compile off.\n",
    )
    assert ended(of_compiler("Unsupported. More of it"), capsys)[1] == (
        "error: torch.compile failed. Unsupported. Use --compile off.\n"
    )


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MissingData("No file.", now="Bring it."), 5, "error: No file. Bring it."),
        (TrainingError("It broke."), 1, "error: It broke."),
        (MemoryError(), 1, "error: The memory is full. Take less."),
        (RuntimeError("[enforce fail] cannot allocate memory: 8 bytes"), 1,
         "error: The memory is full. Take"),
        (torch.OutOfMemoryError("Tried 2 GiB. More"), 1,
         "error: The GPU's memory is full. Tried 2 GiB. Choose"),
        (torch.distributed.DistNetworkError("gone"), 1,
         "error: Another rank of the job is gone, so this one"),
    ],
)  # fmt: skip
def test_an_error_that_the_user_can_fix_is_reported_in_a_single_line(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int, words: str
) -> None:
    found, said = ended(error, capsys)
    assert found == status
    assert said.startswith(words) and said.count("\n") == 1


def test_an_unexpected_exception_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        ended(RuntimeError("shapes do not fit"), capsys)
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError(), capsys)


LOGS_WITHOUT_END = """
import itertools
from trainer.messages import log
from trainer.signals import StopRequest

StopRequest().exit_on_signal("at once")
for number in itertools.count():
    log(f"line {number}")
"""


def test_the_message_of_a_stopped_process_is_its_last_line() -> None:
    for _attempt in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", LOGS_WITHOUT_END], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            last = process.communicate(timeout=60)[0].splitlines()[-1]
        assert (last, process.returncode) == ("Stopped by SIGTERM at once.", 128 + signal.SIGTERM)


def test_under_nohup_a_hangup_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", LOGS_WITHOUT_END], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        for _ in range(10_000):  # more than the pipe held before
            assert process.stdout.readline().startswith("line ")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0].splitlines()[-1] == "Stopped by SIGTERM at once."
