"""A namespace of its own on the real cluster for each test here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.models.resources import NAMESPACES
from tests.support import real_cluster


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """The administrator's kubeconfig; to look whether all of the cluster runs takes seconds."""
    return real_cluster.start()


@pytest.fixture
async def admin(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client that may do everything, in a namespace that is gone afterwards."""
    namespace = f"console-{uuid4().hex[:8]}"
    async with await Client.connect(str(kubeconfig), namespace=namespace) as client:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield client
        await client.delete(NAMESPACES, namespace)


@pytest.fixture
async def alice(kubeconfig: Path, admin: Client) -> AsyncIterator[Client]:
    """A client of a user who may do nothing in the test's namespace but what the test allows."""
    path = kubeconfig.with_name("kubeconfig-alice")
    async with await Client.connect(str(path), namespace=admin.config.namespace) as client:
        yield client
