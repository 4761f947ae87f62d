from __future__ import annotations

import tracemalloc
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.client.proxied import ServiceAddress
from k8s.gpus.reader import NODE_METRICS, POD_METRICS, TelemetryReader, fetch_usage
from k8s.gpus.readings import GpuHistory, GpuKey, NoReadings, NoReadingsCause, Source, Usage, since_gap
from k8s.gpus.refusals import REFUSED_S, Refusals
from k8s.snapshot import SANDBOX_VERSION, Job, NodeRow
from k8s.text.errors import NotFound
from tests.k8s.gpus.test_prometheus import BUSY, answering, vector
from tests.scripted.server import ScriptedCluster, page, refusal
from tests.scripted.telemetry import gpu_cluster, proxied, proxy_path, text
from tests.support.objects import Object, joined, node, pod_of, pytorch_job
from tests.support.telemetry import NOON, gpu, observed

PROMETHEUS = ServiceAddress("monitoring", "prometheus-k8s", "web")
QUERY = f"{PROMETHEUS.path}/api/v1/query"


def rows_of(*names: str) -> list[NodeRow]:
    rows, _ = joined([node(name) for name in names], [], [])
    return [rows[name] for name in names]


def bert() -> Job:
    job = pytorch_job("bert")
    _, jobs = joined([node("n1")], [pod_of(job, "master-0", on="n1")], [job])
    return jobs["bert"]


def reader_of(client: Client, address: ServiceAddress | None = None) -> TelemetryReader:
    return TelemetryReader(client, prometheus=address, now=lambda: NOON)


async def test_a_node_with_a_failing_exporter_is_read_from_prometheus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster, n1=text(), n2=refusal(503, "dead"))
        series = vector(({**BUSY, "Hostname": "n2"}, 55))
        cluster.say(QUERY, answering(read_at=series))
        found = await reader_of(client, PROMETHEUS).read(rows_of("n1", "n2"))
    assert [node.source for node in found.nodes.values()] == [Source.DCGM, Source.PROMETHEUS]
    assert [node.missing for node in found.nodes.values()] == [None, None]
    assert found.notices == ()


async def test_a_forbidden_exporter_proxy_gives_one_notice_for_the_cluster() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        refused = refusal(403, "no", "Forbidden")
        gpu_cluster(cluster, n1=refused, n2=refused)
        reader = reader_of(client)
        found = await reader.read(rows_of("n1", "n2"))
        words = "GPUs are not measured: you may not get pods/proxy in namespace gpu-operator."
        assert found.notices == (words,)
        await reader.read(rows_of("n1", "n2"))
        assert len(proxied(cluster)) == 1
        reader.retry_now()
        await reader.read(rows_of("n1"))
        assert len(proxied(cluster)) == 2


async def test_a_forbidden_prometheus_is_reported_when_no_exporter_runs() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster)
        cluster.say(QUERY, refusal(403, "no", "Forbidden"))
        reader = reader_of(client, PROMETHEUS)
        words = "GPUs are not measured: you may not get services/proxy in namespace monitoring."
        for _ in range(2):
            assert (await reader.read(rows_of("n1"))).notices == (words,)
        assert len(cluster.asked(QUERY)) == 1


async def test_an_exporter_that_stops_answering_leaves_its_last_readings_with_their_age() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster, n1=text())
        cluster.say(proxy_path("n1"), refusal(503, "dead"))
        reader = reader_of(client)
        rows = rows_of("n1")
        await reader.read(rows)
        found = (await reader.read(rows)).nodes["n1"]
    assert len(found.gpus) == 2
    assert found.read_at == NOON
    assert found.missing is not None
    assert found.missing.cause is NoReadingsCause.UNREACHABLE


AMD = node("n1", gpus=0) | {"status": {"allocatable": {"amd.com/gpu": "8"}}}


@pytest.mark.parametrize(
    ("made", "is_simulated", "words"),
    [
        (node("n1"), True, "Its GPUs are simulated: there is nothing to measure."),
        (node("n1", gpus=0), False, ""),
        (AMD, False, "Its devices are not measured: only NVIDIA GPUs are supported."),
    ],
    ids=["simulated", "no GPUs", "devices of another maker"],
)
async def test_nodes_without_nvidia_gpus_are_not_read(made: Object, is_simulated: bool, words: str) -> None:
    rows, _ = joined([made], [], [])
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster, n1=text())
        found = await reader_of(client).read([replace(rows["n1"], is_simulated=is_simulated)])
    assert proxied(cluster) == []
    missing = found.nodes["n1"].missing
    assert (missing.words if missing else "") == words


async def test_cpu_memory_network_and_disks_are_read_where_they_are_served() -> None:
    pod = {
        "metadata": {"name": "bert-master-0", "namespace": "default"},
        "containers": [{"name": "pytorch", "usage": {"cpu": "2", "memory": "1Gi"}}],
    }
    labels = {"namespace": "default", "pod": "bert-master-0", "what": "received"}
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster, n1=text())
        base = "/apis/metrics.k8s.io/v1beta1"
        usage = {"cpu": "31", "memory": "64Gi"}
        cluster.say(f"{base}/nodes", page([{"metadata": {"name": "n1"}, "usage": usage}]))
        cluster.say(f"{base}/namespaces/default/pods", page([pod]))
        cluster.say(QUERY, answering(**{'namespace="default"': vector((labels, 9.5))}))
        found = await reader_of(client, PROMETHEUS).read(rows_of("n1"), [bert()])
    of_node, of_pod = found.nodes["n1"].usage, found.pods["default", "bert-master-0"]
    assert of_node is not None
    assert (of_node.cpu_cores, of_node.source) == (31.0, Source.METRICS)
    assert of_pod.usage is not None
    assert of_pod.traffic is not None
    assert (of_pod.usage.cpu_cores, of_pod.traffic.received_bps) == (2.0, 9.5)


async def test_a_missing_metrics_server_and_prometheus_are_searched_once() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster, n1=text())
        reader = reader_of(client)
        await reader.read(rows_of("n1"), [bert()])
        asked = [each.path for each in cluster.requests]
        await reader.read(rows_of("n1"), [bert()])
    again = [each.path for each in cluster.requests][len(asked) :]
    assert again == [proxy_path("n1")]


async def test_gpus_of_a_sandbox_node_are_read_from_nvml_through_the_node_proxy() -> None:
    path = "/api/v1/nodes/sandbox-0:9400/proxy/metrics"
    row = replace(rows_of("sandbox-0")[0], versions={"kubelet": SANDBOX_VERSION})
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(path, text())
        found = await TelemetryReader(client, has_usage=False).read([row])
    assert {gpu.source for gpu in found.nodes["sandbox-0"].gpus} == {Source.NVML}
    assert [each.path for each in cluster.requests] == [path]


async def test_a_server_error_marks_the_node_unreachable_without_raising() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        gpu_cluster(cluster, n1=text())
        cluster.replace("/api/v1/pods", refusal(500, "broken"))
        found = await reader_of(client).read(rows_of("n1"))
    missing = found.nodes["n1"].missing
    assert missing is not None
    assert (missing.cause, missing.words) == (NoReadingsCause.UNREACHABLE, "broken")


_GONE = NoReadings(NoReadingsCause.UNREACHABLE, "dead")


def test_expired_refusals_are_forgotten() -> None:
    now_s = 0.0
    refusals = Refusals(lambda: now_s)
    tracemalloc.start()
    try:
        for number in range(20_000):  # nodes of a cluster that grows and shrinks, over days
            now_s += REFUSED_S
            refusals.suspend(("node", f"gpu-{number}"), _GONE)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100_000
    assert refusals.get(("node", "gpu-19999")) is _GONE
    assert refusals.get(("node", "gpu-0")) is None


def test_a_repeated_reading_adds_no_sample() -> None:
    history = GpuHistory()
    for at_s in (0, 0, 30, 30, 10):
        history.add([gpu(at_s=at_s)])
    assert [sample.at.second for sample in history.of(gpu().key)] == [0, 30]


def test_mig_instances_of_one_gpu_have_histories_of_their_own() -> None:
    history = GpuHistory()
    history.add([gpu(mig_id="1", utilisation=3.0), gpu(mig_id="2", utilisation=80.0)])
    assert [sample.utilisation for sample in history.of(GpuKey("a100-1", 0, "2"))] == [80.0]
    assert history.of(GpuKey("a100-1", 0)) == ()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1000)), max_size=80))
def test_a_history_is_bounded_by_gpus_and_by_samples_and_in_order(found: list[tuple[int, int]]) -> None:
    history = GpuHistory(most_samples=4, most_gpus=3)
    for index, at_s in found:
        history.add([gpu(index, at_s=at_s)])
    assert len(history.keys) <= 3
    for key in history.keys:
        samples = history.of(key)
        assert 1 <= len(samples) <= 4
        assert [sample.at for sample in samples] == sorted({sample.at for sample in samples})


def test_the_gpu_that_was_not_read_for_longest_is_forgotten_first() -> None:
    history = GpuHistory(most_gpus=2)
    history.add([gpu(0), gpu(1)])
    history.add([gpu(0, at_s=30)])
    history.add([gpu(2, at_s=60)])
    assert [key.index for key in history.keys] == [0, 2]


def test_samples_before_a_gap_are_excluded() -> None:
    history = observed(gpu(), for_s=300)
    observed(gpu(at_s=2000), for_s=60, history=history)
    history.add([gpu(1), gpu(1, at_s=2000)])
    assert len(since_gap(history.of(gpu(1).key))) == 1
    assert len(since_gap(history.of(gpu(2).key))) == 0
    since = since_gap(history.of(gpu().key))
    assert len(since) == 3
    assert since[-1].at - since[0].at == timedelta(seconds=60)


async def test_usage_of_nodes_and_pods_is_read_with_its_timestamp() -> None:
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


async def test_malformed_usage_is_unknown() -> None:
    later = (NOON + timedelta(hours=1)).isoformat()
    odd = {"metadata": {"name": "n1"}, "timestamp": later, "usage": {"cpu": "many", "gpu": "1"}}
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/apis/metrics.k8s.io/v1beta1/nodes", page([odd, {"metadata": []}]))
        found = await fetch_usage(client, NODE_METRICS, NOON)
    assert found == {("", "n1"): Usage(None, None, Source.METRICS, NOON)}


async def test_a_missing_metrics_server_raises_not_found() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        with pytest.raises(NotFound):
            await fetch_usage(client, NODE_METRICS, NOON)
