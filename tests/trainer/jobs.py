"""A job of real processes in a folder, for the tests of what a user meets."""

import os
import random
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests import ROOT
from tests.trainer.forked_rank import LAUNCHERS, RUNS, ForkedRank
from trainer.catalogue import find
from trainer.tfevents import EventFolder, ScalarCurve

# Twenty steps an epoch of one process, ten of two
SMALL = ["--train-images", "160", "--val-images", "33", "--batch-size", "8", "--log-every", "2"]
LONG = [*SMALL, "--epochs", "20000"]
LINE = re.compile(
    r"epoch (\d+)/(\d+) step (\d+)/(\d+) loss (\d+\.\d{4}|nan) lr \d\.\de[+-]\d\d \d+ images/s eta (\w+)"
)


class Job:
    """Processes of one job in one folder; killed at the end whatever happens."""

    def __init__(self, folder: Path, *, forks: bool = False, is_paced: bool = False) -> None:
        """Make a job without processes.

        Args:
            folder: Working directory of the processes.
            forks: Starts trainers and launchers without importing torch again.
            is_paced: Processes wait for the reader of their output, so that none ends before it.
        """
        self.folder = folder
        self.forks = forks
        self.is_paced = is_paced
        self.processes: list[subprocess.Popen[str] | ForkedRank] = []
        self.lines: list[list[str]] = []
        self.stdout: int = subprocess.PIPE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, command: list[str], **env: str) -> None:
        everything = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | env
        if self.forks and command[0] in (*RUNS, *LAUNCHERS) and "PYTHONPATH" not in env:
            self.processes.append(
                ForkedRank(command, self.folder, everything, self.stdout, is_paced=self.is_paced)
            )
        else:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-P", "-m", *command],
                    cwd=self.folder,
                    env=everything,
                    text=True,
                    stdout=self.stdout,
                    stderr=subprocess.STDOUT,
                )
            )
        self.lines.append([])

    def start_two(self, arguments: list[str]) -> None:
        self.start_ranks(2, ["trainer.train_ddp", *arguments])

    def start_ranks(self, world_size: int, command: list[str], **env: str) -> None:
        """Start all ranks of a job that meet at a port of this machine."""
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(world_size)}
        for rank in range(world_size):
            self.start(command, RANK=str(rank), **env)

    def start_mpi_ranks(self, world_size: int, command: list[str], **env: str) -> None:
        """Start all ranks of a job on this machine with what Open MPI's mpirun exports to them."""
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()} | env
        for rank in range(world_size):
            self.start(command, **open_mpi_env(rank, world_size), **env)

    def start_pods(self, *arguments: list[str], processes: int = 1) -> None:
        """Start a pod for each list of arguments, as an operator would, under the launcher."""
        port = free_port()
        for pod, words in enumerate(arguments):
            self.start(
                find("ddp").command(words)[3:],
                PET_NNODES=str(len(arguments)), PET_NODE_RANK=str(pod), PET_NPROC_PER_NODE=str(processes),
                PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=port, PET_TEE="3",
                TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="[rank${rank}]: ",
            )  # fmt: skip

    def wait_for(self, words: str, process: int = 0) -> str:
        """Read lines of a process until one holds `words`."""
        stdout = self.processes[process].stdout
        assert stdout is not None
        for line in stdout:
            self.lines[process].append(line.rstrip("\n"))
            if words in line:
                return line
        raise AssertionError(f"no {words!r} in: " + "\n".join(self.lines[process]))

    def end(self) -> list[int]:
        """Wait for all processes and return their exit statuses; `lines` is then complete."""
        for process, lines in zip(self.processes, self.lines, strict=True):
            lines += process.communicate(timeout=380)[0].splitlines()
        return [process.wait() for process in self.processes]

    def progress(self, process: int = 0) -> list[tuple[str, ...]]:
        return [matched.groups() for line in self.lines[process] if (matched := LINE.search(line))]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def curves(self) -> dict[str, ScalarCurve]:
        events = EventFolder(self.folder / "logs")
        events.read_new()
        assert events.problems == {}
        return {curve.tag: curve for curve in events.curves()}


def open_mpi_env(rank: int, world_size: int, local_size: int = 0) -> dict[str, str]:
    local_size = local_size or world_size
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local_size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
    }


def free_port() -> str:
    """Return a port that is free and that the kernel gives to no outgoing connection meanwhile."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(16_000, 32_000))) as free:
            return str(free.getsockname()[1])


def ranks_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children")
    if not children.exists():
        pytest.skip("needs Linux's /proc")
    return [int(child) for child in children.read_text().split()]
