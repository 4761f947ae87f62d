"""A further command in a container, started by the container's shim, so that it ends with the container.

The shim listens on a socket in the container's folder. It takes `{"argv", "terminal"}` with the three
descriptors of the command's input, output and errors, says `{"pid"}` or `{"error"}`, and at last
`{"status"}`: its exit code, or below zero the signal. Whoever hangs up ends the command's session.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from k8s.sandbox.pod_folder import EXEC_SOCKET

KILLED = -9
ANSWER_S = 10.0
"""How long a shim may take to start a command."""


class ContainerCommand:
    """One command and what it reads and writes."""

    def __init__(self, reports: asyncio.StreamReader, shim: asyncio.StreamWriter) -> None:
        self._shim = shim
        self._ended = asyncio.create_task(_status(reports))
        self.stdin: asyncio.StreamWriter | None = None
        """Its input, if that was asked for."""
        self.stdout: asyncio.StreamReader | None = None
        """Its output, if that was asked for."""
        self.stderr: asyncio.StreamReader | None = None
        """Its errors, if they were asked for."""

    @classmethod
    async def start(
        cls, folder: Path, argv: Sequence[str], *, stdin: bool, stdout: bool, stderr: bool
    ) -> Self:
        """Start a command with pipes for those of its streams that are wanted.

        Raises:
            OSError: It cannot be started, or the container has ended.
        """
        ours: list[int | None] = []
        theirs: list[int] = []
        try:
            for number, is_wanted in enumerate((stdin, stdout, stderr)):
                if is_wanted:
                    ends = os.pipe()
                    theirs.append(ends[number != 0])
                    ours.append(ends[number == 0])
                else:
                    theirs.append(os.open(os.devnull, os.O_RDWR))
                    ours.append(None)
            found = cls(*await _ask_shim(folder, argv, theirs, is_terminal=False))
        except BaseException:
            for descriptor in filter(None, ours):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        found.stdin, found.stdout, found.stderr = (
            await _writer(ours[0]),
            await _reader(ours[1]),
            await _reader(ours[2]),
        )
        return found

    @classmethod
    async def start_on_terminal(cls, folder: Path, argv: Sequence[str], terminal: int) -> Self:
        """Start a command whose terminal is the one given.

        Raises:
            OSError: It cannot be started, or the container has ended.
        """
        return cls(*await _ask_shim(folder, argv, [terminal] * 3, is_terminal=True))

    async def wait(self) -> int:
        """Wait for its end; return its exit code, or below zero the signal that ended it."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """End it and what it started, unless that has a session of its own."""
        self._shim.close()


async def _ask_shim(
    folder: Path, argv: Sequence[str], descriptors: Sequence[int], *, is_terminal: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    request = json.dumps({"argv": list(argv), "terminal": is_terminal}).encode() + b"\n"
    connection = await asyncio.to_thread(_send, folder, request, descriptors)
    reports, shim = await asyncio.open_unix_connection(sock=connection)
    try:
        async with asyncio.timeout(ANSWER_S):
            words = json.loads(await reports.readline() or b'{"error": "the container has ended"}')
    except BaseException:
        shim.close()
        raise
    if why := words.get("error"):
        shim.close()
        raise OSError(None, why)
    return reports, shim


def _send(folder: Path, request: bytes, descriptors: Sequence[int]) -> socket.socket:
    """Send a request to a container's shim, by a path that is short enough for a socket's address."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(ANSWER_S)
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{at}/{EXEC_SOCKET}")
        sent = socket.send_fds(connection, [request], list(descriptors))
        connection.sendall(request[sent:])
    except OSError:
        connection.close()
        raise
    finally:
        os.close(at)
    connection.setblocking(False)
    return connection


async def _status(reports: asyncio.StreamReader) -> int:
    try:
        words = json.loads(await reports.readline() or b"{}")
    except (OSError, ValueError):
        words = {}
    return int(words.get("status", KILLED))


async def _reader(descriptor: int | None) -> asyncio.StreamReader | None:
    if descriptor is None:
        return None
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


async def _writer(descriptor: int | None) -> asyncio.StreamWriter | None:
    if descriptor is None:
        return None
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(descriptor, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop)
