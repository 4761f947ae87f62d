"""Containers that run under a shim without a node agent, and exec sessions in them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from k8s.sandbox.node.processes import Process
from k8s.sandbox.paths import Launch
from tests.k8s.sandbox.calls import Api, Object


@asynccontextmanager
async def waiting_container(folder: Path, cwd: Path, **env: str) -> AsyncIterator[None]:
    process = await Process.start(Launch(("/bin/sleep", "1000"), env, str(cwd), ()), folder, 0)
    assert not await process.started()
    try:
        yield
    finally:
        process.end()
        await process.ended()


class Exec:
    """One exec session: what came on each channel."""

    def __init__(self) -> None:
        self.out: dict[int, bytes] = {1: b"", 2: b"", 3: b""}

    @property
    def status(self) -> Object:
        found: Object = json.loads(self.out[3])
        return found


async def run_exec(
    api: Api,
    name: str,
    command: list[str],
    *,
    stdin: bytes = b"",
    tty: bool = False,
    closes: bool = False,
    resize: bytes = b"",
    protocol: str = "v4.channel.k8s.io",
    until: Callable[[Exec], bool] = lambda _: False,
    ready: bytes = b"",
) -> Exec:
    """Run a command as a client does; `until` leaves early, `stdin` waits until `ready` was printed."""
    query = [("command", word) for word in command] + [("stdout", "true"), ("container", "a")]
    query += [("stdin", "true")] if stdin or closes else []
    query += [("tty", "true")] if tty else [("stderr", "true")]
    session = Exec()
    async with api.session.ws_connect(
        api.url + api.path("pods", name, "exec"),
        params=query,
        protocols=(protocol,),
        headers={"Authorization": f"Bearer {api.token}"},
    ) as socket:
        assert socket.protocol == protocol
        if resize:
            await socket.send_bytes(b"\x04" + resize)
        if stdin and not ready:
            await socket.send_bytes(b"\x00" + stdin)
        if closes:
            await socket.send_bytes(b"\xff\x00")
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                session.out[message.data[0]] += message.data[1:]
            if ready and ready in session.out[1]:
                await socket.send_bytes(b"\x00" + stdin)
                ready = b""
            if until(session):
                break
    return session
