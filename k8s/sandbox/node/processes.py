"""Client of the shim that runs each container, and the processes below it, read from /proc.

Source: proc(5), Linux manual.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import NamedTuple

from k8s.sandbox.paths import POD_UID, Launch, LogLimits, log_of, remove_logs_before

_KILL_TIMEOUT_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_RATE_S = 10.0
_RSS, _PSS = (b"RssAnon", b"RssShmem", b"VmSwap"), (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
DEFAULT_LIMITS = LogLimits()
_SHIM = str(Path(__file__).with_name("shim.py"))


class ProcessStat(NamedTuple):
    """Fields of `/proc/PID/stat`."""

    parent: int
    cpu_s: float
    """Includes children that have been waited for."""


class TreeUsage(NamedTuple):
    """Resources that a container uses."""

    cpu_cores: float
    memory_bytes: int
    """Anonymous and shared memory and swap, without page cache."""


def scan() -> dict[int, ProcessStat]:
    """Return all processes of this machine except zombies, by process id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, IndexError):
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    ticks = sum(map(int, fields[11:15]))
                    found[int(name)] = ProcessStat(int(fields[1]), ticks / _TICKS_PER_S)
    return found


def trees(roots: Collection[int], processes: Mapping[int, ProcessStat]) -> dict[int, set[int]]:
    """Return the processes at and below each root; a root below another has its tree to itself."""
    root_of = {0: 0, **{root: root for root in roots}}
    for pid in processes:
        path = []
        while pid not in root_of:
            path.append(pid)
            root_of[pid] = 0  # ends the walk where reused ids make a ring
            pid = processes[pid].parent if pid in processes else 0
        root_of |= dict.fromkeys(path, root_of[pid])
    found: dict[int, set[int]] = {root: set() for root in roots}
    for pid, root in root_of.items():
        if root and pid in processes:
            found[root].add(pid)
    return found


class UsageMeter:
    """Usage of the process trees below the containers' shims."""

    def __init__(self) -> None:
        self._cpu: dict[int, tuple[tuple[float, float], tuple[float, float]]] = {}

    def read(self, limits: Mapping[int, int], *, is_exact: bool) -> dict[int, TreeUsage]:
        """Return the usage below each shim, by process id.

        Args:
            limits: Memory limit in bytes by process id of a shim; 0 for none.
            is_exact: Divide shared pages among their users even below the limit, which takes longer.
        """
        processes, now = scan(), time.monotonic()
        found = {}
        for shim, pids in trees(limits, processes).items():
            memory = sum(_kilobytes(pid, "status", _RSS) for pid in pids - {shim})
            # Forked processes share pages: counted in each of them, they would exceed any limit.
            if len(pids) > 2 and (is_exact or 0 < limits[shim] < memory * 1024):
                memory = sum(
                    _kilobytes(pid, "smaps_rollup", _PSS) or _kilobytes(pid, "status", _RSS)
                    for pid in pids - {shim}
                )
            cpu_s = sum(processes[pid].cpu_s for pid in pids)
            found[shim] = TreeUsage(self._rate(shim, now, cpu_s), memory * 1024)
        self._cpu = {shim: samples for shim, samples in self._cpu.items() if shim in found}
        return found

    def _rate(self, shim: int, now: float, cpu_s: float) -> float:
        # Measured since a sample that is one to two times `_RATE_S` old.
        older, newer = self._cpu.get(shim, ((now, cpu_s), (now, cpu_s)))
        if now - newer[0] >= _RATE_S:
            older, newer = newer, (now, cpu_s)
        self._cpu[shim] = older, newer
        return max(0.0, cpu_s - older[1]) / max(now - older[0], 1e-3)


def _kilobytes(pid: int, file: str, names: Collection[bytes]) -> int:
    try:
        lines = Path("/proc", str(pid), file).read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.partition(b":")[0] in names)


def end_marked(variable: str, value: str) -> None:
    """Kill all processes with a variable of that value in their environment, and all below them."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while value and (found := marked(variable, value)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def marked(variable: str, value: str) -> set[int]:
    """Return the processes with a variable of that value in their environment, and those below them."""
    mark = f"{variable}={value}".encode()
    processes = scan()
    processes.pop(os.getpid(), None)
    found = set()
    for pid in processes:
        with suppress(OSError):
            if mark in Path("/proc", str(pid), "environ").read_bytes().split(b"\0"):
                found.add(pid)
    return set().union(*trees(found, processes).values())


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a run."""

    exit_code: int
    signal: int = 0
    is_oom: bool = False
    start_error: str = ""
    """Empty if the process started."""


class Process:
    """One run of a container, under its shim."""

    def __init__(self, shim: subprocess.Popen[bytes], reports: asyncio.StreamReader, pod_uid: str) -> None:
        self._shim = shim
        self._pod_uid = pod_uid
        self._reports = reports
        self.pid = shim.pid
        self.log_error = ""
        self.memory_error = ""
        """Empty unless it was killed for its memory."""

    @classmethod
    async def start(
        cls, launch: Launch, folder: Path, run: int, limits: LogLimits = DEFAULT_LIMITS
    ) -> Process:
        """Start a container's process; `folder` gets its log, and keeps the log of the previous run.

        Raises:
            OSError: The folder cannot be written, or no process can be started.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_logs_before(folder, run - 1)
        described = launch.write(folder)
        log_limits = (str(limits.max_bytes), str(limits.max_files))
        shim = subprocess.Popen(
            [sys.executable, "-I", "-S", _SHIM, str(described), str(log_of(folder, run)), *log_limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,
        )
        reports = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reports), shim.stdout
        )
        return cls(shim, reports, launch.env.get(POD_UID, ""))

    async def started(self) -> str:
        """Wait until the process runs; return the error if it cannot start."""
        report = json.loads(await self._reports.readline() or '{"error": "its shim was killed"}')
        return str(report.get("error", ""))

    async def ended(self) -> Ended:
        """Wait until the process and all its descendants have ended."""
        found: Ended | None = None
        async for line in self._reports:
            report = json.loads(line)
            if "log_error" in report:
                self.log_error = report["log_error"]
            else:
                is_oom = report["oom"] or bool(self.memory_error and report["signal"] == SIGKILL)
                found = Ended(report["exit_code"], report["signal"], is_oom)
        if found is None:
            await asyncio.to_thread(end_marked, POD_UID, self._pod_uid)
        if self._shim.stdin is not None:
            self._shim.stdin.close()
        await asyncio.to_thread(self._shim.wait)
        return found or Ended(137, signal=9)

    def request_stop(self) -> None:
        """Send SIGTERM to the process and its descendants."""
        self._send(b"T")

    def end(self) -> None:
        """Kill the process and its descendants."""
        self._send(b"K")

    def end_for_memory(self, used_bytes: int, limit: str) -> None:
        """Kill the process and its descendants for exceeding the memory limit."""
        if not self.memory_error:
            mib = math.ceil(used_bytes / 2**20)
            self.memory_error = f"it used {mib}Mi of memory, and its limit is {limit}"
        self.end()

    def _send(self, word: bytes) -> None:
        if self._shim.stdin is not None and not self._shim.stdin.closed:
            try:
                os.write(self._shim.stdin.fileno(), word)
            except OSError:
                return
