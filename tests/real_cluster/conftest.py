"""A namespace of its own on the real cluster for each test here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
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
    async with await Client.connect(f"{kubeconfig}-alice", namespace=admin.config.namespace) as client:
        yield client


@pytest.fixture
async def editor(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client of alice, who has the role `edit` in the namespace of her name, and nothing else."""
    async with await Client.connect(f"{kubeconfig}-alice", namespace="alice") as client:
        yield client


def shared_namespace(
    kubeconfig: Path, prefix: str, prepare: Callable[[Client], Awaitable[None]]
) -> Iterator[str]:
    """Make a namespace with what `prepare` puts there, yield its name, and delete it."""
    name = f"{prefix}-{uuid4().hex[:8]}"

    async def make() -> None:
        async with await Client.connect(str(kubeconfig), namespace=name) as client:
            await client.create(NAMESPACES, {"metadata": {"name": name}})
            await prepare(client)

    async def remove() -> None:
        async with await Client.connect(str(kubeconfig)) as client:
            await client.delete(NAMESPACES, name)

    asyncio.run(make())
    yield name
    asyncio.run(remove())
