"""A pod of the large cluster, and a log that never ends: lines of a training, so many a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from tests.load.cluster import LoadCluster
from tests.load.pods import pod_json

LINES_A_SECOND = 200
_FIRST, _TURN_S = 200, 0.05


def add_routes(app: web.Application, cluster: LoadCluster, lines_a_second: int) -> None:
    """Serve single pods and their logs, in which so many lines come while they are followed."""
    place = "/api/v1/namespaces/{namespace}/pods/{pod}"
    app.router.add_get(place, _answer_with_pods(cluster))
    app.router.add_get(f"{place}/log", partial(write_log, lines_a_second=lines_a_second))


def line(number: int) -> bytes:
    """Return one line, stamped as the API stamps it."""
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
