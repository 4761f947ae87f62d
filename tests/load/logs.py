"""A pod of the large cluster, and its log: growing by so many lines a second, or long and whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from k8s.logs import write_stamp
from tests.load.cluster import LoadCluster
from tests.load.objects import pod_json

LINES_A_SECOND = 200
_FIRST, _TURN_S = 200, 0.05


def add_routes(app: web.Application, cluster: LoadCluster, lines_a_second: int, whole_lines: int) -> None:
    """Serve single pods and their logs: of `whole_lines` lines, or if that is 0 growing while followed."""
    place = "/api/v1/namespaces/{namespace}/pods/{pod}"
    app.router.add_get(place, _answer_with_pods(cluster))
    growing = partial(write_log, lines_a_second=lines_a_second)
    app.router.add_get(f"{place}/log", WholeLog(whole_lines).write if whole_lines else growing)


class WholeLog:
    """A long log of eight ranks, encoded before it is asked for so that its reader is what is measured."""

    def __init__(self, lines: int) -> None:
        first_s = int(datetime(2026, 5, 14, 10, tzinfo=UTC).timestamp())
        stamps = [f"{write_stamp((first_s + each) * 10**9)[:20]}" for each in range(lines // 1000 + 1)]
        texts = [f"[rank{n % 8}]: step {n} loss 0.{n % 10**6:06d} lr 0.001\n" for n in range(lines)]
        stamped = (
            f"{stamps[n // 1000]}{n % 1000:03d}{n % 10**6:06d}Z {text}" for n, text in enumerate(texts)
        )
        self._blocks = {"": _blocks("".join(texts).encode()), "true": _blocks("".join(stamped).encode())}

    async def write(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        assert request.transport is not None
        for block in self._blocks[request.query.get("timestamps", "")]:
            request.transport.write(block)
            await request.protocol._drain_helper()
        return response


def _blocks(body: bytes) -> list[bytes]:
    """Return a body encoded in chunks of 2 KiB, as a kubelet's come through an API server."""
    chunks = [body[start : start + 2048] for start in range(0, len(body), 2048)]
    encoded = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    return [b"".join(encoded[start : start + 32]) for start in range(0, len(encoded), 32)]


def line(number: int) -> bytes:
    stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    loss, speed = 2.5 / (1 + number / 500), 40_000 + number * 37 % 5000
    words = f"epoch {number // 1000} step {number:,} loss={loss:.4f} lr=3.0e-04 grad_norm={loss / 3:.3f} "
    return f"{stamp} {words}{speed:,} tokens/s data=0.{number % 10}ms mem=71.{number % 7}GiB\n".encode()


async def write_log(request: web.Request, lines_a_second: int) -> web.StreamResponse:
    """Answer with a screenful of lines; go on in real time for who follows."""
    response = web.StreamResponse()
    loop = asyncio.get_running_loop()
    began_s, written = loop.time(), _FIRST
    with suppress(ConnectionResetError):
        await response.prepare(request)
        await response.write(b"".join(line(number) for number in range(_FIRST)))
        while request.query.get("follow") == "true":
            await asyncio.sleep(_TURN_S)
            due = _FIRST + int((loop.time() - began_s) * lines_a_second)
            if due > written:
                await response.write(b"".join(line(number) for number in range(written, due)))
            written = due
    return response


def _answer_with_pods(cluster: LoadCluster) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def pod(request: web.Request) -> web.Response:
        wanted = (request.match_info["namespace"], request.match_info["pod"])
        for each in cluster.pods:
            if (each.job.namespace, each.name) == wanted:
                return web.Response(body=pod_json(each), content_type="application/json")
        return web.json_response({"kind": "Status", "status": "Failure", "code": 404}, status=404)

    return pod
