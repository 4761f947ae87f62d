"""Processes of containers, read from /proc: ancestry, usage, and how to kill them.

Source: proc(5), Linux manual.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_KILL_TIMEOUT_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_RATE_S = 10.0


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


_RSS, _PSS = (b"RssAnon", b"RssShmem", b"VmSwap"), (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")


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
