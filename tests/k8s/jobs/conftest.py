"""A server that stores what it is given, for every test here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from k8s.client.client import Client
from tests.scripted.object_store import ObjectStore
from tests.scripted.server import ScriptedCluster


@pytest.fixture
def store(cluster: ScriptedCluster) -> ObjectStore:
    return ObjectStore(cluster)


@pytest.fixture
async def client(cluster: ScriptedCluster, store: ObjectStore) -> AsyncIterator[Client]:
    async with cluster.client() as found:
        yield found
