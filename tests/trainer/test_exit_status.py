"""Message and exit status of a rank when its work fails or a signal stops it."""

import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="training needs torch, which gpuconsole[trainer] brings")

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
