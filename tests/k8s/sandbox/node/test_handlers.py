"""Handlers of probes and hooks: run as a kubelet does, in their time, with nothing left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from k8s.sandbox.node.handlers import MOST_OUTPUT_BYTES, readiness_of, run_handler, watch_readiness
from k8s.sandbox.pod_folder import Launch
from tests.k8s.sandbox.live.running import eventually, marked


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    env = {"PATH": os.environ["PATH"], "MARK": f"handler-{os.getpid()}"}
    return Launch((), env, str(tmp_path), (("/data", str(tmp_path)),))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("X-Who") == "probe":
            return web.Response(status=204)
        if request.path == "/slow":
            await asyncio.sleep(60)
        return web.Response(status=int(request.path.strip("/") or 200), headers={"Location": "/500"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def run(handler: Any, launch: Launch, timeout_s: float = 10.0, **container: Any) -> str:
    return await run_handler(handler, {"name": "c", **container}, launch, timeout_s)


def command(*words: str) -> Any:
    return {"exec": {"command": list(words)}}


async def test_a_command_runs_where_its_container_does(launch: Launch, tmp_path: Path) -> None:
    assert await run(command("sh", "-c", "test $MARK && echo x >/data/here && cat here"), launch) == ""
    assert (tmp_path / "here").read_text() == "x\n"
    assert (
        await run(command("python", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"), launch) == ""
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 3"], "out\nerr"),
        (["sh", "-c", "exit 3"], "exit status 3"),
        (["no-such-program"], "[Errno 2] No such file or directory: 'no-such-program'"),
    ],
)
async def test_a_failing_command_reports_its_output_or_exit_status(
    launch: Launch, words: list[str], why: str
) -> None:
    assert await run(command(*words), launch) == why


async def test_long_command_output_is_truncated(launch: Launch) -> None:
    why = await run(command("sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; exit 1"), launch)
    assert why == "x" * MOST_OUTPUT_BYTES


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(launch: Launch) -> None:
    why = await run(command("sh", "-c", "sleep 300 & sleep 300"), launch, 0.3)
    assert why == "timed out after 0.3s"
    eventually(lambda: not marked(launch.env["MARK"]))


@pytest.mark.parametrize(("path", "why"), [("/", ""), ("204", ""), ("/302", "")])
async def test_an_answer_below_400_is_good(launch: Launch, port: int, path: str, why: str) -> None:
    assert await run({"httpGet": {"port": port, "path": path}}, launch) == why


@pytest.mark.parametrize("code", [400, 404, 500])
async def test_an_http_status_of_400_or_above_fails_the_probe(launch: Launch, port: int, code: int) -> None:
    why = await run({"httpGet": {"port": str(port), "path": f"/{code}"}}, launch)
    assert why == f"HTTP probe failed with statuscode: {code}"


async def test_an_http_probe_sends_its_headers(launch: Launch, port: int) -> None:
    headers = [{"name": "X-Who", "value": "probe"}]
    assert await run({"httpGet": {"port": port, "path": "/500", "httpHeaders": headers}}, launch) == ""


async def test_a_slow_http_probe_times_out(launch: Launch, port: int) -> None:
    assert await run({"httpGet": {"port": port, "path": "/slow"}}, launch, 0.2) == "timed out after 0.2s"


async def test_a_port_may_be_named(launch: Launch, port: int) -> None:
    ports = [{"name": "other", "containerPort": 1}, {"name": "web", "containerPort": port}]
    for handler in ({"tcpSocket": {"port": "web"}}, {"httpGet": {"port": "web"}}):
        assert await run(handler, launch, ports=ports) == ""
        assert "no port 'web'" in await run(handler, launch)


@pytest.mark.parametrize("port", [0, 70_000, -1, None, {}, "1.5"])
async def test_an_invalid_probe_port_is_reported(launch: Launch, port: Any) -> None:
    assert "the container has no port" in await run({"tcpSocket": {"port": port}}, launch)


async def test_a_closed_port_is_reported(launch: Launch, unused_port: int) -> None:
    assert "Connect call failed" in await run({"tcpSocket": {"port": unused_port}}, launch)
    assert "Cannot connect" in await run({"httpGet": {"port": unused_port}}, launch)


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    found = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return found


async def test_a_sleep_hook_lasts_its_seconds_or_until_the_timeout(launch: Launch) -> None:
    assert await run({"sleep": {"seconds": 0}}, launch) == ""
    assert await run({"sleep": {"seconds": 300}}, launch, 0.05) == "timed out after 0.05s"


async def test_readiness_follows_the_thresholds(launch: Launch, tmp_path: Path) -> None:
    said: asyncio.Queue[tuple[int, object]] = asyncio.Queue()

    async def note(words: object) -> None:
        said.put_nowait((len((tmp_path / "asked").read_text().split()), words))

    script = "echo x >>asked; case $(wc -l <asked) in 1|4|5|6) exit 1;; esac"
    probe = {**command("sh", "-c", script), "successThreshold": 2, "failureThreshold": 3}
    probe["periodSeconds"] = 0.01
    watching = asyncio.create_task(watch_readiness(probe, {"name": "c"}, launch, note, note))
    told = [await said.get() for _ in range(5)]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert told == [(1, "exit status 1"), (3, True), (4, "exit status 1"), (6, False), (8, True)]


def test_only_handlers_that_are_run_make_a_container_wait() -> None:
    assert readiness_of({"readinessProbe": command("true")}) == command("true")
    assert readiness_of({"readinessProbe": {"grpc": {"port": 1}}}) is None
    assert readiness_of({}) is None
