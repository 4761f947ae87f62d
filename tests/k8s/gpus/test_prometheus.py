from __future__ import annotations

import math
import re
import threading
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.client.proxied import ServiceAddress, parse_address
from k8s.gpus.dcgm import MAX_LINE_BYTES, METRICS, Sample, known, read_samples
from k8s.gpus.prometheus import (
    PrometheusReader,
    find_prometheus,
    gpu_expression,
    node_traffic_expression,
    pod_traffic_expression,
)
from k8s.gpus.readings import PodContainer, Source
from k8s.gpus.refusals import Refusals
from tests.scripted.server import Answer, Asked, Compute, Reply, ScriptedCluster, page, refusal
from tests.support.objects import joined, node
from tests.support.telemetry import NOON

K8S = ServiceAddress("monitoring", "prometheus-k8s", "web")
QUERY = f"{K8S.path}/api/v1/query"
NOW_S = 1_763_812_800.0


def vector(*series: tuple[dict[str, str], float]) -> Answer:
    """Answer as Prometheus does at `NOW_S`."""
    result = [{"metric": labels, "value": [NOW_S, str(value)]} for labels, value in series]
    return Answer({"status": "success", "data": {"resultType": "vector", "result": result}})


def service(name: str = "prometheus-k8s", namespace: str = "monitoring", **labels: str) -> dict[str, Any]:
    ports = [{"name": "web", "port": 9090}, {"name": "reloader-web", "port": 8080}]
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"ports": ports}}


def answering(**answers: Answer) -> Reply:
    """Answer each query by a word that is in it; those that nothing is said of with nothing."""

    def answer(asked: Asked) -> Reply:
        expression = asked.query["query"]
        return next((said for word, said in answers.items() if word in expression), vector())

    return Compute(answer)


def reader_of(client: Client, address: ServiceAddress | None = K8S) -> PrometheusReader:
    return PrometheusReader(client, Refusals(), lambda: NOON, address)


BUSY = {
    "__name__": "DCGM_FI_DEV_GPU_UTIL",
    "gpu": "0",
    "UUID": "GPU-1",
    "Hostname": "gpu-a.lan",
    "exported_namespace": "vision",
    "exported_pod": "bert-0",
    "exported_container": "pytorch",
    "namespace": "gpu-operator",
    "pod": "nvidia-dcgm-exporter-abc",
}


async def test_gpus_come_with_their_pods_and_with_the_moment_at_which_prometheus_read_them() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        other = {**BUSY, "Hostname": "elsewhere"}
        taken = {**BUSY, "read_at": "1"}
        del taken["__name__"]
        cluster.say(QUERY, vector((BUSY, 87), (other, 1), (taken, NOW_S - 21)))
        found = await reader_of(client).gpus(["gpu-a", "gpu-b"])
    assert list(found) == ["gpu-a"]
    (gpu,) = found["gpu-a"].gpus
    measured = gpu.utilisation, gpu.source, gpu.holders
    assert measured == (87.0, Source.PROMETHEUS, (PodContainer("vision", "bert-0", "pytorch"),))
    assert gpu.read_at == NOON - timedelta(seconds=21)


async def test_keys_are_answered_while_the_samples_of_many_nodes_are_sorted() -> None:
    threads: list[threading.Thread] = []

    def now() -> datetime:
        threads.append(threading.current_thread())
        return NOON

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(QUERY, vector((BUSY, 87)))
        found = await PrometheusReader(client, Refusals(), now, K8S).gpus(["gpu-a"])
    assert len(found["gpu-a"].gpus) == 1
    assert threads and threading.main_thread() not in threads


async def test_all_nodes_are_requested_in_one_prometheus_query() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(QUERY, vector())
        await reader_of(client).gpus(["gpu-a", "gpu-b.lan"])
    (asked,) = cluster.requests
    assert 'Hostname=~"(?:gpu-a|gpu-b[.]lan)(?:[.].*)?"' in asked.query["query"]


async def test_no_query_is_longer_than_the_proxies_on_the_way_take() -> None:
    nodes = [f"ip-10-0-{number}-100.eu-central-1.compute.internal" for number in range(40)]
    pods = [("vision", f"a-job-with-a-long-name-{number:04}-worker") for number in range(70)]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(QUERY, vector())
        reader = reader_of(client)
        await reader.gpus(nodes)
        await reader.traffic_of_pods(pods)
    queries = [asked.query["query"] for asked in cluster.requests]
    assert len(queries) == 5 + 3
    assert max(len(quote(query)) for query in queries) < 7000
    for name in (*(name.replace(".", "[.]") for name in nodes), *(pod for _, pod in pods)):
        assert any(name in query for query in queries)


def test_the_prometheus_query_covers_every_metric_in_use() -> None:
    pattern = re.search(r'__name__=~"([^"]+)"', gpu_expression(["n1"]))
    assert pattern is not None
    assert [name for name in METRICS if not re.fullmatch(pattern[1], name)] == []
    assert re.fullmatch(pattern[1], "DCGM_FI_DEV_VGPU_LICENSE_STATUS") is None


def test_the_timestamp_function_is_applied_only_to_plain_selectors() -> None:
    asked = re.findall(r"timestamp\(([^)]*\)?[^)]*)\)", gpu_expression(["n1"]))
    assert len(asked) == 4
    assert [each for each in asked if not each.startswith("DCGM_FI_DEV_FB_USED{") or " or " in each] == []


async def test_the_network_and_the_disks_of_pods_and_nodes_are_rates_by_their_names() -> None:
    rows, _ = joined([node("n1"), node("n2")], [], [])
    by_ip = replace(rows["n2"], ip="10.0.0.2")
    pod = {"namespace": "vision", "pod": "bert-0"}
    of_pods = vector(({**pod, "what": "received"}, 1e6), ({**pod, "what": "written"}, float("nan")))
    of_nodes = vector(
        ({"node": "n1", "instance": "10.0.0.1:10250", "what": "sent"}, 5.0),
        ({"instance": "10.0.0.2:10250", "what": "read"}, 7.0),
        ({"instance": "10.0.0.3:10250", "what": "read"}, 9.0),
    )
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(QUERY, answering(**{'pod=~"bert-0|gone"': of_pods, 'id="/"': of_nodes}))
        reader = reader_of(client)
        pods = await reader.traffic_of_pods([("vision", "bert-0"), ("vision", "gone")])
        nodes = await reader.traffic_of_nodes([rows["n1"], by_ip])
    assert list(pods) == [("vision", "bert-0")]
    traffic = pods["vision", "bert-0"]
    assert (traffic.received_bps, traffic.sent_bps, traffic.written_bps) == (1e6, None, None)
    assert traffic.source is Source.PROMETHEUS
    assert {name: (each.sent_bps, each.read_bps) for name, each in nodes.items()} == {
        "n1": (5.0, None),
        "n2": (None, 7.0),
    }


@pytest.mark.parametrize(
    "labels",
    [
        {"app.kubernetes.io/name": "prometheus"},
        {"app": "kube-prometheus-stack-prometheus"},
        {"operated-prometheus": "true"},
        {"kubernetes.io/service": "prometheus-service"},
    ],
    ids=str,
)
async def test_prometheus_is_found_by_the_labels_of_common_installers(labels: dict[str, str]) -> None:
    def answer(asked: Asked) -> Reply:
        key, _, values = re.sub(r" in |=", "\0", asked.query["labelSelector"], count=1).partition("\0")
        return page([service(**labels)] if labels.get(key) in values.strip("()").split(",") else [])

    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/api/v1/services", Compute(answer))
        assert await find_prometheus(client) == (K8S,)


async def test_the_prometheus_with_gpu_metrics_is_chosen() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        names = ("dead", "plain", "gpus")
        cluster.say("/api/v1/services", page([service(name) for name in names]))
        base = "/api/v1/namespaces/monitoring/services"
        cluster.say(f"{base}/dead:web/proxy/api/v1/query", refusal(503, "no endpoints available"))
        cluster.say(f"{base}/plain:web/proxy/api/v1/query", vector())
        gpus = answering(count=vector(({}, 16.0)), read_at=vector((BUSY, 3)))
        cluster.say(f"{base}/gpus:web/proxy/api/v1/query", gpus)
        found = await reader_of(client, None).gpus(["gpu-a"])
    assert found["gpu-a"].gpus[0].utilisation == 3.0


async def test_where_services_may_not_be_listed_the_usual_names_are_tried() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say("/api/v1/services", refusal(403, "no"))
        cluster.say(
            "/api/v1/namespaces/kube-system/services/prometheus-svc:prometheus/proxy/api/v1/query",
            vector((BUSY, 3)),
        )
        assert "gpu-a" in await reader_of(client, None).gpus(["gpu-a"])


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (refusal(403, "no", "Forbidden"), "You may not get services/proxy in namespace monitoring."),
        (refusal(404, "not found", "NotFound"), "No Prometheus was found in the cluster."),
        (Answer({"status": "error", "error": "parse error"}, 400), "It answers 400: parse error"),
        (Answer(b"<html>"), "The answer is malformed: JSON is malformed: invalid character (byte 0)"),
        (Answer({"status": "success", "data": {"resultType": "matrix", "result": []}}),
         "The answer is not a vector."),
        (vector(({"a": "b"}, 1.0)), ""),
    ],
)  # fmt: skip
async def test_a_failing_prometheus_is_reported_and_not_queried_again(reply: Reply, words: str) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(QUERY, reply)
        reader = reader_of(client)
        for _ in range(3):
            assert await reader.gpus(["gpu-a"]) == {}
    assert (reader.refused.words if reader.refused else "") == words
    assert len(cluster.asked(QUERY)) == (1 if words else 3)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("monitoring/prometheus-k8s:web", K8S),
        ("monitoring/prometheus", ServiceAddress("monitoring", "prometheus")),
        ("vm/https:select:8481/select/0/prometheus",
         ServiceAddress("vm", "select", "8481", "https", "/select/0/prometheus")),
    ],
)  # fmt: skip
def test_a_prometheus_address_survives_parsing_and_formatting(text: str, address: ServiceAddress) -> None:
    assert parse_address(text) == address
    assert address.name == text


def test_a_malformed_prometheus_address_is_rejected() -> None:
    for text in ["", "prometheus", "http://prometheus:9090", "a/b/../c", "a/b:c:d", "A/b"]:
        with pytest.raises(ValueError, match="not a service address"):
            parse_address(text)


def test_an_invalid_name_is_never_put_into_a_query() -> None:
    evil = 'x"} or up{job="'
    for expression in (gpu_expression(["n1", evil]), pod_traffic_expression([("ns", "pod"), ("ns", evil)])):
        assert "job" not in expression
    assert pod_traffic_expression([]) == ""
    assert node_traffic_expression().count("sum by (node,instance)") == 4


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)
FLOATS = st.floats(allow_nan=False)


def line(name: str, labels: dict[str, str], value: float) -> str:
    """Write a sample as an exporter does."""
    escaped = {
        key: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, text in labels.items()
    }
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{inside}}} {value!r}"


@given(st.lists(st.tuples(NAMES, LABELS, FLOATS), max_size=6))
@pytest.mark.slow
def test_written_samples_are_parsed_back_unchanged(written: list[tuple[str, dict[str, str], float]]) -> None:
    text = "\n".join(["# HELP a b", *(line(*each) for each in written), ""]).encode()
    assert list(read_samples(text)) == [Sample(*each) for each in written]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(text: bytes) -> None:
    for sample in read_samples(text):
        assert isinstance(sample.value, float)


@given(st.data())
def test_a_truncated_or_corrupt_text_is_read_without_an_error(data: st.DataObject) -> None:
    text = bytearray(b'm{gpu="0",UUID="GPU-1",pod="a\\"b"} 12 1700000000\nn 3\n')
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.integers(0, 255))
    list(read_samples(bytes(text[: data.draw(st.integers(0, len(text)))])))


def test_the_forms_that_exporters_use_are_all_read() -> None:
    text = b"""
# TYPE a gauge
a 1
a{} 2
a{x="1",} 3
a { x = "1" , y="2" } 4e2
a{x="1"} 5 1700000000000
a{x="1"} 6 # {trace="1"} 0.5
a{x="a\\\\b\\"c\\nd"} +Inf
\ta\tNaN
"""
    samples = list(read_samples(text))
    assert [sample.value for sample in samples[:7]] == [1, 2, 3, 400, 5, 6, math.inf]
    assert samples[3].labels == {"x": "1", "y": "2"}
    assert samples[6].labels == {"x": 'a\\b"c\nd'}
    assert math.isnan(samples[7].value)


def test_malformed_metric_lines_are_skipped_without_hiding_valid_lines() -> None:
    text = b'a{x="1 2\nb{x=1} 2\nc{x="1"}\nd{x="1"} two\ne{x="1" 3\n9f 1\n<html>\nok 1\n\xff\xfe 1\n'
    assert [sample.name for sample in read_samples(text)] == ["ok"]


def test_a_line_of_a_megabyte_is_passed_over_at_once() -> None:
    text = b'a{x="' + b"\\" * MAX_LINE_BYTES * 64 + b"\nok 1\n"
    assert [sample.name for sample in read_samples(text)] == ["ok"]


def test_only_the_requested_metrics_are_parsed() -> None:
    assert [sample.name for sample in read_samples(b"a 1\nb 2\nab 3\n", ["b"])] == ["b"]


def test_blank_negative_and_non_finite_values_are_unknown() -> None:
    blanks = [2147483632, 2147483634, 2.0**47, 140737488355330.0, 9223372036854775792, 9223372036854775794]
    assert [known(float(blank)) for blank in blanks] == [None] * len(blanks)
    assert [known(value) for value in (math.nan, math.inf, -1.0)] == [None, None, None]
    assert [known(value) for value in (0.0, 98.0, 183920441922.0)] == [0.0, 98.0, 183920441922.0]
