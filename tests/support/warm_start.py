"""Processes of the command line, forked from one that has imported it already.

Most of the time of a short command is spent on imports. A fork has done them, and ends as any interpreter
does: what is flushed at its exit, and the status after a signal, are those of a process of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import ROOT

# Imported before the first fork: what most commands need
MODULES = (
    *("aiohttp", "yaml", "k8s.client.client", "k8s.cluster.joiner", "k8s.reasons.gather", "k8s.kinds"),
    *("k8s.jobs.create", "k8s.logs", "trainer.tfevents", "tui.commands", "tui.commands.support.parser"),
)


class WarmStart:
    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, words: Sequence[str], folder: Path, streams: Sequence[int]) -> None:
        """Start a command with these file descriptors as its stdin, stdout and stderr."""
        if self._server is None:
            number = self._theirs.fileno()
            module = ("-P", "-W", "error", "-m", __name__, str(number))
            # Pipes at first: Python would believe of streams that could be sought that they still can.
            self._server = subprocess.Popen(
                [sys.executable, *module],
                cwd=ROOT,
                pass_fds=(number,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._theirs.close()
        request = {"words": list(words), "folder": str(folder), "env": dict(os.environ)}
        socket.send_fds(self._socket, [json.dumps(request).encode()], streams)

    async def end(self) -> int:
        """Wait for the end of the command, and return its exit status; negative for a signal."""
        return int(await asyncio.to_thread(self._socket.recv, 100))

    def close(self) -> None:
        self._socket.close()
        self._theirs.close()
        if self._server is not None:
            self._server.communicate()


def main() -> None:
    """Fork for every request; each fork returns from here with its arguments and streams in place."""
    for module in MODULES:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            message, streams, _, _ = socket.recv_fds(requests, 2**20, 3)
            if not message:
                os._exit(0)
            if not os.fork():
                break
            for each in streams:
                os.close(each)
            _, status = os.wait()
            requests.send(str(os.waitstatus_to_exitcode(status)).encode())
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    request: Any = json.loads(message)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["gpuconsole", *request["words"]]
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(encoding="utf-8", line_buffering=stream is sys.stderr or stream.isatty())


if __name__ == "__main__":
    main()
    from tui.__main__ import main as run_command

    sys.exit(run_command())
