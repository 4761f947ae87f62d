"""Starts a shim for each run of a container, talks to it, and knows how the run ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from k8s.sandbox.pod_folder import POD_UID, Launch, LogLimits, log_of, remove_logs_before

DEFAULT_LIMITS = LogLimits()
_PATIENCE_S = 5.0
_SHIM = str(Path(__file__).with_name("shim.py"))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    exit_code: int
    signal: int = 0
    is_oom: bool = False
    start_error: str = ""
    """Why it never started; empty when it did."""


class Process:
    """One run of a container, under its shim."""

    def __init__(self, shim: subprocess.Popen[bytes], reports: asyncio.StreamReader, pod_uid: str) -> None:
        self._shim = shim
        self._pod_uid = pod_uid
        self._reports = reports
        self.log_error = ""
        """Why its log has a hole, once that was so."""

    @classmethod
    async def start(
        cls, launch: Launch, folder: Path, run: int, limits: LogLimits = DEFAULT_LIMITS
    ) -> Process:
        """Start a container's process; its log and the description of it lie in `folder`.

        Of earlier runs only the log of the last one is kept.

        Raises:
            OSError: The folder cannot be written, or no process can be made.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_logs_before(folder, run - 1)
        described = launch.write(folder)
        kept = (str(limits.max_bytes), str(limits.max_files))
        shim = subprocess.Popen(
            [sys.executable, "-I", "-S", _SHIM, str(described), str(log_of(folder, run)), *kept],
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
        """Wait until it runs; return why it does not, else nothing."""
        words = json.loads(await self._reports.readline() or '{"error": "its shim was killed"}')
        return str(words.get("error", ""))

    async def ended(self) -> Ended:
        """Wait until it and everything it started have ended."""
        found: Ended | None = None
        async for line in self._reports:
            words = json.loads(line)
            if "log_error" in words:
                self.log_error = words["log_error"]
            else:
                found = Ended(words["exit_code"], words["signal"], words["oom"])
        if found is None:
            await asyncio.to_thread(end_marked, POD_UID, self._pod_uid)
        if self._shim.stdin is not None:
            self._shim.stdin.close()
        await asyncio.to_thread(self._shim.wait)
        return found or Ended(137, signal=9)

    def ask_to_end(self) -> None:
        """Send SIGTERM to everything it started."""
        self._tell(b"T")

    def end(self) -> None:
        """Kill everything it started."""
        self._tell(b"K")

    def _tell(self, word: bytes) -> None:
        if self._shim.stdin is not None and not self._shim.stdin.closed:
            try:
                os.write(self._shim.stdin.fileno(), word)
            except OSError:
                return


def end_marked(variable: str, value: str) -> None:
    """Kill all processes that carry a mark in their environment, and all below them."""
    deadline = time.monotonic() + _PATIENCE_S
    while value and (found := marked(variable, value)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def marked(variable: str, value: str) -> set[int]:
    """Return the processes with a variable of that value in their environment, and what is below them."""
    mark = f"{variable}={value}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError, ValueError):
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state in (b"Z", b"X"):
                    continue
                parents[int(entry.name)] = int(parent)
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return found
