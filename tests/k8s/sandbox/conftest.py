"""Servers under test: the sandbox's, and a real cluster where one can be started."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from k8s.sandbox.api.server import Server
from k8s.sandbox.api.store import Store
from tests.k8s.sandbox.calls import Api, config, thing
from tests.scripted.object_store import ObjectStore
from tests.scripted.server import ScriptedCluster
from tests.support import real_cluster

TOKEN = "token-of-the-tests"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store.sqlite")
    yield opened
    opened.close()


@asynccontextmanager
async def serving(store: Store, pods_root: Path) -> AsyncIterator[tuple[Server, Api]]:
    """Start a sandbox server; yield it and calls to it."""
    server = Server(store, token=TOKEN, pods_root=pods_root)
    port = await server.start()
    try:
        async with Api(f"http://127.0.0.1:{port}", TOKEN, None, is_real=False) as api:
            yield server, api
    finally:
        await server.stop()


@pytest.fixture
async def sandbox(store: Store, tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(store, tmp_path / "pods") as (_, api):
        yield api


@pytest.fixture(scope="session")
def real_kubeconfig() -> dict[str, object]:
    """Return the kubeconfig of a real cluster, which is started if needed."""
    config: dict[str, object] = yaml.safe_load(real_cluster.start().read_text())
    return config


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of the API on the sandbox and a real cluster, and some on a scripted server."""
    if "api" in metafunc.fixturenames:
        servers = ["sandbox", pytest.param("real", marks=pytest.mark.cluster)]
        if getattr(metafunc.function, "is_also_scripted", False):
            servers.append("scripted")
        metafunc.parametrize("api", servers, indirect=True)


@pytest.fixture
async def api(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> AsyncIterator[Api]:
    """Yield calls in a new namespace of a server; all servers must answer the same."""
    if request.param == "scripted":
        async with ScriptedCluster() as cluster, Api(cluster.host, TOKEN, None, is_real=False) as api:
            ObjectStore(cluster)
            yield await _in_own_namespace(api)
        return
    if request.param == "sandbox":
        async with serving(store, tmp_path / "pods") as (_, api):
            yield await _in_own_namespace(api)
        return
    kubeconfig = request.getfixturevalue("real_kubeconfig")
    cluster = kubeconfig["clusters"][0]["cluster"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    async with Api(cluster["server"], kubeconfig["users"][0]["user"]["token"], tls, is_real=True) as api:
        yield await _in_own_namespace(api)
        await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")


@pytest.fixture
async def forgetful_api(api: Api, store: Store) -> AsyncIterator[Api]:
    """Yield a server without its oldest versions: a restarted sandbox, a compacted real one."""
    if api.is_real:
        await _compact()
        yield api
        return
    for number in range(3):
        await api.made("configmaps", config(f"c-{number}"))
    store.close()
    again = Store(store.path)
    async with serving(again, store.path.parent / "pods") as (_, restarted):
        restarted.namespace = api.namespace
        yield restarted
    again.close()


async def _compact() -> None:
    """Compact a real cluster's etcd through its HTTP gateway."""
    etcd = "http://127.0.0.1:32379/v3/kv"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{etcd}/range", json={"key": "YQ=="}) as response:
            revision = int((await response.json())["header"]["revision"])
        async with session.post(f"{etcd}/compaction", json={"revision": revision}) as response:
            assert response.status in (200, 400), await response.text()


async def _in_own_namespace(api: Api) -> Api:
    api.namespace = f"test-{uuid.uuid4().hex[:8]}"
    answer = await api.call("POST", "/api/v1/namespaces", thing("Namespace", api.namespace))
    assert answer.code == 201, answer.body
    return api
