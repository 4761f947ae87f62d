from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8s.client.client import Client
from k8s.client.proxied import MAX_BYTES, fetch_proxied
from k8s.gpus.exporters import MAX_AT_ONCE, SELECTORS, ExporterReader, find_exporters, find_on_node
from k8s.gpus.readings import NodeReadings, NoReadingsCause, Source, holders_of, readings_by_rank
from k8s.gpus.refusals import FAILED_S, REFUSED_S, Refusals
from k8s.snapshot import Job, NodeRow
from k8s.text.errors import Forbidden, Unreachable
from tests.scripted.server import Answer, Cut, Drop, Reply, ScriptedCluster, Stall, Stream, page, refusal
from tests.scripted.telemetry import (
    PLAIN,
    PODS,
    exporter_pod,
    gpu_cluster,
    proxied,
    proxy_path,
    say_pods,
    text,
)
from tests.support.objects import Object, joined, node, pod_of, pytorch_job
from tests.support.telemetry import NOON, gpu, telemetry_of


class Exporters:
    """A scripted cluster, and a reader of its exporters with a clock that a test puts forward."""

    def __init__(self, cluster: ScriptedCluster, client: Client) -> None:
        self.cluster, self.client, self.now_s = cluster, client, 1000.0
        self._reader = ExporterReader(client, Refusals(lambda: self.now_s), lambda: NOON)

    async def read(self, *nodes: str) -> dict[str, NodeReadings]:
        return await self._reader.read(list(nodes))

    async def gpus_of(self, node: str) -> int:
        return len((await self.read(node))[node].gpus)

    def searches(self) -> list[str]:
        queries = (each.query for each in self.cluster.requests)
        return [each["fieldSelector"] for each in queries if "fieldSelector" in each]


@asynccontextmanager
async def scripted() -> AsyncIterator[Exporters]:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        yield Exporters(cluster, client)


@pytest.fixture
async def there() -> AsyncIterator[Exporters]:
    async with scripted() as exporters:
        yield exporters


async def read_one(reply: Reply) -> NodeReadings:
    async with scripted() as there:
        gpu_cluster(there.cluster, n1=reply)
        return (await there.read("n1"))["n1"]


async def test_a_nodes_gpus_are_read_through_the_proxy_to_its_exporters_pod() -> None:
    node = await read_one(text())
    assert [(gpu.node, gpu.index, gpu.utilisation, gpu.source) for gpu in node.gpus] == [
        ("n1", 0, 98.0, Source.DCGM),
        ("n1", 1, 0.0, Source.DCGM),
    ]
    assert node.missing is None
    assert node.read_at == NOON


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal(503, "error trying to reach service: dial tcp 10.42.0.5:9400: connect: connection refused"),
         "error trying to reach service: dial tcp 10.42.0.5:9400: connect: connection refused"),
        (refusal(404, 'pods "dcgm-exporter-n1" not found', "NotFound"), 'pods "dcgm-exporter-n1" not found'),
        (Answer(b"no collector\n", 500, PLAIN), "It answers 500: no collector"),
        (Answer(b"", 404, PLAIN), "It answers 404: no reason given"),
        (Answer(b"<html>hello</html>", headers=PLAIN), "dcgm-exporter-n1 reports no GPU."),
        (Answer(bytes(range(256)) * 64, headers=PLAIN), "dcgm-exporter-n1 reports no GPU."),
        (Answer(b"", headers=PLAIN), "dcgm-exporter-n1 reports no GPU."),
    ],
    ids=["503", "404", "500", "404 of its own", "html", "binary", "empty"],
)  # fmt: skip
async def test_a_failing_exporter_is_explained_in_one_line(reply: Reply, words: str) -> None:
    node = await read_one(reply)
    assert node.gpus == ()
    assert node.missing is not None
    assert (node.missing.cause, node.missing.words) == (NoReadingsCause.UNREACHABLE, words)


@pytest.mark.parametrize("reply", [Cut(b"DCGM_FI_DEV_GPU_UTIL{"), Drop()])
async def test_a_connection_that_breaks_is_a_failure_of_that_node(reply: Reply) -> None:
    node = await read_one(reply)
    assert node.missing is not None
    assert node.missing.cause is NoReadingsCause.UNREACHABLE


async def test_an_answer_that_never_ends_is_not_waited_for(there: Exporters) -> None:
    endless = Stream(b"DCGM_FI_DEV_GPU_UTIL")
    for path, reply in (("/never", Stall()), ("/endless", endless)):
        there.cluster.say(path, reply)
        with pytest.raises(Unreachable) as raised:
            await fetch_proxied(there.client, path, "read it", within_s=0.2)
        assert raised.value.why == "It did not answer in time."


async def test_a_giant_answer_is_cut_off_and_is_no_reading() -> None:
    node = await read_one(Answer(b"#" * (MAX_BYTES + 10), headers=PLAIN))
    assert node.missing is not None
    assert node.missing.words == "It answers with more than 8 MiB."


async def test_a_failing_exporter_does_not_hide_other_nodes(there: Exporters) -> None:
    gpu_cluster(there.cluster, n1=text(), n2=refusal(503, "dead"), n3=text("mig"))
    found = await there.read("n1", "n2", "n3", "n4")
    assert [len(found[node].gpus) for node in ("n1", "n2", "n3", "n4")] == [2, 0, 3, 0]
    missing = found["n4"].missing
    assert missing is not None
    assert (missing.cause, missing.words) == (NoReadingsCause.NO_EXPORTER, "No DCGM exporter runs on it.")


async def test_only_the_visible_nodes_are_read(there: Exporters) -> None:
    gpu_cluster(there.cluster, n1=text(), n2=text(), n3=text())
    await there.read("n2")
    await there.read()
    assert proxied(there.cluster) == [proxy_path("n2")]


async def test_missing_proxy_permission_is_detected_by_one_request_and_retried_later(
    there: Exporters,
) -> None:
    refused = refusal(403, 'pods "x" is forbidden: User "li" cannot get resource "pods/proxy"', "Forbidden")
    gpu_cluster(there.cluster, n1=refused, n2=refused, n3=refused, n4=refused)
    for _ in range(3):
        found = await there.read("n1", "n2", "n3", "n4")
    assert len(proxied(there.cluster)) == 1
    words = {node.missing.words for node in found.values() if node.missing}
    assert words == {"You may not get pods/proxy in namespace gpu-operator."}
    there.now_s += REFUSED_S + 1
    await there.read("n1")
    assert len(proxied(there.cluster)) == 2


async def test_a_failed_exporter_is_not_read_for_a_while_and_then_searched_again(there: Exporters) -> None:
    gpu_cluster(there.cluster, n1=refusal(503, "dead"))
    await there.read("n1")
    await there.read("n1")
    assert len(proxied(there.cluster)) == 1
    there.cluster.forget("/api/v1/pods")
    say_pods(there.cluster, exporter_pod("n1", name="dcgm-exporter-new"))
    there.cluster.say(proxy_path("new"), text())
    there.now_s += FAILED_S + 1
    assert await there.gpus_of("n1") == 2


async def test_no_more_than_eight_exporters_are_read_at_once(there: Exporters) -> None:
    at_once, most, may_go = 0, 0, asyncio.Event()

    class Counted:
        async def answer(self, request: object, closing: asyncio.Event) -> object:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await may_go.wait()
            at_once -= 1
            return await text().answer(request, closing)  # type: ignore[arg-type]

    nodes = [f"n{number}" for number in range(20)]
    gpu_cluster(there.cluster, n0=text(), **dict.fromkeys(nodes[1:], Counted()))  # type: ignore[arg-type]
    reading = asyncio.create_task(there.read(*nodes))
    await there.cluster.until_asked(proxy_path(nodes[MAX_AT_ONCE]))
    may_go.set()
    found = await reading
    assert most == MAX_AT_ONCE
    assert all(len(node.gpus) == 2 for node in found.values())


@pytest.mark.parametrize(
    "refused",
    [
        Answer(b"Client sent an HTTP request to an HTTPS server.\n", 400, PLAIN),
        refusal(503, 'error trying to reach service: net/http: malformed HTTP response "\\x15\\x03"'),
    ],
)
async def test_an_exporter_found_to_require_tls_is_read_by_https(there: Exporters, refused: Reply) -> None:
    gpu_cluster(there.cluster, n1=refused)
    there.cluster.say(proxy_path("n1", scheme="https"), text())
    for _ in range(3):
        assert await there.gpus_of("n1") == 2
    assert len(there.cluster.asked(proxy_path("n1"))) == 1


async def test_an_exporters_401_429_or_redirect_does_not_affect_the_client(there: Exporters) -> None:
    login = Answer(b"Unauthorized\n", 401, {**PLAIN, "WWW-Authenticate": "Basic"})
    busy = Answer(b"slow down\n", 429, {**PLAIN, "Retry-After": "600"})
    away = Answer(b"", 302, {"Location": f"{there.cluster.host}/elsewhere"})
    gpu_cluster(there.cluster, n1=login, n2=busy, n3=away)
    found = await there.read("n1", "n2", "n3")
    assert there.client.throttled_until_s == 0
    await there.client.get_json("/api/v1/pods")
    words = [found[node].missing for node in ("n1", "n2", "n3")]
    assert [each.words for each in words if each] == [
        "It answers 401: Unauthorized",
        "It answers 429: slow down",
        "It answers 302: no reason given",
    ]
    assert there.cluster.asked("/elsewhere") == []
    assert len(proxied(there.cluster)) == 3


async def test_missing_permission_to_list_pods_is_reported(there: Exporters) -> None:
    gpu_cluster(there.cluster, n1=text())
    there.cluster.replace("/api/v1/pods", refusal(403, "no"))
    usual = ("gpu-operator", "nvidia-gpu-operator", "monitoring", "kube-system", "gke-managed-system")
    for namespace in (*usual, "default"):
        there.cluster.say(f"/api/v1/namespaces/{namespace}/pods", refusal(403, "no"))
    found = await there.read("n1")
    asked = len(there.cluster.requests)
    await there.read("n1")
    assert found["n1"].missing is not None
    assert found["n1"].missing.cause is NoReadingsCause.FORBIDDEN
    assert found["n1"].missing.words == "You may not list pods, so no DCGM exporter is found."
    assert len(there.cluster.requests) == asked


async def test_exporters_of_few_nodes_are_found_by_node_and_those_of_many_by_label(there: Exporters) -> None:
    nodes = [f"n{number}" for number in range(4)]
    gpu_cluster(there.cluster, **dict.fromkeys(nodes, text()))
    there.cluster.forget(PODS)
    say_pods(there.cluster, exporter_pod("n0", name="another", labels={}), *map(exporter_pod, nodes))
    assert await there.gpus_of("n0") == 2
    assert [each.query.get("labelSelector") for each in there.cluster.asked(PODS)] == [None]
    found = await there.read(*nodes)
    assert [len(found[node].gpus) for node in nodes] == [2] * 4
    assert there.searches() == ["spec.nodeName=n0"]
    assert len(there.cluster.asked(PODS)) == 1 + len(SELECTORS)


async def test_a_node_that_comes_in_sight_later_is_looked_through_once(there: Exporters) -> None:
    say_pods(there.cluster, exporter_pod("n2", labels={"team": "hpc"}))
    there.cluster.say(proxy_path("n2"), text())
    await there.read("n1")
    for _ in range(2):
        assert len((await there.read("n1", "n2"))["n2"].gpus) == 2
    assert there.searches() == ["spec.nodeName=n1", "spec.nodeName=n2"]


async def test_a_forbidden_pod_search_is_not_repeated_for_other_nodes(there: Exporters) -> None:
    there.cluster.say("/api/v1/pods", refusal(403, "no", "Forbidden"))
    say_pods(there.cluster, exporter_pod("n0"), path="/api/v1/namespaces/gpu-operator/pods")
    for name in ("n1", "n2", "n3"):
        found = await there.read(name)
        assert found[name].missing is not None
    assert there.searches() == ["spec.nodeName=n1"]


async def found_at(pod: Object) -> str:
    """Return the path under which the one exporter of a cluster is read, empty when it is not found."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        say_pods(cluster, pod)
        return next((each.path for each in (await find_exporters(client)).values()), "")


HEALTH = {"name": "health", "containerPort": 80}
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
        ({"ports": []}, "/dcgm-exporter-n1:9400/proxy/metrics"),
        ({"ports": [{"name": "metrics", "containerPort": 9445}]}, "/dcgm-exporter-n1:9445/proxy/metrics"),
        ({"ports": [HEALTH, {"name": "gpu-metrics", "containerPort": 81}]},
         "/dcgm-exporter-n1:81/proxy/metrics"),
        ({"ports": [], "annotations": {"prometheus.io/port": "9500"}},
        "/dcgm-exporter-n1:9500/proxy/metrics"),
        ({"ports": [], "annotations": {"prometheus.io/port": "nonsense"}}, "-n1:9400/proxy/metrics"),
        ({"annotations": {"prometheus.io/path": "/dcgm"}}, "/dcgm-exporter-n1:9400/proxy/dcgm"),
        ({"annotations": {"prometheus.io/path": "/../../secrets"}}, "/dcgm-exporter-n1:9400/proxy/metrics"),
        ({"ports": [{"name": "https-metrics", "containerPort": 9400}]},
         "/pods/https:dcgm-exporter-n1:9400/proxy/metrics"),
        ({"annotations": {"prometheus.io/scheme": "https"}},
        "/pods/https:dcgm-exporter-n1:9400/proxy/metrics"),
    ],
)  # fmt: skip
async def test_an_exporter_is_read_as_its_pod_declares(change: dict[str, Any], end: str) -> None:
    assert (await found_at(exporter_pod("n1", **change))).endswith(end)


async def test_an_exporter_pod_that_is_not_running_is_not_read() -> None:
    assert await found_at(exporter_pod("n1", phase="Pending")) == ""


async def test_the_new_exporter_pod_is_used_during_a_rollout(there: Exporters) -> None:
    old = exporter_pod("n1", name="old")
    old["metadata"]["deletionTimestamp"] = "2026-11-22T12:00:00Z"
    say_pods(there.cluster, old, exporter_pod("n1", name="new"))
    assert [each.pod for each in (await find_exporters(there.client)).values()] == ["new"]


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ({"image": "registry.lan/mirror/dcgm-exporter@sha256:00", "ports": []}, True),
        ({"image": "acme/telemetry:1", "ports": [{"name": "x", "containerPort": 9400}]}, True),
        ({"image": "acme/telemetry:1", "ports": [{"name": "gpu-metrics", "containerPort": 8080}]}, True),
        ({"image": "acme/web:1", "ports": [{"name": "metrics", "containerPort": 8080}]}, False),
    ],
)
async def test_an_exporter_without_known_labels_is_recognised_by_image_or_port(
    there: Exporters, change: dict[str, Any], is_found: bool
) -> None:
    say_pods(there.cluster, exporter_pod("n1", labels={"team": "hpc"}, **change))
    assert (await find_on_node(there.client, "n1") is not None) is is_found
    assert await find_on_node(there.client, "n2") is None


async def test_exporters_are_found_in_permitted_namespaces_when_listing_all_pods_is_forbidden(
    there: Exporters,
) -> None:
    there.cluster.say("/api/v1/namespaces/other/pods", refusal(403, "no"))
    say_pods(there.cluster, exporter_pod("n1"), path="/api/v1/namespaces/gpu-operator/pods")
    assert list(await find_exporters(there.client, ("other", "gpu-operator"))) == ["n1"]
    with pytest.raises(Forbidden):
        await find_exporters(there.client, ("other",))


async def test_malformed_pods_do_not_hide_valid_pods(there: Exporters) -> None:
    there.cluster.say(PODS, page([{"metadata": 7}, exporter_pod("n1"), {"spec": {"nodeName": []}}]))
    assert list(await find_exporters(there.client)) == ["n1"]


def bert(gpus: int = 2, node_gpus: int = 8) -> tuple[Job, list[NodeRow]]:
    job = pytorch_job("bert", workers=2, gpus=gpus)
    pods = [pod_of(job, "master-0", on="n1", gpus=gpus), pod_of(job, "worker-0", on="n2", gpus=gpus)]
    nodes, jobs = joined([node("n1", node_gpus), node("n2", node_gpus)], pods, [job])
    return jobs["bert"], list(nodes.values())


def test_each_rank_has_the_gpu_of_its_pod_by_the_order_of_their_numbers() -> None:
    job, _ = bert()
    read = telemetry_of(
        gpu(5, node="n1", pod="bert-master-0"),
        gpu(7, node="n1", pod="bert-master-0"),
        gpu(6, node="n1", pod="other"),
        gpu(0, node="n2", pod="bert-worker-0"),
        gpu(1, node="n2", pod="bert-worker-0"),
    )
    lines = readings_by_rank(job, read)
    by_rank = [(line.rank, line.gpu and (line.gpu.node, line.gpu.index)) for line in lines]
    assert by_rank == [(0, ("n1", 5)), (1, ("n1", 7)), (2, ("n2", 0)), (3, ("n2", 1))]
    assert not any(line.is_assumed for line in lines)


def test_ranks_without_readings_are_listed_without_a_gpu() -> None:
    job, _ = bert()
    lines = readings_by_rank(job, telemetry_of(gpu(0, node="n1", pod="bert-master-0")))
    assert [(line.rank, line.gpu is None) for line in lines] == [(None, False), (2, True), (3, True)]


def test_a_pod_with_the_same_name_in_another_namespace_does_not_match_the_job() -> None:
    job, _ = bert()
    foreign = gpu(0, node="n1", pod="bert-master-0")
    foreign = gpu(0, node="n1", holders=(foreign.holders[0]._replace(namespace="elsewhere"),))
    assert all(line.gpu is None for line in readings_by_rank(job, telemetry_of(foreign)))


def test_where_the_source_names_no_pod_a_pod_that_holds_the_whole_node_has_its_gpus() -> None:
    job, nodes = bert(gpus=2, node_gpus=2)
    read = telemetry_of(*(gpu(index, node=name) for name in ("n1", "n2") for index in (0, 1)))
    lines = readings_by_rank(job, read, nodes)
    assert [line.rank for line in lines] == [0, 1, 2, 3]
    assert all(line.gpu and line.is_assumed for line in lines)


def test_where_the_source_names_no_pod_nothing_is_claimed_of_half_a_node() -> None:
    job, nodes = bert(gpus=2, node_gpus=8)
    assert holders_of(gpu(0, node="n1"), nodes) == ()
    assert all(line.gpu is None for line in readings_by_rank(job, telemetry_of(gpu(0, node="n1")), nodes))
