"""A server that tests script, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from k8s.client.client import Client
from tests.scripted.server import ScriptedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with ScriptedCluster() as found:
        yield found


@pytest.fixture
async def client(cluster: ScriptedCluster) -> AsyncIterator[Client]:
    async with cluster.client() as found:
        yield found
