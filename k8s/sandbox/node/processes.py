"""Client of the shim that runs each container."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from k8s.sandbox.node.process_tree import end_marked
from k8s.sandbox.pod_folder import POD_UID, Launch, LogLimits, log_of, remove_logs_before

DEFAULT_LIMITS = LogLimits()
_SHIM = str(Path(__file__).with_name("shim.py"))


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
