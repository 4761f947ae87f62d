"""GPU telemetry through a real API server's proxies: a pod of busybox serves an exporter's text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.gpus.reader import TelemetryReader
from k8s.gpus.readings import NodeReadings, NoReadingsCause, Source
from k8s.models import Node, Reader
from k8s.models.resources import CONFIG_MAPS, NODES, PODS, SERVICES, Resource
from k8s.snapshot import NodeRow
from tests import FIXTURES
from tests.k8s.sandbox.live.running import comes, goes
from tests.real_cluster import operator_objects
from tests.support.objects import joined
from tests.support.real_cluster import BUSYBOX, NODE, is_ready

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 90.0
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", is_namespaced=False)
ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False
)
DCGM = {"app.kubernetes.io/name": "dcgm-exporter"}
SERVING = "mkdir /www; cp /text/* /www; exec httpd -f -p 9400 -h /www"
BY_NC = (
    'printf "HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n" > /answer; cat /text/metrics >> /answer; '
    "while :; do nc -l -p 9400 < /answer > /dev/null; done"
)


def exporter(name: str, script: str, labels: dict[str, str], port: int = 9400) -> dict[str, Any]:
    container = {
        "name": "exporter",
        "command": ["sh", "-c", script],
        "ports": [{"name": "metrics", "containerPort": port}],
        "volumeMounts": [{"name": "text", "mountPath": "/text"}],
        # Not tcpSocket: nc answers one connection and is then another process.
        "readinessProbe": {
            "exec": {"command": ["sh", "-c", f"netstat -ltn | grep -q ':{port} '"]},
            "periodSeconds": 1,
        },
        **BUSYBOX,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "text", "configMap": {"name": "texts"}}],
        },
    }


Serve = Callable[..., Awaitable[None]]  # lets a pod serve some texts, and waits until it does


@pytest.fixture
async def serve(admin: Client) -> AsyncIterator[Serve]:
    """Serve texts, and be gone afterwards: exporters are looked for in all namespaces."""
    namespace = admin.config.namespace
    made: list[str] = []

    async def served(pod: dict[str, Any], **texts: str) -> None:
        name = pod["metadata"]["name"]
        await admin.create(CONFIG_MAPS, {"metadata": {"name": "texts"}, "data": texts}, namespace)
        await admin.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, namespace)
        made.append(name)
        await comes(admin, PODS, name, is_ready, namespace, PATIENCE_S)

    yield served
    for name in made:
        await admin.delete(PODS, name, namespace, grace_period_s=0)
        await goes(admin, PODS, name, namespace, PATIENCE_S)


async def node_row(admin: Client) -> NodeRow:
    node = await admin.get(NODES, NODE)
    node["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    assert Reader[Node](Node).read(json.dumps(node).encode()).metadata.name == NODE
    return joined([node], [], [])[0][NODE]


async def read(client: Client, admin: Client) -> NodeReadings:
    return (await TelemetryReader(client).read([await node_row(admin)])).nodes[NODE]


def text(name: str = "current") -> str:
    return (FIXTURES / "dcgm" / f"{name}.prom").read_text()


async def test_an_exporter_is_read_through_the_api_proxy(admin: Client, serve: Serve) -> None:
    await serve(exporter("dcgm-exporter-x7k2p", BY_NC, DCGM), metrics=text())
    node = await read(admin, admin)
    assert [(gpu.index, gpu.utilisation, gpu.source) for gpu in node.gpus] == [
        (0, 98.0, Source.DCGM),
        (1, 0.0, Source.DCGM),
    ]
    assert node.missing is None


async def test_an_exporter_without_a_known_label_is_found_by_its_port(admin: Client, serve: Serve) -> None:
    await serve(exporter("telemetry", SERVING, {"team": "hpc"}), metrics=text("mig"))
    assert [gpu.name for gpu in (await read(admin, admin)).gpus] == ["0:1", "0:13", "1"]


async def test_an_exporter_that_does_not_listen_is_reported_with_the_servers_message(
    admin: Client, serve: Serve
) -> None:
    pod = exporter("dead", SERVING.replace("9400", "9401"), {"app": "nvidia-dcgm-exporter"}, 9401)
    pod["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": 9400}]
    await serve(pod, metrics=text())
    node = await read(admin, admin)
    assert node.gpus == ()
    assert node.missing is not None
    assert node.missing.cause is NoReadingsCause.UNREACHABLE
    assert "connection refused" in node.missing.words


async def test_an_http_error_of_the_exporter_is_reported_as_its_own_response(
    admin: Client, serve: Serve
) -> None:
    pod = exporter("dcgm-exporter-404", SERVING, {"app": "nvidia-dcgm-exporter"})
    await serve(pod, other="nothing here")
    node = await read(admin, admin)
    assert node.missing is not None
    assert node.missing.words.startswith("It answers 404:")


async def test_missing_permissions_are_named(admin: Client, editor: Client, serve: Serve) -> None:
    await serve(exporter("dcgm-exporter-x7k2p", SERVING, DCGM), metrics=text())
    rows = [await node_row(admin)]
    found = await TelemetryReader(editor).read(rows)
    assert found.notices == ("GPUs are not measured: you may not list pods, so no DCGM exporter is found.",)
    name = f"sees-pods-{uuid4().hex[:6]}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    subject = {"kind": "User", "name": "alice", "apiGroup": ROLES.group}
    role = {"kind": ROLES.kind, "name": name, "apiGroup": ROLES.group}
    await admin.create(ROLES, {"metadata": {"name": name}, "rules": rules})
    try:
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        await admin.create(ROLE_BINDINGS, binding)
        words = f"GPUs are not measured: you may not get pods/proxy in namespace {admin.config.namespace}."
        async with asyncio.timeout(PATIENCE_S):  # the authorizer learns of it in its own time
            while (await TelemetryReader(editor).read(rows)).notices != (words,):
                await asyncio.sleep(0.1)
    finally:
        await admin.delete(ROLE_BINDINGS, name)
        await admin.delete(ROLES, name)


async def test_prometheus_is_found_by_label_and_queried_by_proxy(admin: Client, serve: Serve) -> None:
    labels = {"gpu": "3", "Hostname": NODE, "exported_pod": "bert-0", "exported_namespace": "vision"}
    series = [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", **labels}, "value": [1.0, "77"]}]
    answer = {"status": "success", "data": {"resultType": "vector", "result": series}}
    name = f"prom-{uuid4().hex[:6]}"
    script = "mkdir -p /www/api/v1; cp /text/query /www/api/v1/query; exec httpd -f -p 9090 -h /www"
    await serve(exporter("prometheus-0", script, {"prom": name}, 9090), query=json.dumps(answer))
    spec = {"selector": {"prom": name}, "ports": [{"name": "web", "port": 9090}]}
    await operator_objects.make(admin, SERVICES, name, spec, labels={"app.kubernetes.io/name": "prometheus"})
    await comes(
        admin, ENDPOINTS, name, lambda found: found.get("subsets"), admin.config.namespace, PATIENCE_S
    )
    node = await read(admin, admin)
    assert [(gpu.index, gpu.utilisation, gpu.source) for gpu in node.gpus] == [(3, 77.0, Source.PROMETHEUS)]
