"""`pods/NAME/exec`: a command in a container, over a websocket of numbered channels.

Channels: 0 stdin, 1 stdout, 2 stderr, 3 the final status, 4 the terminal's size; in protocol v5 also 255,
"this channel is closed". Source: "websocket" in k8s.io/apimachinery/pkg/util/remotecommand.

The container's shim starts the command, so that it ends with the container. The shim listens on a socket in
the container's folder. It receives `{"argv", "terminal"}` and the three descriptors of stdin, stdout and
stderr, and answers `{"pid"}` or `{"error"}`, and at the end `{"status"}`: the exit code, or the negated
signal number. Closing the connection ends the command's session.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import shutil
import socket
import struct
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
from aiohttp import WSMsgType, web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.pod_log import container_of, current_status, status_of
from k8s.sandbox.api.store import Record, Store
from k8s.sandbox.paths import EXEC_SOCKET, Launch, rewrite

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ENDED, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHUNK_BYTES = 32 * 1024
# Time to wait for output that children of an ended command hold open.
DRAIN_S = 2.0
PING_S = 15.0
KILLED = -9
# Time for the shim to start a command.
ANSWER_S = 10.0


async def run_exec(
    request: web.Request, store: Store, record: Record, pods_root: Path, stopping: asyncio.Event
) -> web.StreamResponse:
    """Run a command until it ends, its client leaves or its container ends.

    Raises:
        ApiError: The container does not run, or the client supports none of our protocols.
    """
    pod = record.obj
    name = pod["metadata"]["name"]
    container = container_of(pod, request.query.get("container", ""))
    command = request.query.getall("command", [])
    if not command:
        raise api_errors.bad_request("you must specify at least 1 command for the container")
    if "running" not in (status_of(pod, container).get("state") or {}):
        raise ApiError(
            500, "InternalError", f'container not found ("{container}"): it is not running in pod {name}'
        )
    websocket = web.WebSocketResponse(protocols=PROTOCOLS, heartbeat=PING_S, max_msg_size=0)
    if request.method != "GET" or not websocket.can_prepare(request).ok:
        raise api_errors.bad_request("exec is served over websockets only: upgrade with GET")
    spoken = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    if not set(PROTOCOLS) & set(spoken):
        raise api_errors.bad_request(f"exec supports {' and '.join(PROTOCOLS)}")
    try:
        folder = pods_root / pod["metadata"]["uid"] / container
        launch = Launch.read(folder)
    except (OSError, ValueError, TypeError) as error:
        raise ApiError(500, "InternalError", f"cannot enter container {container}: {error}") from error
    await websocket.prepare(request)
    wants = {each: request.query.get(each) in ("true", "1") for each in ("stdin", "stdout", "stderr", "tty")}
    try:
        session = await PodCommand.start(websocket, folder, command, launch, wants)
    except OSError as error:
        why = f"error executing command in container: {command[0]}: {error.strerror or error}"
        await _report_end(websocket, ApiError(500, "InternalError", f"Internal error occurred: {why}").status)
    else:
        watcher = asyncio.create_task(_until_pod_ends(store, record, container, stopping))
        try:
            await _report_end(websocket, await session.run(watcher))
        finally:
            session.kill()
            watcher.cancel()
    await websocket.close()
    return websocket


class PodCommand:
    """One running command, its standard streams and its websocket."""

    def __init__(
        self, websocket: web.WebSocketResponse, reports: asyncio.StreamReader, shim: asyncio.StreamWriter
    ) -> None:
        self._websocket = websocket
        self._shim = shim
        self._exit = asyncio.create_task(_status(reports))
        self._terminal: int | None = None
        self._stdin: asyncio.StreamWriter | None = None
        self._outputs: dict[int, asyncio.StreamReader | None] = {}

    @classmethod
    async def start(
        cls,
        websocket: web.WebSocketResponse,
        folder: Path,
        command: list[str],
        launch: Launch,
        wants: Mapping[str, bool],
    ) -> Self:
        """Start a command in the container of this folder, on a terminal or with pipes.

        Raises:
            OSError: The command cannot be started, or the container has ended.
        """
        command = [rewrite(word, launch.mounts) for word in command]
        program = shutil.which(command[0], path=launch.env.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(2, "executable file not found in $PATH")
        ours: list[int | None] = []
        theirs: list[int] = []
        try:
            if wants["tty"]:
                terminal, inside = pty.openpty()
                ours, theirs = [terminal], [inside]
                os.set_blocking(terminal, False)
            else:
                for number, name in enumerate(("stdin", "stdout", "stderr")):
                    pipe = os.pipe() if wants[name] else None
                    ours.append(pipe[number == 0] if pipe else None)
                    theirs.append(pipe[number != 0] if pipe else os.open(os.devnull, os.O_RDWR))
            given = theirs * 3 if wants["tty"] else theirs
            argv = [program, *command[1:]]
            session = cls(websocket, *await _request_shim(folder, argv, given, is_terminal=wants["tty"]))
        except BaseException:
            for descriptor in filter(None, ours):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        if wants["tty"]:
            session._terminal = ours[0]
        else:
            session._stdin = await _writer(ours[0])
            session._outputs = {STDOUT: await _reader(ours[1]), STDERR: await _reader(ours[2])}
        return session

    async def run(self, pod_ends: asyncio.Task[None]) -> Mapping[str, Any]:
        """Carry bytes both ways until the command ends; return its final `Status`.

        The command is killed if the client leaves or the container ends, its children in any case.
        """
        reader = asyncio.create_task(self._carry_in())
        outputs = self._outputs.items()
        carriers = [asyncio.create_task(self._carry_out(channel, pipe)) for channel, pipe in outputs if pipe]
        if self._terminal is not None:
            carriers.append(asyncio.create_task(self._carry_terminal(self._terminal)))
        ended = asyncio.create_task(self._until_ended(carriers))
        try:
            await asyncio.wait((ended, reader, pod_ends), return_when=asyncio.FIRST_COMPLETED)
            self.kill()
            await ended
        finally:
            tasks = (ended, reader, *carriers)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._terminal is not None:
                os.close(self._terminal)
        return _end_status(await asyncio.shield(self._exit))

    def kill(self) -> None:
        """Kill the command and its children, except those in a session of their own."""
        self._shim.close()

    async def _until_ended(self, carriers: list[asyncio.Task[None]]) -> None:
        await asyncio.shield(self._exit)
        if carriers:
            await asyncio.wait(carriers, timeout=DRAIN_S)

    async def _carry_in(self) -> None:
        stdin = self._stdin
        async for message in self._websocket:
            # The official Python client sends text frames.
            frame = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            if not frame or not isinstance(frame, bytes):
                continue
            channel, payload = frame[0], frame[1:]
            if channel == RESIZE and self._terminal is not None:
                _resize(self._terminal, payload)
            elif channel == STDIN and self._terminal is not None:
                await _write_terminal(self._terminal, payload)
            elif channel == STDIN and stdin is not None and not stdin.is_closing():
                with suppress(BrokenPipeError, ConnectionResetError):
                    stdin.write(payload)
                    await stdin.drain()
            elif channel == CLOSE and payload[:1] == bytes([STDIN]) and stdin is not None:
                stdin.close()

    async def _carry_out(self, channel: int, pipe: asyncio.StreamReader) -> None:
        while chunk := await pipe.read(CHUNK_BYTES):
            await self._websocket.send_bytes(bytes([channel]) + chunk)

    async def _carry_terminal(self, terminal: int) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(terminal, readable.set)
        try:
            while True:
                await readable.wait()
                readable.clear()
                try:
                    chunk = os.read(terminal, CHUNK_BYTES)
                except BlockingIOError:
                    continue
                except OSError:
                    # Linux reports EIO once the other side is closed.
                    return
                if not chunk:
                    return
                await self._websocket.send_bytes(bytes([STDOUT]) + chunk)
        finally:
            loop.remove_reader(terminal)


async def _until_pod_ends(store: Store, original: Record, container: str, stopping: asyncio.Event) -> None:
    with store.listening("pods") as changed:
        while not stopping.is_set():
            if "running" not in (current_status(store, original, container).get("state") or {}):
                return
            changed.clear()
            await changed.wait()


async def _report_end(websocket: web.WebSocketResponse, status: Mapping[str, Any]) -> None:
    with suppress(ConnectionError):
        await websocket.send_bytes(bytes([ENDED]) + msgspec.json.encode(status))


def _end_status(returncode: int) -> Mapping[str, Any]:
    if returncode == 0:
        return {"metadata": {}, "status": "Success"}
    # A signal counts as 128 plus its number, as in a shell.
    code = returncode if returncode > 0 else 128 - returncode
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _resize(terminal: int, payload: bytes) -> None:
    with suppress(msgspec.DecodeError, KeyError, TypeError, struct.error, OSError):
        size = msgspec.json.decode(payload)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))


async def _write_terminal(terminal: int, payload: bytes) -> None:
    while payload:
        try:
            payload = payload[os.write(terminal, payload) :]
        except BlockingIOError:
            await asyncio.sleep(0.01)
        except OSError:
            return


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
