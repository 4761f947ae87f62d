"""`pods/NAME/exec`: a command in a container, over a websocket of numbered channels.

Channels: 0 stdin, 1 stdout, 2 stderr, 3 the final status, 4 the terminal's size; in protocol v5 also 255,
"this channel is closed".
Source: "websocket" in k8s.io/apimachinery/pkg/util/remotecommand.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import shutil
import struct
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.store import Record, Store
from k8s.sandbox.api.streams.container_command import ContainerCommand
from k8s.sandbox.api.streams.pod_log import container_of, status_of
from k8s.sandbox.pod_folder import Launch, rewrite

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ENDED, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHUNK_BYTES = 32 * 1024
# Time to wait for output that children of an ended command hold open.
DRAIN_S = 2.0
PING_S = 15.0


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
    socket = web.WebSocketResponse(protocols=PROTOCOLS, heartbeat=PING_S, max_msg_size=0)
    if request.method != "GET" or not socket.can_prepare(request).ok:
        raise api_errors.bad_request("exec is served over websockets only: upgrade with GET")
    spoken = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    if not set(PROTOCOLS) & set(spoken):
        raise api_errors.bad_request(f"exec supports {' and '.join(PROTOCOLS)}")
    try:
        folder = pods_root / pod["metadata"]["uid"] / container
        launch = Launch.read(folder)
    except (OSError, ValueError, TypeError) as error:
        raise ApiError(500, "InternalError", f"cannot enter container {container}: {error}") from error
    await socket.prepare(request)
    wants = {each: request.query.get(each) in ("true", "1") for each in ("stdin", "stdout", "stderr", "tty")}
    try:
        session = await Session.start(socket, folder, command, launch, wants)
    except OSError as error:
        why = f"error executing command in container: {command[0]}: {error.strerror or error}"
        await _report_end(socket, ApiError(500, "InternalError", f"Internal error occurred: {why}").status)
    else:
        watcher = asyncio.create_task(_until_pod_ends(store, record, container, stopping))
        try:
            await _report_end(socket, await session.run(watcher))
        finally:
            session.kill()
            watcher.cancel()
    await socket.close()
    return socket


class Session:
    """One running command and its websocket."""

    def __init__(
        self, socket: web.WebSocketResponse, command: ContainerCommand, terminal: int | None
    ) -> None:
        self._socket = socket
        self._command = command
        self._terminal = terminal

    @classmethod
    async def start(
        cls,
        socket: web.WebSocketResponse,
        folder: Path,
        command: list[str],
        launch: Launch,
        wants: Mapping[str, bool],
    ) -> Session:
        """Start a command in the container of this folder.

        Raises:
            OSError: The command cannot be started.
        """
        command = [rewrite(word, launch.mounts) for word in command]
        program = shutil.which(command[0], path=launch.env.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(2, "executable file not found in $PATH")
        argv = [program, *command[1:]]
        if not wants["tty"]:
            streams = {name: wants[name] for name in ("stdin", "stdout", "stderr")}
            return cls(socket, await ContainerCommand.start(folder, argv, **streams), None)
        terminal, inside = pty.openpty()
        try:
            started = await ContainerCommand.start_on_terminal(folder, argv, inside)
        except BaseException:
            os.close(terminal)
            raise
        finally:
            os.close(inside)
        os.set_blocking(terminal, False)
        return cls(socket, started, terminal)

    async def run(self, pod_ends: asyncio.Task[None]) -> Mapping[str, Any]:
        """Carry bytes both ways until the command ends; return its final `Status`.

        The command is killed if the client leaves or the container ends, its children in any case.
        """
        reader = asyncio.create_task(self._carry_in())
        command = self._command
        if self._terminal is not None:
            carriers = [asyncio.create_task(self._carry_terminal(self._terminal))]
        else:
            outputs = ((STDOUT, command.stdout), (STDERR, command.stderr))
            carriers = [asyncio.create_task(self._carry_out(at, pipe)) for at, pipe in outputs if pipe]
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
        return _end_status(await command.wait())

    def kill(self) -> None:
        """Kill the command and its children."""
        self._command.kill()

    async def _until_ended(self, carriers: list[asyncio.Task[None]]) -> None:
        await self._command.wait()
        if carriers:
            await asyncio.wait(carriers, timeout=DRAIN_S)

    async def _carry_in(self) -> None:
        stdin = self._command.stdin
        async for message in self._socket:
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
            await self._socket.send_bytes(bytes([channel]) + chunk)

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
                await self._socket.send_bytes(bytes([STDOUT]) + chunk)
        finally:
            loop.remove_reader(terminal)


async def _until_pod_ends(store: Store, original: Record, container: str, stopping: asyncio.Event) -> None:
    with store.listening("pods") as changed:
        while not stopping.is_set():
            record = store.get("pods", original.namespace, original.name)
            if record is None or record.obj["metadata"]["uid"] != original.obj["metadata"]["uid"]:
                return
            if "running" not in (status_of(record.obj, container).get("state") or {}):
                return
            changed.clear()
            await changed.wait()


async def _report_end(socket: web.WebSocketResponse, status: Mapping[str, Any]) -> None:
    with suppress(ConnectionError):
        await socket.send_bytes(bytes([ENDED]) + msgspec.json.encode(status))


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
