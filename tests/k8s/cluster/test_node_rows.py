"""Properties of a node, its way of sharing GPUs, and their holders."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.cluster.node_rows import holder_of, memory_by_device, node_row, unready_nodes
from k8s.models import Meta, Node, Pod, convert
from k8s.snapshot import ClusterSnapshot, Holder, NodeRow, Share
from tests.support.objects import GPU, joined, node, pod_of, pytorch_job, recorded

MIG = "nvidia.com/mig-1g.10gb"
MEMORY, DEVICES = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
GIB = 2**30


def read_node(obj: dict[str, Any]) -> Node:
    found: Node = convert(obj, Node, strict=False)
    return found


def made(labels: dict[str, str] | None = None, **offers: int) -> Node:
    """Return a node with labels and this many of `nvidia_gpu` and similar resources."""
    obj = node("n1", gpus=0)
    obj["metadata"]["labels"] = labels or {}
    names = {
        "gpu": GPU,
        "aliyun": "aliyun.com/gpu",
        "amd": "amd.com/gpu",
        "mig": MIG,
        "memory": MEMORY,
        "devices": DEVICES,
        "shared": "nvidia.com/gpu.shared",
    }
    offered = {names.get(name, name): str(amount) for name, amount in offers.items()}
    obj["status"]["allocatable"] = offered
    obj["status"]["capacity"] = dict(offered)
    return read_node(obj)


def holder(limits: dict[str, str], *, name: str = "a", phase: str = "Running", **meta: Any) -> Holder | None:
    pod = pod_of(pytorch_job("bert"), "master-0", on="n1", phase=phase)
    pod["metadata"] |= {"name": name, **meta}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    found: Pod = convert(pod, Pod, strict=False)
    return holder_of(found, "bert")


def sure(found: Holder | None) -> Holder:
    assert found is not None
    return found


def test_the_gpu_sharing_mode_of_a_node_is_detected() -> None:
    cases: list[tuple[Node, str]] = [
        (made(gpu=8), "exclusive"),
        (made(gpu=128), "exclusive"),
        (made(memory=160, devices=2), "share"),
        (made(memory=160, gpu=2), "share"),
        (made({"ack.node.gpu.schedule": "topology"}, aliyun=8), "topology"),
        (made({"ack.node.gpu.schedule": "share"}, gpu=8), "exclusive"),
        (made(mig=7), "mig"),
        (made(mig=7, gpu=4), "exclusive, mig"),
        (
            made(
                {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"},
                gpu=7,
            ),
            "mig",
        ),
        (made({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "A100"}, gpu=8), "exclusive"),
        (made({"nvidia.com/gpu.sharing-strategy": "time-slicing"}, gpu=32), "time-slicing"),
        (made({"nvidia.com/gpu.sharing-strategy": "mps"}, gpu=32), "mps"),
        (made({"nvidia.com/gpu.sharing-strategy": "none"}, gpu=8), "exclusive"),
        (made(shared=10), "time-slicing"),
        (made(amd=8), "exclusive"),
        (made(), "normal"),
        (made({"nvidia.com/gpu.sharing-strategy": "mps"}), "normal"),
    ]
    for found, mode in cases:
        assert node_row(found, ()).mode == mode


def test_the_model_and_the_memory_of_a_gpu_come_from_labels() -> None:
    cases: list[tuple[dict[str, str], str, int]] = [
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"},
         "NVIDIA-H100-80GB-HBM3", 81559 * 2**20),
        ({"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, "Tesla-T4", 0),
        ({"aliyun.accelerator/nvidia_name": "Tesla-P4", "aliyun.accelerator/nvidia_mem": "7611MiB"},
         "Tesla-P4", 7611 * 2**20),
        ({"aliyun.accelerator/nvidia_name": "T4", "aliyun.accelerator/nvidia_mem": "16384"}, "T4", 16 * GIB),
        ({"aliyun.accelerator/nvidia_mem": "16GiB"}, "", 16 * GIB),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X", "amd.com/gpu.vram": "192G"},
         "AMD_Instinct_MI300X", 192 * GIB),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "nvidia-l4", 0),
        ({"nvidia.com/gpu.memory": "much"}, "", 0),
        ({}, "", 0),
    ]  # fmt: skip
    for labels, model, memory in cases:
        row = node_row(made(labels, gpu=8), ())
        assert (row.gpu_model, row.gpu_memory) == (model, memory)


def test_the_gpu_memory_of_a_recorded_node_is_read() -> None:
    rows = {row.name: row for row in (node_row(read_node(obj), ()) for obj in recorded("nodes"))}
    assert rows["gpu-node-1"].gpu_memory == 81559 * 2**20
    modes = {name: row.mode for name, row in rows.items()}
    assert modes == {"gpu-node-0": "exclusive", "gpu-node-1": "exclusive", "gpu-node-2": "mig"}


def test_gpushare_memory_is_shown_as_memory_and_not_as_devices() -> None:
    annotations = {"scheduler.framework.gpushare.allocation": '{"0":{"1":16},"1":{"1":8,"0":20}}'}
    one = sure(holder({MEMORY: "44"}, annotations=annotations))
    old = sure(holder({MEMORY: "20"}, annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"}))
    row = node_row(made(memory=160, devices=2), [one, old])
    assert (one.gpus, one.memory_by_device, one.devices) == (0, {1: 24, 0: 20}, (1, 0))
    assert (row.gpus_total, row.gpus_allocated, dict(row.resources)) == (0, 0, {})
    assert row.shared is not None
    assert (row.shared.total_gib, row.shared.allocated_gib, row.shared.devices) == (160, 64, 2)
    assert dict(row.shared.allocated_by_device) == {0: 40, 1: 24}
    assert row.shared.devices_allocated == pytest.approx(0.5 + 0.3)
    assert row.gpu_memory == 80 * GIB


def test_shared_memory_on_unknown_devices_gives_no_fraction_of_devices() -> None:
    row = node_row(made(memory=32, devices=2), [sure(holder({MEMORY: "8"}))])
    assert row.shared is not None
    assert (row.shared.allocated_gib, row.shared.devices_allocated) == (8, None)
    assert node_row(made(memory=32), ()).shared is not None
    assert node_row(made(memory=32), ()).gpu_memory == 0


def test_the_gpus_that_were_chosen_by_topology_are_named() -> None:
    cases: list[tuple[dict[str, str], tuple[int, ...]]] = [
        ({"topology.kubernetes.io/gpu-group": "0,3", "topology.kubernetes.io/gpu-visible": "0,1"}, (0, 3)),
        ({"topology.kubernetes.io/gpu-visible": "5"}, (5,)),
        ({"topology.kubernetes.io/gpu-group": "0,x"}, ()),
        ({"topology.kubernetes.io/gpu-group": "9" * 5000}, ()),
        ({}, ()),
    ]
    for chosen, numbers in cases:
        found = sure(holder({"aliyun.com/gpu": "2"}, annotations=chosen))
        assert (found.gpus, found.devices) == (2, numbers)


@settings(max_examples=50)
@given(st.text(max_size=40) | st.sampled_from(["[1]", '{"0": 1}', '{"0": {"x": 1, "1": "y"}}', "null", "{"]))
def test_a_malformed_gpushare_annotation_is_ignored(text: str) -> None:
    meta = Meta(annotations={"scheduler.framework.gpushare.allocation": text})
    assert memory_by_device(meta, 8) == {}


def test_a_device_index_with_thousands_of_digits_is_ignored() -> None:
    endless = "9" * 5000
    newer = Meta(annotations={"scheduler.framework.gpushare.allocation": f'{{"0": {{"{endless}": 8}}}}'})
    older = Meta(annotations={"ALIYUN_COM_GPU_MEM_IDX": endless})
    assert memory_by_device(newer, 8) == memory_by_device(older, 8) == {}


def test_a_pod_holds_gpus_from_when_it_is_bound_until_it_has_finished() -> None:
    cases: list[tuple[str, str, bool]] = [
        ("Running", "n1", True),
        ("Pending", "n1", True),
        ("Pending", "", False),
        ("Succeeded", "n1", False),
    ]
    for phase, on, holds in cases:
        pod = pod_of(pytorch_job("bert"), "master-0", on=on, phase=phase)
        found = holder_of(convert(pod, Pod, strict=False), "bert")
        assert (found is not None) == holds


def test_a_pod_being_deleted_holds_its_gpus_until_it_is_gone() -> None:
    found = holder({GPU: "8"}, deletionTimestamp="2026-11-20T18:36:10Z")
    assert sure(found).gpus == 8


def test_a_pod_without_accelerators_is_no_holder() -> None:
    assert holder({"cpu": "4"}) is None


def test_free_gpus_are_counted_only_on_schedulable_nodes() -> None:
    busy = [sure(holder({GPU: "3"}))]
    ready = node_row(read_node(node("n1")), busy)
    cordoned = node_row(read_node(node("n2", unschedulable=True)), ())
    away = node("n3")
    away["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    silent = node_row(read_node(away), ())
    over = node_row(read_node(node("n4", gpus=2, capacity=4)), busy)
    assert (ready.free, ready.gpus_free, ready.largest_free) == ({GPU: 5}, 5, 5)
    assert [row.free for row in (cordoned, silent)] == [{}, {}]
    assert (over.free, over.resources[GPU]) == ({GPU: 0}, Share(2, 3, 2))
    cluster = ClusterSnapshot(nodes=(ready, cordoned, silent, over))
    assert (cluster.gpus_free, cluster.largest_free, cluster.gpus_total) == (5, 5, 26)


def test_a_taint_that_no_toleration_of_a_gpu_pod_covers_is_shown() -> None:
    cases: list[tuple[list[str], str, int]] = [
        (["team=nlp:NoSchedule"], "Ready, tainted", 0),
        (["team:NoExecute"], "Ready, tainted", 0),
        (["team:PreferNoSchedule"], "Ready", 8),
        ([f"{GPU}:NoSchedule"], "Ready", 8),
        (["amd.com/gpu:NoSchedule"], "Ready, tainted", 0),
        (["node.kubernetes.io/unreachable:NoExecute"], "Ready", 8),
        ([f"{GPU}=present:NoSchedule", "team:NoSchedule"], "Ready, tainted", 0),
    ]
    for taints, status, free in cases:
        obj = node("n1")
        obj["spec"]["taints"] = [
            {"key": key, "value": value, "effect": effect}
            for taint in taints
            for key, _, value, effect in [
                (*taint.rpartition(":")[0].partition("="), taint.rpartition(":")[2])
            ]
        ]
        row = node_row(read_node(obj), ())
        assert (row.status, row.gpus_free, row.free_if_tolerated) == (status, free, {GPU: 8})


def test_free_gpus_of_a_cluster_may_lie_in_small_blocks() -> None:
    rows: tuple[NodeRow, ...] = tuple(
        node_row(read_node(node(f"n{size}", gpus=size)), ()) for size in (1, 2, 3)
    )
    cluster = ClusterSnapshot(nodes=rows)
    assert (cluster.gpus_free, cluster.largest_free) == (6, 3)
    assert ClusterSnapshot().largest_free == 0


def test_an_unready_node_is_named_with_its_problem() -> None:
    cases: list[tuple[list[dict[str, str]], str]] = [
        ([{"type": "Ready", "status": "Unknown"}], "its node n1 does not answer"),
        ([{"type": "Ready", "status": "False"}], "its node n1 is not ready"),
        ([{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}], ""),
        ([], ""),
    ]
    for conditions, words in cases:
        found = node("n1")
        found["status"]["conditions"] = conditions
        assert unready_nodes([read_node(found)]).get("n1", "") == words


def test_a_node_names_each_job_that_holds_gpus_once_largest_first() -> None:
    wide, small = pytorch_job("wide", workers=3, gpus=2), pytorch_job("small", gpus=1)
    pods = [pod_of(wide, place, on="n1", gpus=2) for place in ("master-0", "worker-0", "worker-1")]
    rows, _ = joined([node("n1")], [pod_of(small, "master-0", on="n1", gpus=1), *pods], [wide, small])
    assert rows["n1"].jobs == (("default", "wide", "6"), ("default", "small", "1"))


def test_a_node_row_has_its_taints_and_condition_transition_times() -> None:
    at = "2026-11-21T10:00:00Z"
    obj = node("a", taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}])
    obj["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": at}]
    row = joined([obj], [], [])[0]["a"]
    assert [(each.effect, each.key, each.value) for each in row.taints] == [("NoSchedule", "gpu", "only")]
    assert [(each.type, each.last_transition_time) for each in row.conditions] == [("Ready", stamp(at))]


@pytest.mark.parametrize(
    ("status", "heard", "changed", "since"),
    [
        ("Unknown", "10:00:00", "10:00:50", "10:00:00"),
        ("Unknown", "09:56:00", "10:00:50", "10:00:00"),
        ("Unknown", "10:01:00", "10:00:50", "10:00:50"),
        ("Unknown", None, "10:00:50", "10:00:50"),
        ("Unknown", "10:00:00", None, None),
        ("False", "10:00:00", "10:00:50", "10:00:50"),
    ],
    ids=["stopped", "reported minutes before", "odd clock", "no report", "no change", "kubelet says so"],
)
def test_an_unknown_node_counts_since_its_last_heartbeat_if_plausible(
    status: str, heard: str | None, changed: str | None, since: str | None
) -> None:
    obj = node("a")
    times = {"lastHeartbeatTime": heard, "lastTransitionTime": changed}
    stamps = {key: f"2026-11-21T{at}Z" for key, at in times.items() if at}
    obj["status"]["conditions"] = [{"type": "Ready", "status": status, **stamps}]
    ready = joined([obj], [], [])[0]["a"].conditions[0]
    assert ready.since == (stamp(f"2026-11-21T{since}Z") if since else None)


def test_the_newer_of_two_nodes_with_the_same_name_is_shown() -> None:
    old, new = node("a", 4), node("a", 8)
    old["metadata"] |= {"uid": "old", "creationTimestamp": "2026-11-20T10:00:00Z"}
    new["metadata"] |= {"uid": "new", "creationTimestamp": "2026-11-21T10:00:00Z"}
    for nodes in ([old, new], [new, old]):
        assert joined(nodes, [], [])[0]["a"].resources[GPU].total == 8


def test_a_new_kubelet_heartbeat_alone_does_not_change_the_node_row() -> None:
    first, second = node("a"), node("a")
    for obj, minute in ((first, 0), (second, 5)):
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-11-21T10:0{minute}:00Z"}
        obj["status"]["conditions"] = [ready]
    assert joined([first], [], [])[0]["a"] == joined([second], [], [])[0]["a"]


def test_a_holder_has_the_time_since_which_it_holds_gpus() -> None:
    bert = pytorch_job("bert", workers=2, gpus=1)
    began, made = "2026-11-21T10:00:00Z", "2026-11-21T09:00:00Z"
    first = pod_of(bert, "master-0", on="a", gpus=1, startTime=began)
    second = pod_of(bert, "worker-0", on="a", gpus=1, phase="Pending")
    second["metadata"]["creationTimestamp"] = made
    holders = joined([node("a")], [first, second], [bert])[0]["a"].holders
    assert [(each.since, each.phase) for each in holders] == [
        (stamp(began), "Running"),
        (stamp(made), "Pending"),
    ]


def stamp(text: str) -> datetime:
    return datetime.fromisoformat(text)
