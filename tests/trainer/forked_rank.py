"""Ranks forked from a process that has imported torch: real processes that start at once."""

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["torch._dynamo", "trainer.train_ddp", "trainer.benchmark.run"])
RUNS = {
    "trainer.train_ddp": ("ddp", "trainer.train_ddp"),
    "trainer.train_mpi": ("mpi", "trainer.benchmark.run"),
}
"""For each program, its trainer and the module with its `run`."""


class ForkedRank:
    """A process of one of `RUNS`, with the part of `subprocess.Popen` that the tests use."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str], output: int) -> None:
        """Start a module with its arguments; `output` is a descriptor, or `subprocess.PIPE`."""
        self.stdout = None
        if output == subprocess.PIPE:
            read_end, output = os.pipe()
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
        """Read the remaining output and wait for the end."""
        text = ""
        if self.stdout is not None and not self.stdout.closed:
            with self.stdout:
                text = self.stdout.read()
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
    from trainer.catalogue import find
    from trainer.signals import StopRequest

    name, module = RUNS[command[0]]
    stop = StopRequest()
    stop.exit_on_signal("before training began; there is nothing new to save")
    status = importlib.import_module(module).run(find(name).parser().parse_args(command[1:]), stop)
    sys.stdout.flush()
    os._exit(status)  # destroying torch's threads in a fork may wait forever
