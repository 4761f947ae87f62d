"""A command in a running container, started by the container's shim so that it ends with the container.

The shim listens on a socket in the container's folder. It receives `{"argv", "terminal"}` and the three
descriptors of stdin, stdout and stderr, and answers `{"pid"}` or `{"error"}`, and at the end `{"status"}`:
the exit code, or the negated signal number. Closing the connection ends the command's session.
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
# Time for the shim to start a command.
ANSWER_S = 10.0


class ContainerCommand:
    """One command and its standard streams."""

    def __init__(self, reports: asyncio.StreamReader, shim: asyncio.StreamWriter) -> None:
        self._shim = shim
        self._ended = asyncio.create_task(_status(reports))
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    @classmethod
    async def start(
        cls, folder: Path, argv: Sequence[str], *, stdin: bool, stdout: bool, stderr: bool
    ) -> Self:
        """Start a command with pipes for the requested streams.

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
            command = cls(*await _request_shim(folder, argv, theirs, is_terminal=False))
        except BaseException:
            for descriptor in filter(None, ours):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        command.stdin, command.stdout, command.stderr = (
            await _writer(ours[0]),
            await _reader(ours[1]),
            await _reader(ours[2]),
        )
        return command

    @classmethod
    async def start_on_terminal(cls, folder: Path, argv: Sequence[str], terminal: int) -> Self:
        """Start a command on a terminal, given as a descriptor.

        Raises:
            OSError: It cannot be started, or the container has ended.
        """
        return cls(*await _request_shim(folder, argv, [terminal] * 3, is_terminal=True))

    async def wait(self) -> int:
        """Wait for the command to end; return its exit code, or the negated signal number."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Kill the command and its children, except those in a session of their own."""
        self._shim.close()


async def _request_shim(
    folder: Path, argv: Sequence[str], descriptors: Sequence[int], *, is_terminal: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    request = json.dumps({"argv": list(argv), "terminal": is_terminal}).encode() + b"\n"
    connection = await asyncio.to_thread(_send, folder, request, descriptors)
    reports, shim = await asyncio.open_unix_connection(sock=connection)
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = json.loads(await reports.readline() or b'{"error": "the container has ended"}')
    except BaseException:
        shim.close()
        raise
    if why := answer.get("error"):
        shim.close()
        raise OSError(None, why)
    return reports, shim


def _send(folder: Path, request: bytes, descriptors: Sequence[int]) -> socket.socket:
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
        answer = json.loads(await reports.readline() or b"{}")
    except (OSError, ValueError):
        answer = {}
    return int(answer.get("status", KILLED))


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
