from __future__ import annotations

from typing import Any

import pytest

from k8s.errors import Forbidden
from k8s.telemetry.exporters import find_exporters, find_on_node
from tests.scripted.server import ScriptedCluster, page, refusal
from tests.scripted.telemetry import PODS, exporter_pod, say_pods
from tests.support.objects import Object


async def found_at(pod: Object) -> str:
    """Return the path under which the one exporter of a cluster is read, empty when it is not found."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        say_pods(cluster, pod)
        return next((each.path for each in (await find_exporters(client)).values()), "")


USUAL = "/api/v1/namespaces/gpu-operator/pods/dcgm-exporter-n1:9400/proxy/metrics"


@pytest.mark.parametrize(
    "labels",
    [
        {"app.kubernetes.io/name": "dcgm-exporter"},
        {"app": "nvidia-dcgm-exporter"},
        {"app": "dcgm-exporter"},
        {"app.kubernetes.io/name": "gke-managed-dcgm-exporter"},
        {"k8s-app": "dcgm-exporter"},
    ],
    ids=str,
)
async def test_the_exporters_of_all_installers_are_found(labels: dict[str, str]) -> None:
    assert await found_at(exporter_pod("n1", labels=labels)) == USUAL


@pytest.mark.parametrize(
    ("change", "end"),
    [
        ({"ports": []}, ":9400/proxy/metrics"),
        ({"ports": [{"name": "metrics", "containerPort": 9445}]}, ":9445/proxy/metrics"),
        (
            {
                "ports": [
                    {"name": "health", "containerPort": 80},
                    {"name": "gpu-metrics", "containerPort": 81},
                ]
            },
            ":81/proxy/metrics",
        ),
        ({"ports": [], "annotations": {"prometheus.io/port": "9500"}}, ":9500/proxy/metrics"),
        ({"ports": [], "annotations": {"prometheus.io/port": "nonsense"}}, ":9400/proxy/metrics"),
        ({"annotations": {"prometheus.io/path": "/dcgm"}}, ":9400/proxy/dcgm"),
        ({"annotations": {"prometheus.io/path": "/../../secrets"}}, ":9400/proxy/metrics"),
    ],
)
async def test_it_is_asked_at_the_port_and_the_path_that_its_pod_names(
    change: dict[str, Any], end: str
) -> None:
    assert (await found_at(exporter_pod("n1", **change))).endswith(f"dcgm-exporter-n1{end}")


@pytest.mark.parametrize(
    "change",
    [
        {"ports": [{"name": "https-metrics", "containerPort": 9400}]},
        {"annotations": {"prometheus.io/scheme": "https"}},
    ],
)
async def test_one_behind_tls_is_asked_by_https(change: dict[str, Any]) -> None:
    assert "/pods/https:dcgm-exporter-n1:9400/proxy" in await found_at(exporter_pod("n1", **change))


async def test_one_that_does_not_run_is_not_asked() -> None:
    assert await found_at(exporter_pod("n1", phase="Pending")) == ""


async def test_of_a_rollout_the_new_one_is_asked() -> None:
    old = exporter_pod("n1", name="old")
    old["metadata"]["deletionTimestamp"] = "2026-11-22T12:00:00Z"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        say_pods(cluster, old, exporter_pod("n1", name="new"))
        assert [each.pod for each in (await find_exporters(client)).values()] == ["new"]


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ({"image": "registry.lan/mirror/dcgm-exporter@sha256:00", "ports": []}, True),
        ({"image": "acme/telemetry:1", "ports": [{"name": "x", "containerPort": 9400}]}, True),
        ({"image": "acme/telemetry:1", "ports": [{"name": "gpu-metrics", "containerPort": 8080}]}, True),
        ({"image": "acme/web:1", "ports": [{"name": "metrics", "containerPort": 8080}]}, False),
    ],
)
async def test_on_a_node_without_a_known_label_image_and_port_tell(
    change: dict[str, Any], is_found: bool
) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        say_pods(cluster, exporter_pod("n1", labels={"team": "hpc"}, **change))
        assert (await find_on_node(client, "n1") is not None) is is_found
        assert await find_on_node(client, "n2") is None


async def test_who_may_not_list_all_pods_finds_those_of_the_namespaces_that_they_may() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/api/v1/namespaces/other/pods", refusal(403, "no"))
        say_pods(cluster, exporter_pod("n1"), path="/api/v1/namespaces/gpu-operator/pods")
        assert list(await find_exporters(client, ("other", "gpu-operator"))) == ["n1"]
        with pytest.raises(Forbidden):
            await find_exporters(client, ("other",))


async def test_pods_that_make_no_sense_hide_no_others() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(PODS, page([{"metadata": 7}, exporter_pod("n1"), {"spec": {"nodeName": []}}]))
        assert list(await find_exporters(client)) == ["n1"]
