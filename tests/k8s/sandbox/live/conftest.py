"""One sandbox for all tests that only run jobs in it, each in a namespace of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from k8s import sandbox
from tests.k8s.sandbox.live.running import Space, own_space


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sandbox.SandboxAddress]:
    """A sandbox of two nodes with four simulated GPUs each, in which restarts come soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("höme-家")))
        options = sandbox.SandboxOptions(nodes=2, gpus_per_node=4, restart_delay_s=0.2, idle_s=86_400)
        address = asyncio.run(sandbox.start(options))
        folder = address.kubeconfig.parent
    yield address
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder.parents[1]))
        assert asyncio.run(sandbox.stop())


@pytest.fixture
async def space(running: sandbox.SandboxAddress) -> AsyncIterator[Space]:
    """A new namespace in that sandbox."""
    async with own_space(running.kubeconfig) as made:
        yield made
