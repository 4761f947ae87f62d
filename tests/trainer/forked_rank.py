"""Ranks forked from a process that has imported torch: real processes that start at once."""

import fcntl
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from threading import TIMEOUT_MAX, Timer

FORKING = multiprocessing.get_context("forkserver")
# For each trainer its name, the module with its `run`, and the end of its message when it is stopped
RUNS = {
    "trainer.train_ddp": ("ddp", "trainer.train_ddp", "before training began; there is nothing new to save"),
    "trainer.train_mpi": (
        "mpi",
        "trainer.benchmark.run",
        "before the benchmark was done; nothing of it is saved",
    ),
}
# Launchers, whose ranks are processes that import torch themselves
LAUNCHERS = ("trainer.launch", "torch.distributed.run")
FORKING.set_forkserver_preload(["torch._dynamo", "trainer.train_ddp", "trainer.benchmark.run", *LAUNCHERS])
_F_SETPIPE_SZ = 1031
_SMALLEST_PIPE = 4096  # bytes that a paced process may be ahead of its reader


class ForkedRank:
    """A process of one of `RUNS` or `LAUNCHERS`, with the part of `subprocess.Popen` that the tests use."""

    def __init__(
        self, command: list[str], folder: Path, env: dict[str, str], output: int, *, is_paced: bool = False
    ) -> None:
        """Start a module with its arguments; `output` is a descriptor, or `subprocess.PIPE`.

        A process that is paced waits when its unread output is a few dozen lines.
        """
        self.stdout = None
        if output == subprocess.PIPE:
            read_end, output = os.pipe()
            if is_paced:
                fcntl.fcntl(output, _F_SETPIPE_SZ, _SMALLEST_PIPE)
            self.stdout = os.fdopen(read_end)
        else:
            output = os.dup(output)
        with Connection(output, readable=False) as connection:
            self._process = FORKING.Process(target=_be_rank, args=(command, folder, env, connection))
            self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still running after {timeout} s"
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Read to the end of the output; a process that has not ended by the timeout is killed."""
        text = ""
        if self.stdout is not None and not self.stdout.closed:
            killing = Timer(TIMEOUT_MAX if timeout is None else timeout, self.kill)
            killing.start()
            with self.stdout:
                text = self.stdout.read()
            killing.cancel()
        self.wait(timeout)
        return text, None


def _be_rank(command: list[str], folder: Path, env: dict[str, str], output: Connection) -> None:
    """Do what `python -m` does with the module of the command once torch is imported."""
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    status = _launch(command) if command[0] in LAUNCHERS else _train(*command)
    sys.stdout.flush()
    os._exit(status)  # destroying torch's threads in a fork may wait forever


def _train(program: str, *words: str) -> int:
    from trainer.catalogue import find
    from trainer.signals import StopRequest

    name, module, when = RUNS[program]
    stop = StopRequest()
    stop.exit_on_signal(when)
    return int(importlib.import_module(module).run(find(name).parser().parse_args(words), stop))


def _launch(command: list[str]) -> int:
    sys.argv = command
    try:
        return int(importlib.import_module(command[0]).main() or 0)
    except BaseException:
        traceback.print_exc()
        return 1
