"""Objects as servers send them: recorded ones, odd ones, broken ones."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.kinds.parse import QUEUES, USERS
from k8s.models import WATCH_LINE, Node, Pod, Reader, meta_of
from k8s.models.base import MAX_SHARED, gpuconsole_annotations, shared
from k8s.models.event import Event
from k8s.models.quantity import count, parse
from tests.support.objects import GPU, RECORDED, listed, node, pod_of, pytorch_job, read_jobs, recorded

PODS: Reader[Pod] = Reader(Pod)
NODES: Reader[Node] = Reader(Node)
EVENTS: Reader[Event] = Reader(Event)


def test_every_recorded_object_is_read() -> None:
    for name, reader, amount in (("nodes", NODES, 3), ("pods", PODS, 14)):
        where, items, unreadable = reader.read_list((RECORDED / f"{name}.json").read_bytes())
        assert (len(items), unreadable, where.resource_version) == (amount, 0, "2962")


def test_a_recorded_pod_keeps_the_displayed_fields() -> None:
    pods = {pod.metadata.name: pod for pod in PODS.read_list((RECORDED / "pods.json").read_bytes())[1]}
    pod = pods["restarts-master-0"]
    assert pod.spec.node_name == "gpu-node-0"
    assert pod.status.container_statuses is not None
    assert pod.status.container_statuses[0].restart_count > 0
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.kind == "PyTorchJob"
    assert pod.metadata.creation_timestamp is not None


def nulls_everywhere(found: Any) -> list[Any]:
    """Return copies of an object, in each of which one value is null."""
    copies: list[Any] = []
    pairs = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in pairs:
        for inner in [None, *nulls_everywhere(value)]:
            copy = dict(found) if isinstance(found, dict) else list(found)
            copy[key] = inner
            copies.append(copy)
    return copies


@pytest.mark.parametrize(("name", "reader"), [("nodes", NODES), ("pods", PODS)])
def test_no_object_is_lost_because_of_any_one_null(name: str, reader: Reader[Any]) -> None:
    checked = 0
    for original in recorded(name):
        original["metadata"].pop("managedFields", None)
        for obj in nulls_everywhere(original):
            if obj["metadata"] is not None:
                reader.read(json.dumps(obj).encode())
                checked += 1
    assert checked > 100


def test_a_null_in_a_required_field_is_rejected() -> None:
    with pytest.raises(msgspec.ValidationError):
        PODS.read(b'{"metadata": null}')


def test_a_null_field_is_dropped_without_losing_other_fields() -> None:
    body = {
        "metadata": {"name": "a", "uid": None, "labels": {"x": None, "y": "z"}, "creationTimestamp": None},
        "status": {
            "phase": "Failed",
            "reason": None,
            "containerStatuses": [None, {"name": "c", "state": None}],
        },
    }
    pod = PODS.read(json.dumps(body).encode())
    assert pod.metadata.labels == {"y": "z"}
    assert pod.status.phase == "Failed"
    assert pod.status.container_statuses is not None
    assert [status.name for status in pod.status.container_statuses] == ["c"]


def test_one_broken_item_is_left_out_and_counted() -> None:
    good = pod_of(pytorch_job("bert"), "master-0")
    where, items, unreadable = PODS.read_list(listed(good, {"metadata": {"name": 7}}, None, "pod", good))
    assert [pod.metadata.name for pod in items] == ["bert-master-0", "bert-master-0"]
    assert unreadable == 3
    assert where.resource_version == "1"


def test_an_item_that_is_no_utf8_is_left_out_and_counted() -> None:
    items_of = b'[{"metadata":{"name":"\xff"}},{"metadata":{"name":"b"}}]'
    body = b'{"metadata":{"resourceVersion":"9"},"items":' + items_of + b"}"
    where, items, unreadable = PODS.read_list(body)
    assert [pod.metadata.name for pod in items] == ["b"]
    assert (unreadable, where.resource_version) == (1, "9")


@pytest.mark.parametrize("items", ["null", "[]"])
@pytest.mark.parametrize("metadata", ["null", "{}", '{"continue": null, "resourceVersion": null}'])
def test_an_empty_list_is_empty_however_it_is_written(items: str, metadata: str) -> None:
    where, found, unreadable = PODS.read_list(f'{{"metadata": {metadata}, "items": {items}}}'.encode())
    assert (where.continue_, found, unreadable) == ("", [], 0)


def test_a_malformed_list_raises_a_decode_error() -> None:
    for body in [
        b"",
        b"not json",
        b"[]",
        b'"x"',
        b'{"items": {}}',
        b'{"items": [',
        b'{"items":' + b"[" * 100_000,
    ]:
        with pytest.raises(msgspec.DecodeError):
            PODS.read_list(body)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"metadata": {"name": "\xff"}}', b'{"a":' + b"[" * 100_000])
def test_a_malformed_object_raises_a_decode_error(body: bytes) -> None:
    for reader in (PODS, Reader[Any](dict)):
        with pytest.raises(msgspec.DecodeError):
            reader.read(body)


def test_unknown_fields_are_skipped() -> None:
    new = node("a") | {"tomorrow": {"deep": [1, 2, {"x": None}]}}
    assert NODES.read(json.dumps(new).encode()).metadata.name == "a"


def test_events_of_the_old_and_the_new_api_both_have_a_time() -> None:
    old = EVENTS.read(b'{"metadata":{"name":"a"},"eventTime":null,"lastTimestamp":"2026-11-20T18:36:10Z"}')
    new = EVENTS.read(
        b'{"metadata":{"name":"a"},"eventTime":"2026-11-20T18:36:10.123456Z","lastTimestamp":null,"count":null}'
    )
    assert old.at is not None and new.at is not None
    assert new.at > old.at


def test_the_repetitions_of_an_event_give_its_time_count_and_source() -> None:
    kubelet = {"component": "kubelet"}
    series = {"count": 7, "lastObservedTime": "2026-11-20T18:36:50.5Z"}
    recent: dict[str, Any] = {"eventTime": "2026-11-20T18:36:10.25Z", "reportingComponent": "kueue"}
    cases: list[tuple[dict[str, Any], str, str, int, str]] = [
        (recent, "36:10.250000", "36:10.250000", 1, "kueue"),
        (recent | {"series": series, "firstTimestamp": None}, "36:10.250000", "36:50.500000", 7, "kueue"),
        (recent | {"series": {"count": None, "lastObservedTime": None}}, "36:10.250000", "36:10.250000", 1,
         "kueue"),
        # A component may write both.
        (
            {
                "series": series,
                "lastTimestamp": "2026-11-20T18:36:59Z",
                "count": 9,
                "source": kubelet,
                **recent,
            },
            "36:10.250000",
            "36:59.000000",
            9,
            "kubelet",
        ),
        ({"firstTimestamp": "2026-11-20T18:36:01Z", "series": series, "source": kubelet},
         "36:01.000000", "36:50.500000", 7, "kubelet"),
    ]  # fmt: skip
    for fields, first, last, times_seen, source in cases:
        found = EVENTS.read(json.dumps({"metadata": {"name": "a"}, **fields}).encode())
        assert found.first_timestamp is not None and found.at is not None
        times = [f"{at:%M:%S.%f}" for at in (found.first_timestamp, found.at)]
        assert (*times, found.count, found.source.component) == (first, last, times_seen, source)


def test_a_time_with_nanoseconds_is_parsed() -> None:
    pod = PODS.read(b'{"metadata":{"name":"a","creationTimestamp":"2026-11-20T18:36:10.123456789+01:00"}}')
    assert pod.metadata.creation_timestamp is not None
    assert pod.metadata.creation_timestamp.utctimetuple()[3:6] == (17, 36, 10)


def test_a_line_of_a_watch_keeps_its_object_as_bytes() -> None:
    event = WATCH_LINE.decode(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}')
    assert event.type == "ADDED"
    assert PODS.read(event.object).metadata.name == "a"


def test_the_metadata_of_any_object_are_read_with_their_nulls() -> None:
    assert meta_of({"metadata": {"name": "a", "labels": None, "uid": None}}).name == "a"
    assert meta_of({}).name == ""
    with pytest.raises(msgspec.ValidationError):
        meta_of({"metadata": "a"})


def test_unused_annotations_are_not_kept() -> None:
    body = pod_of(pytorch_job("bert"), "master-0")
    body["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    body["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "{" + " " * 4096 + "}",
        "arena.kubeflow.org/username": "li",
    }
    pod = PODS.read(json.dumps(body).encode())
    assert pod.metadata.annotations == {"arena.kubeflow.org/username": "li"}
    del body["metadata"]["annotations"]["arena.kubeflow.org/username"]
    assert PODS.read(json.dumps(body).encode()).metadata.annotations is None


def test_only_informative_pod_conditions_are_kept() -> None:
    claims = [
        ("Initialized", "True"),
        ("Ready", "True"),
        ("PodScheduled", "False"),
        ("DisruptionTarget", "True"),
    ]
    conditions = [{"type": kind, "status": truth} for kind, truth in claims]
    pod = PODS.read(json.dumps({"metadata": {}, "status": {"conditions": conditions}}).encode())
    assert [each.type for each in pod.status.conditions or ()] == ["PodScheduled", "DisruptionTarget"]
    pod = PODS.read(json.dumps({"metadata": {}, "status": {"conditions": conditions[:2]}}).encode())
    assert pod.status.conditions is None


def test_pods_of_a_job_share_equal_containers_owners_and_namespaces() -> None:
    bert = pytorch_job("bert", workers=3)
    _, (one, other), _ = PODS.read_list(listed(*(pod_of(bert, f"worker-{i}") for i in range(2))))
    assert one.spec.containers is other.spec.containers
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.metadata.namespace is other.metadata.namespace


def test_containers_with_different_limits_are_not_shared() -> None:
    bert = pytorch_job("bert")
    _, pods, _ = PODS.read_list(listed(*(pod_of(bert, f"worker-{gpus}", gpus=gpus) for gpus in (1, 8, 1))))
    limits = [pod.spec.containers[0].resources.limits for pod in pods if pod.spec.containers[0].resources]
    assert limits == [{GPU: "1"}, {GPU: "8"}, {GPU: "1"}]
    assert pods[0].spec.containers is pods[2].spec.containers


def test_the_cache_of_shared_values_is_bounded() -> None:
    for number in range(3 * MAX_SHARED):
        assert shared(("test", number), number) == number
    assert shared(("test", 0), "again") == "again"


def test_only_the_scheduling_fields_of_a_job_template_are_kept() -> None:
    bert = pytorch_job("bert", workers=2, gpus=4)
    spec = bert["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    spec |= {"nodeSelector": {"gpu": "a100"}, "priorityClassName": "high"}
    spec["containers"][0] |= {"env": [{"name": "A", "value": "b" * 4096}], "command": ["python"]}
    (job,) = read_jobs(bert)
    kept = {"name": "pytorch", "resources": {"limits": {GPU: 4}}}
    assert job.replicas[0].template["spec"]["containers"] == [kept]
    assert job.replicas[0].template["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert (job.priority, job.replicas[0].env, job.replicas[0].ranks) == ("high", (), (0, 1, 2, 3))


def test_annotations_naming_a_jobs_user_or_queue_are_kept() -> None:
    asked = (*USERS, *QUEUES)
    assert gpuconsole_annotations(dict.fromkeys(asked, "x")) == dict.fromkeys(asked, "x")


def test_a_quantity_is_exact() -> None:
    for text, value in [
        ("8", Fraction(8)),
        (8, Fraction(8)),
        ("500m", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("1Ki", Fraction(1024)),
        *((f"1{suffix}", Fraction(1000**power)) for power, suffix in enumerate("kMGTPE", 1)),
        *((f"1{suffix}i", Fraction(1024**power)) for power, suffix in enumerate("KMGTPE", 1)),
        *((f"1{suffix}", Fraction(1, 1000**power)) for power, suffix in enumerate("mun", 1)),
        ("80Gi", Fraction(80 * 2**30)),
        ("1.5Ei", Fraction(3 * 2**59)),
        ("100n", Fraction(1, 10**7)),
        ("1E", Fraction(10**18)),
        ("1E3", Fraction(1000)),
        ("1e-3", Fraction(1, 1000)),
        ("-2k", Fraction(-2000)),
        ("+5", Fraction(5)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
    ]:
        assert parse(text) == value


def test_an_invalid_quantity_raises_an_error() -> None:
    for text in [
        "",
        ".",
        "m",
        "1 Gi",
        " 1",
        "1\n",
        "1gi",
        "1Kib",
        "1e",
        "0x10",
        "1_000",
        "٣",
        "1e1000",
        float("nan"),
        float("inf"),
    ]:
        with pytest.raises(ValueError, match="is not a quantity"):
            parse(text)


@given(
    st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(["m", "", "k", "M", "Ki", "Gi", "Ei"])
)
def test_no_digit_of_any_number_is_lost(number: int, suffix: str) -> None:
    unit = parse(f"1{suffix}")
    assert parse(f"{number}{suffix}") == number * unit


@given(st.text() | st.floats() | st.integers())
def test_any_value_is_a_quantity_or_raises_value_error(found: str | float) -> None:
    try:
        parse(found)
    except ValueError:
        assert count(found) == 0


def test_devices_are_whole_and_a_part_of_one_takes_all_of_it() -> None:
    for text, devices in [("8", 8), ("7500m", 8), ("1k", 1000), ("lots", 0)]:
        assert count(text) == devices
    assert (count(8), count(float("inf"))) == (8, 0)
