from __future__ import annotations

from datetime import timedelta

import pytest

from k8s.errors import NotFound
from k8s.telemetry.metrics_server import NODE_METRICS, POD_METRICS, fetch_usage
from k8s.telemetry.readings import Source, Usage
from tests.scripted.server import ScriptedCluster, page
from tests.support.gpu_readings import NOON


async def test_nodes_and_pods_come_with_what_they_use_and_since_when_that_is_known() -> None:
    taken = NOON - timedelta(seconds=12)
    stamp = taken.isoformat().replace("+00:00", "Z")
    node = {"metadata": {"name": "n1"}, "timestamp": stamp, "usage": {"cpu": "1500m", "memory": "2Gi"}}
    pod = {
        "metadata": {"name": "bert-0", "namespace": "vision"},
        "timestamp": stamp,
        "containers": [
            {"name": "pytorch", "usage": {"cpu": "250000000n", "memory": "1Ki"}},
            {"name": "sidecar", "usage": {"cpu": "1", "memory": "1Ki"}},
        ],
    }
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/apis/metrics.k8s.io/v1beta1/nodes", page([node]))
        cluster.say("/apis/metrics.k8s.io/v1beta1/namespaces/vision/pods", page([pod]))
        nodes = await fetch_usage(client, NODE_METRICS, NOON)
        pods = await fetch_usage(client, POD_METRICS, NOON, "vision")
    assert nodes == {("", "n1"): Usage(1.5, 2 * 2**30, Source.METRICS, taken)}
    assert pods == {("vision", "bert-0"): Usage(1.25, 2048, Source.METRICS, taken)}


async def test_what_makes_no_sense_is_not_known() -> None:
    later = (NOON + timedelta(hours=1)).isoformat()
    odd = {"metadata": {"name": "n1"}, "timestamp": later, "usage": {"cpu": "many", "gpu": "1"}}
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/apis/metrics.k8s.io/v1beta1/nodes", page([odd, {"metadata": []}]))
        assert await fetch_usage(client, NODE_METRICS, NOON) == {
            ("", "n1"): Usage(None, None, Source.METRICS, NOON)
        }


async def test_a_cluster_without_a_metrics_server_says_so() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        with pytest.raises(NotFound):
            await fetch_usage(client, NODE_METRICS, NOON)
