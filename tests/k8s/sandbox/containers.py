"""A container's process under its shim, where nothing but a shim is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from k8s.sandbox.node.processes import Process
from k8s.sandbox.pod_folder import Launch


@asynccontextmanager
async def waiting_container(folder: Path, cwd: Path, **env: str) -> AsyncIterator[None]:
    """A container that does nothing; commands can be run in it."""
    process = await Process.start(Launch(("/bin/sleep", "1000"), env, str(cwd), ()), folder, 0)
    assert not await process.started()
    try:
        yield
    finally:
        process.end()
        await process.ended()
