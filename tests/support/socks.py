"""A SOCKS5 proxy on loopback that leads every name to one server. Source: RFC 1928 and 1929."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

REFUSED = 2  # "connection not allowed by ruleset"
_NO_LOGIN, _LOGIN = 0, 2


class SocksProxy:
    """Connects to `target`, and records the hosts and ports that it was requested to connect to."""

    def __init__(self, target: str, *, login: str = "", refusal: int = 0) -> None:
        """`target` is a URL; `login` is the required "user:password"; `refusal` is the reply to everyone."""
        self._host, _, port = target.rpartition("/")[2].rpartition(":")
        self._port = int(port)
        self._login = login
        self._refusal = refusal
        self._tasks: list[asyncio.Task[None] | None] = []
        self.requested: list[tuple[str, int]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.current_task())
        writers = [writer]
        try:
            if await self._accepts(reader, writer):
                upstream, downstream = await asyncio.open_connection(self._host, self._port)
                writers.append(downstream)
                await asyncio.gather(pump(reader, downstream), pump(upstream, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # either side has left, or the test is over
        finally:
            for each in writers:
                each.transport.abort()

    async def close(self) -> None:
        tasks = [*filter(None, self._tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepts(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        methods = await reader.readexactly((await reader.readexactly(2))[1])
        method = _LOGIN if self._login else _NO_LOGIN
        writer.write(bytes([5, method if method in methods else 0xFF]))
        if method not in methods:
            return False
        if self._login:
            await reader.readexactly(1)
            words = [await reader.readexactly((await reader.readexactly(1))[0]) for _ in range(2)]
            is_known = b":".join(words).decode() == self._login
            writer.write(bytes([1, not is_known]))
            if not is_known:
                return False
        *_, kind = await reader.readexactly(4)
        # 3 is a name; any other kind is an address that somebody else has resolved.
        host = await reader.readexactly(
            (await reader.readexactly(1))[0] if kind == 3 else 4 if kind == 1 else 16
        )
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.requested.append((host.decode() if kind == 3 else host.hex(), port))
        writer.write(bytes([5, self._refusal, 0, 1, 0, 0, 0, 0, 0, 0]))
        return not self._refusal


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def serving(proxy: SocksProxy) -> AsyncIterator[str]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname())
        await proxy.close()
