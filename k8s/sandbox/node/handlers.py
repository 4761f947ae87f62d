"""Readiness probes and preStop hooks of running containers: `exec`, `httpGet`, `tcpSocket`, `sleep`.

Source: kubernetes `pkg/kubelet/prober` and `pkg/kubelet/lifecycle/handlers.go`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from k8s.sandbox.node.containers import LOOPBACK
from k8s.sandbox.node.programs import PROGRAMS
from k8s.sandbox.pod_folder import Launch, rewrite

Manifest = Mapping[str, Any]

MOST_OUTPUT_BYTES = 1024
PROBED = ("exec", "httpGet", "tcpSocket")


def readiness_of(container: Manifest) -> Manifest | None:
    """Return the readiness probe of a container; None if it has none that the sandbox can run."""
    probe = container.get("readinessProbe") or {}
    return probe if any(probe.get(name) for name in PROBED) else None


async def watch_readiness(
    probe: Manifest,
    container: Manifest,
    launch: Launch,
    on_change: Callable[[bool], Awaitable[None]],
    on_failure: Callable[[str], Awaitable[None]],
) -> None:
    """Run a readiness probe forever and report changes; a container starts out unready."""
    await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
    is_ready, last_why = False, ""
    succeeded = failed = 0
    while True:
        why = await run_handler(probe, container, launch, probe.get("timeoutSeconds") or 1)
        succeeded, failed = (0, failed + 1) if why else (succeeded + 1, 0)
        if why and why != last_why:
            await on_failure(why)
        last_why = why
        needed = (probe.get("failureThreshold") or 3) if why else (probe.get("successThreshold") or 1)
        if is_ready == bool(why) and max(succeeded, failed) >= needed:
            is_ready = not is_ready
            await on_change(is_ready)
        await asyncio.sleep(probe.get("periodSeconds") or 10)


async def run_handler(handler: Manifest, container: Manifest, launch: Launch, timeout_s: float) -> str:
    """Run a handler; return the error, or an empty string."""
    try:
        async with asyncio.timeout(timeout_s):
            if command := (handler.get("exec") or {}).get("command"):
                return await _run_command(command, launch)
            if request := handler.get("httpGet"):
                return await _get(request, container)
            if socket := handler.get("tcpSocket"):
                _, writer = await asyncio.open_connection(
                    socket.get("host") or LOOPBACK, _port(socket, container)
                )
                writer.close()
            if pause := handler.get("sleep"):
                await asyncio.sleep(pause.get("seconds") or 0)
    except TimeoutError:
        return f"timed out after {timeout_s:g}s"
    except (OSError, ValueError, aiohttp.ClientError) as error:
        return str(error) or type(error).__name__
    return ""


async def _run_command(command: list[str], launch: Launch) -> str:
    argv = [rewrite(str(word), launch.mounts) for word in command]
    argv[:1] = PROGRAMS.get(os.path.basename(argv[0]), (argv[0],))
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=dict(launch.env),
        cwd=launch.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = b""
    try:
        while chunk := await process.stdout.read(64 * 1024):
            output = (output + chunk)[:MOST_OUTPUT_BYTES]
        code = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    text = output.decode("utf-8", "replace").strip()
    return "" if code == 0 else text or f"exit status {code}"


async def _get(request: Manifest, container: Manifest) -> str:
    host, port = request.get("host") or LOOPBACK, _port(request, container)
    path = str(request.get("path") or "/")
    scheme = str(request.get("scheme") or "HTTP").lower()
    url = f"{scheme}://{host}:{port}/{path.removeprefix('/')}"
    headers = {str(each.get("name")): str(each.get("value")) for each in request.get("httpHeaders") or ()}
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=False, allow_redirects=False) as response,
    ):
        is_good = 200 <= response.status < 400
        return "" if is_good else f"HTTP probe failed with statuscode: {response.status}"


def _port(target: Manifest, container: Manifest) -> int:
    port: Any = target.get("port")
    for each in container.get("ports") or ():
        if port == each.get("name"):
            port = each.get("containerPort")
    number = int(port) if str(port).isdecimal() else 0
    if not 0 < number < 65536:
        raise ValueError(f"the container has no port {port!r}")
    return number
