"""The console over a slow link that loses packets: round trips until rows, and keys meanwhile."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench.figures import Figure, console_env
from tests.load.running import LoadServer
from tests.load.screen import PAINTED_S, TimedTerminal, press_down, under_cursor

NODES, JOBS, PRESSES, ROUNDS = 20, 400, 100, 3
ONE_WAY_S, LOSS = 0.15, 0.05
# A lost segment holds up what follows until it is sent again: Linux waits a round trip and 200 ms at least.
RETRANSMIT_S = 2 * ONE_WAY_S + 0.2
SEGMENT_BYTES = 1448


async def _serve(port: int, one_way_s: float, loss: float, opened: Future[int], ended: Future[None]) -> None:
    """Forward connections to `port`; their bytes arrive in order, late, and some of them later still."""
    lottery, loop = random.Random(7), asyncio.get_running_loop()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError, OSError):  # or Python 3.11 logs it at the end
            await asyncio.sleep(2 * one_way_s)  # the handshake of TCP
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(carry(reader, back), carry(there, writer), return_exceptions=True)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        due_s = 0.0
        while segment := await reader.read(SEGMENT_BYTES):
            late_s = RETRANSMIT_S if lottery.random() < loss else 0.0
            due_s = max(due_s + 1e-6, loop.time() + one_way_s + late_s)
            loop.call_at(due_s, writer.write, segment)
        loop.call_at(max(due_s + 1e-6, loop.time()), writer.close)

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    opened.set_result(server.sockets[0].getsockname()[1])
    await asyncio.wrap_future(ended)
    server.close()


@contextmanager
def _slow(server: LoadServer, one_way_s: float, loss: float) -> Iterator[Path]:
    """Yield a kubeconfig that leads to the server over a slow link."""
    port, opened, ended = str(urlsplit(server.host).port), Future[int](), Future[None]()
    serving = _serve(int(port), one_way_s, loss, opened, ended)
    thread = threading.Thread(target=asyncio.run, args=[serving])
    thread.start()
    path = server.kubeconfig.with_name(f"over-{opened.result()}")
    path.write_text(server.kubeconfig.read_text().replace(port, str(opened.result())))
    try:
        yield path
    finally:
        ended.set_result(None)
        thread.join()


def link(is_smoke: bool) -> Iterator[Figure]:
    """Open the console twice over each link: the first time it stores which kinds the server has."""
    one_way_s, presses, rounds = (0.01, 5, 1) if is_smoke else (ONE_WAY_S, PRESSES, ROUNDS)
    links = ((0.0, 0.0), (one_way_s, 0.0), (one_way_s, LOSS))
    with LoadServer(NODES, JOBS, log_lines=0) as server:
        runs = [[_starts(server, *each, presses) for each in links] for _ in range(rounds)]
    near, far, lossy = (
        [min(each) for each in zip(*starts, strict=True)] for starts in zip(*runs, strict=True)
    )
    for name, (first_s, again_s, _) in (("300 ms", far), ("300 ms and 5 % loss", lossy)):
        # With what the console itself computes: the difference to a start without the link is mostly noise.
        trips, on_first = again_s / (2 * one_way_s), first_s / (2 * one_way_s)
        yield Figure(f"round trips to rows over {name}", trips, promised="<= 6", unit="")
        yield Figure("  on the first start with this server", on_first, promised="<= 6", unit="")
    for name, place in (("median", 0.5), ("p99", 0.99)):
        ours, at_once = (each[2][int(presses * place)] for each in (lossy, near))
        yield Figure(f"  key-press to paint, {name}", ours, "without a slow link", at_once, "1x")


def _starts(server: LoadServer, one_way_s: float, loss: float, presses: int) -> tuple[Any, ...]:
    """Return the seconds until rows on a first and a second start, and from keys to paint in the latter."""
    with _slow(server, one_way_s, loss) as kubeconfig, console_env(KUBECONFIG=str(kubeconfig)) as env:
        until_rows_s = []
        for times in (0, presses):
            began_s, command = time.monotonic(), [sys.executable, "-P", "-m", "tui", "-A"]
            with TimedTerminal(command, columns=120, lines=40, env=env) as terminal:
                terminal.wait_for(under_cursor, PAINTED_S)
                until_rows_s.append(time.monotonic() - began_s)
                terminal.wait_for(lambda screen: " live\n" in screen, PAINTED_S)
                took = sorted(press_down(terminal) for _ in range(times))
    return *until_rows_s, took
