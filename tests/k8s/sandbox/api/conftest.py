"""A fixture for kubectl on a sandbox's server, without the other components."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from k8s.sandbox.api.listening import server_context
from k8s.sandbox.api.server import Server
from k8s.sandbox.api.store import Store
from tests.k8s.sandbox.api.kubectl import Kubectl
from tests.k8s.sandbox.calls import Api
from tests.k8s.sandbox.conftest import TOKEN


@pytest.fixture
async def kubectl(store: Store, tmp_path: Path) -> AsyncIterator[Kubectl]:
    root = tmp_path / "pods"
    server = Server(store, token=TOKEN, pods_root=root)
    context, trusted = server_context(tmp_path)
    port = await server.start(tls=context)
    url = f"https://127.0.0.1:{port}"
    authority = base64.b64encode(trusted.encode()).decode()
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "s", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": "s", "user": {"token": TOKEN}}],
        "contexts": [{"name": "s", "context": {"cluster": "s", "user": "s"}}],
        "current-context": "s",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    tls = ssl.create_default_context(cadata=trusted)
    async with Api(url, TOKEN, tls, is_real=False) as api:
        kubectl = Kubectl(api, tmp_path, root, server)
        try:
            yield kubectl
        finally:
            await kubectl.end_all()
    await server.stop()
