"""Runs kubectl on a sandbox, and makes pods that the server takes for running."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from k8s.sandbox.api.server import Server
from tests.k8s.sandbox.calls import PATIENCE_S, Api, Object, pod
from tests.k8s.sandbox.containers import waiting_container


class Done(msgspec.Struct):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]


class Kubectl:
    def __init__(self, api: Api, folder: Path, root: Path, server: Server) -> None:
        self.api = api
        self.server = server
        self.root = root
        self.folder = folder
        self.started: list[asyncio.subprocess.Process] = []
        self.containers = AsyncExitStack()
        self.environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}

    async def start(self, *words: str, **streams: Any) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        settings = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **streams}
        process = await asyncio.create_subprocess_exec("kubectl", *words, env=self.environment, **settings)
        self.started.append(process)
        return process

    async def end_all(self) -> None:
        """Kill what a failed test left running."""
        for process in self.started:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        await self.containers.aclose()

    async def __call__(self, *words: str, stdin: str = "", code: int = 0) -> Done:
        """Run kubectl to its end and expect this exit code."""
        process = await self.start(*words)
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate(stdin.encode())
        done = Done(process.returncode or 0, out.decode(), err.decode())
        assert done.code == code, f"kubectl {' '.join(words)}: {done.out}{done.err}"
        return done

    async def run_pod(self, name: str, *log: str, **metadata: Any) -> Object:
        """Make a pod that the server takes for running, with these lines in its log."""
        wanted = pod(name, node="node-0", **metadata)
        made = await self.api.made("pods", wanted)
        folder = self.root / made["metadata"]["uid"] / "a"
        folder.mkdir(parents=True)
        text = "".join(f"2026-11-20T10:00:00.000000000Z stdout F {line}\n" for line in log)
        (folder / "2.log").write_text(text)
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        await self.containers.enter_async_context(waiting_container(folder, Path("/"), PATH=path))
        now = made["metadata"]["creationTimestamp"]
        status = {"name": "a", "ready": True, "restartCount": 2, "state": {"running": {"startedAt": now}}}
        ready = {"type": "Ready", "status": "True"}
        patch = {
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "conditions": [ready],
                "containerStatuses": [{"image": "busybox", "imageID": "", **status}],
            }
        }
        await self.api.patch("pods", name, patch, subresource="status")
        return made
