"""Links between a node's GPUs: their sources and speeds, and the best set of GPUs, proven by brute force."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s.gpus.ack import config_map, describe_schedule, node_of, other_schedule, read_config_map, set_schedule
from k8s.gpus.gpu_links import NEEDS, UnknownLinks, fetch_known_links, fetch_links, read_topology
from k8s.gpus.gpu_set import best_set, measure, split
from k8s.gpus.links import (
    MACHINES,
    LinkMatrix,
    UnreadableTopology,
    distance,
    groups_of,
    link_bandwidth,
    link_name,
)
from k8s.gpus.nvml import read_nvml
from k8s.models.node import neighbourhoods, network_path
from k8s.snapshot import Holder, NodeRow, Share
from k8s.text.errors import KubeError
from tests.k8s.gpus.texts import DGX_1V, H100, LEGEND, OLD, TWO_BY_HOST_BRIDGE
from tests.scripted.server import SUCCESS, Answer, ScriptedCluster, Socket, page, refusal
from tests.support.nvml import ScriptedNvml
from tests.support.objects import GPU

pytestmark = pytest.mark.usefixtures("every_gpu")

V100 = MACHINES["dgx-1v"].matrix()
ARENA_LINKS = [
    ["N-A", "NV2", "NV1", "NV2"],
    ["NV2", "N-A", "NV2", "NV1"],
    ["NV1", "NV2", "N-A", "NV1"],
    ["NV2", "NV1", "N-A"],
]
ARENA_BANDWIDTH = [
    [738.42, 96.44, 48.37, 96.19],
    [96.26, 744.05, 96.23, 48.36],
    [48.37, 96.24, 744.76, 48.37],
    [96.23, 48.37, 744.76],
]
"""The matrices in the comment of Arena's source, with the last row as short as it is there."""


def stored(links: Any = None, bandwidth: Any = None, devices: Any = None) -> dict[str, Any]:
    """Return a ConfigMap as ACK's component writes it."""
    contents = {"linkType": links, "bandwidth": bandwidth, "devices": devices}
    return {
        "metadata": {"name": "topo-a", "labels": {"nodename": "node-a"}},
        "data": {key: json.dumps(value) for key, value in contents.items() if value is not None},
    }


def test_link_bandwidths_match_the_assumptions_of_nccl() -> None:
    for link, model, gbytes in [
        ("NV2", "Tesla-V100-SXM2-32GB", 40.0),
        ("NV4", "Tesla-P100-SXM2-16GB", 72.0),
        ("NV12", "NVIDIA-A100-SXM4-80GB", 240.0),
        ("NV4", "NVIDIA-RTX-A6000", 48.0),
        ("NV18", "NVIDIA H100 80GB HBM3", 370.8),
        ("NV18", "NVIDIA-B200", 721.8),
        ("PIX", "NVIDIA-A100-PCIE-40GB", 24.0),
        ("PHB", "NVIDIA-A100-PCIE-40GB", 20.0),
        ("SYS", "NVIDIA-A100-PCIE-40GB", 16.0),
        ("SYS", "", 6.0),
        ("?", "NVIDIA-B200", 0.0),
        ("X", "NVIDIA-B200", 0.0),
    ]:
        assert link_bandwidth(link, model) == pytest.approx(gbytes)


def test_a_farther_link_is_never_faster() -> None:
    for model in ["", "Tesla-V100", "NVIDIA-A100", "NVIDIA-A10", "NVIDIA-H100", "NVIDIA-B200"]:
        names = ["NV18", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS"]
        speeds = [link_bandwidth(name, model) for name in names]
        assert speeds == sorted(speeds, reverse=True)
        assert [distance(name) for name in names] == [0, 0, 1, 2, 3, 4, 5]


def test_link_names_of_old_drivers_and_of_ack_are_normalized() -> None:
    names = {"SOC": "SYS", "N-A": "X", " nv2 ": "NV2", "GNS": "?", "NV0": "?", "": "?"}
    assert {text: link_name(text) for text in names} == names


def test_links_measured_by_ack_are_read_from_its_config_map() -> None:
    found = read_config_map(stored(ARENA_LINKS, ARENA_BANDWIDTH))
    assert found.links[0] == ("X", "NV2", "NV1", "NV2")
    assert found.links[3] == ("NV2", "NV1", "NV1", "X")
    assert (found.bandwidth[0], found.between(0, 1)) == ((0.0, 96.44, 48.37, 96.19), 96.26)
    assert (found.is_measured, found.source) == (True, "ConfigMap kube-system/topo-a")


def test_missing_bandwidths_are_replaced_by_constants() -> None:
    for bandwidth in [None, [[1, 2]], [], "x", [[0] * 4] * 4, [["a"] * 4] * 4, [[10**400] * 4] * 4]:
        found = read_config_map(stored(ARENA_LINKS, bandwidth), "Tesla-V100-SXM2-32GB")
        assert not found.is_measured
        assert found.bandwidth[0] == (0.0, 40.0, 20.0, 40.0)


def test_a_config_map_without_links_is_refused() -> None:
    unusable: list[Any] = [None, [], {}, "NV1", [1, 2], 3]
    for links in unusable:
        with pytest.raises(UnreadableTopology, match="ConfigMap topo-a has no matrix"):
            read_config_map(stored(links))


values = st.none() | st.booleans() | st.floats() | st.text(max_size=4)


@given(st.recursive(values, lambda inner: st.lists(inner, max_size=4)))
def test_any_config_map_is_read_or_rejected(content: Any) -> None:
    try:
        found = read_config_map(stored(content, content, content))
    except UnreadableTopology:
        return
    assert all(len(row) == len(found.links) for row in (*found.links, *found.bandwidth))


def test_the_node_of_a_config_map_is_read_from_its_label() -> None:
    assert (node_of(stored()), node_of({})) == ("node-a", "")


def test_a_node_with_one_gpu_has_no_measured_links() -> None:
    assert not read_config_map(stored([["N-A"]], [[745.2]])).is_measured


def test_a_matrix_is_written_as_ack_writes_it_and_read_back() -> None:
    written = config_map("node-a", V100)
    assert "bandwidth" not in written["data"]  # nobody measured it
    found = read_config_map(written, "Tesla-V100-SXM2-32GB")
    assert (found.links, found.bandwidth, node_of(written)) == (V100.links, V100.bandwidth, "node-a")
    measured = read_config_map(stored(ARENA_LINKS, ARENA_BANDWIDTH))
    assert read_config_map(config_map("a", measured)).bandwidth == measured.bandwidth


def test_gpus_are_grouped_by_their_links() -> None:
    assert groups_of(V100) == (("NVLink", ((0, 1, 2, 3), (4, 5, 6, 7))),)
    assert groups_of(MACHINES["pcie"].matrix()) == (
        ("PCIe switch", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("NUMA node", ((0, 1, 2, 3), (4, 5, 6, 7))),
    )
    assert groups_of(read_topology(H100)) == (("NVLink", ((0, 1, 2, 3),)), ("NUMA node", ((0, 1), (2, 3))))
    assert groups_of(read_topology(OLD)) == (("PCIe switch", ((0, 1), (2,))), ("NUMA node", ((0, 1), (2,))))


class LinkedNvml(ScriptedNvml):
    """A driver that says what a machine's GPUs are linked by, as NVML says it."""

    NVML_NVLINK_MAX_LINKS = 18

    def __init__(
        self,
        ends: list[list[int | str]],
        levels: Mapping[tuple[int, int], int] | None = None,
        *,
        has_driver: bool = True,
        knows_types: bool = True,
    ) -> None:
        super().__init__(len(ends), has_driver=has_driver)
        self.ends, self.levels, self.knows_types = ends, levels or {}, knows_types

    def nvmlDeviceGetName(self, _: int) -> str:
        return "Tesla V100-SXM2-16GB"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{handle + 6:02X}:00.0".encode())

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= len(self.ends[handle]):
            raise self.NVMLError("Not Supported")
        return int(self.ends[handle][link] != "off")

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        end = self.ends[handle][link]
        return SimpleNamespace(busId=f"0000:{end + 6:02x}:00.0" if isinstance(end, int) else "0000:c8:00.0")

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        if not self.knows_types:
            raise self.NVMLError("Function Not Found")
        return 2 if self.ends[handle][link] == "switch" else 1

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        if (one, other) not in self.levels:
            raise self.NVMLError("Not Supported")
        return self.levels[one, other]


def test_links_from_gpu_to_gpu_are_counted() -> None:
    levels = {(0, 2): 50, (2, 0): 50, (1, 2): 40, (2, 1): 40}
    nvml = LinkedNvml([[1, 1, "off"], [0, 0], []], levels)
    found = read_nvml(nvml)
    assert found is not None
    assert found.links == (("X", "NV2", "SYS"), ("NV2", "X", "NODE"), ("SYS", "NODE", "X"))
    assert (found.bandwidth[0][1], found.source, nvml.opened) == (40.0, "NVML", 0)


@pytest.mark.parametrize("knows_types", [True, False])
def test_gpus_at_switches_reach_each_other_over_all_their_links(knows_types: bool) -> None:
    found = read_nvml(
        LinkedNvml([["switch"] * 12, ["switch"] * 12, ["switch"] * 10], knows_types=knows_types)
    )
    assert found is not None
    assert found.links == (("X", "NV12", "NV10"), ("NV12", "X", "NV10"), ("NV10", "NV10", "X"))


def test_nvlinks_to_the_cpu_are_not_counted_between_gpus() -> None:
    found = read_nvml(LinkedNvml([["npu"] * 3, ["npu"] * 3], {(0, 1): 10, (1, 0): 20}))
    assert found is not None
    assert found.links == (("X", "PIX"), ("PXB", "X"))


def test_links_missing_from_nvml_are_unknown() -> None:
    found = read_nvml(LinkedNvml([[], []], {(0, 1): 30}))
    assert found is not None
    assert found.links == (("X", "PHB"), ("?", "X"))
    assert read_nvml(LinkedNvml([])) is None
    assert read_nvml(LinkedNvml([[]], has_driver=False)) is None


def test_the_network_path_of_a_node_is_read_from_its_labels() -> None:
    zone, rack = "topology.kubernetes.io/zone", "cloud.provider.com/topology-rack"
    leaf, clique = "network.topology.nvidia.com/leaf", "nvidia.com/gpu.clique"
    block, subblock = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"
    layers = {f"topology.k8s.aws/network-node-layer-{level}": f"nn-{level}" for level in (1, 2, 3)}
    for labels, path in [
        ({}, ("",) * 5),
        ({zone: "z", rack: "r"}, ("z", "", "", "r", "")),
        ({leaf: "s1", clique: "c.1"}, ("", "", "", "s1", "c.1")),
        (layers, ("", "nn-1", "nn-2", "nn-3", "")),
        ({block: "b", subblock: "s"}, ("", "", "b", "s", "")),
    ]:
        assert network_path(labels) == path


def test_nodes_are_near_when_they_share_rack_and_block() -> None:
    paths = {
        "a": ("", "", "b1", "r1", ""),
        "b": ("", "", "b1", "r1", ""),
        "c": ("", "", "b1", "r2", ""),
        "d": ("", "", "b2", "r1", ""),
        "e": ("",) * 5,
    }
    levels = [sorted(map(sorted, groups)) for groups in neighbourhoods(paths)]
    assert levels == [
        [["a"], ["b"], ["c"], ["d"], ["e"]],
        [["a", "b"], ["c"], ["d"]],
        [["a", "b", "c"], ["d"]],
        [["a", "b", "c", "d", "e"]],
    ]


def test_types_of_links_are_named_nearest_first() -> None:
    assert V100.names == ("NV2", "NV1", "SYS")
    assert LinkMatrix.of([["X", "?"], ["PIX", "X"]]).names == ("PIX", "?")


MAPS = "/api/v1/namespaces/kube-system/configmaps"
PODS = "/api/v1/pods"


def row(gpus: int = 8, schedule: str = "", *holders: Holder) -> NodeRow:
    share = {GPU: Share(gpus, sum(each.gpus for each in holders), 0)}
    return NodeRow(
        "a", "", (), "Ready", False, "Tesla-V100-SXM2-32GB", share, holders, None, schedule=schedule
    )


def pod(name: str, namespace: str = "gpu-operator", image: str = "x", gpus: int = 0) -> dict[str, Any]:
    limits = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    containers = [{"name": "sidecar", "image": "proxy"}, {"name": "main", "image": image, **limits}]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": "a", "containers": containers[1:] if gpus else containers},
    }


def exec_of(name: str, namespace: str = "gpu-operator") -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}/exec"


def printed(text: str = DGX_1V + LEGEND) -> Socket:
    return Socket([(1, text[:100].encode()), (1, text[100:].encode()), SUCCESS])


async def test_measured_links_are_preferred() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([config_map("a", MACHINES["dgx-1v"].matrix())]))
        found = await fetch_links(client, row())
        assert found.source == "ConfigMap kube-system/a-gpu-topology"
        (asked,) = cluster.asked(MAPS)
        assert asked.query["labelSelector"] == "ack.node.gpu.schedule=topology,nodename=a"
        assert not cluster.asked(PODS)


async def test_the_command_is_run_in_a_pod_that_sees_all_gpus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, refusal(403, "no", "Forbidden"))
        exporter = pod("nvidia-dcgm-exporter-x", image="nvcr.io/nvidia/k8s/dcgm-exporter:4.2")
        cluster.say(PODS, page([pod("web", "default"), exporter]))
        cluster.say(exec_of("nvidia-dcgm-exporter-x"), printed())
        found = await fetch_links(client, row())
        assert found.source == "nvidia-smi topo -m in pod gpu-operator/nvidia-dcgm-exporter-x"
        assert found.links == MACHINES["dgx-1v"].matrix().links
        assert found.bandwidth[0][3] == 40.0
        assert cluster.asked(PODS)[0].query["fieldSelector"] == "spec.nodeName=a,status.phase=Running"


async def test_a_pod_without_the_command_does_not_keep_the_next_from_being_tried() -> None:
    ended = Socket([(2, b"sh: nvidia-smi: not found\n"), (3, b'{"status": "Failure"}')])
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([]))
        driver = pod("nvidia-driver-daemonset-b")
        plugin = pod("plugin", "kube-system", "nvcr.io/nvidia/k8s-device-plugin:v0.17")
        few = pod("gpu-feature-discovery-q")
        cluster.say(PODS, page([few, plugin, driver]))
        cluster.say(exec_of("nvidia-driver-daemonset-b"), ended)
        cluster.say(exec_of("plugin", "kube-system"), refusal(403, "not you", "Forbidden"))
        cluster.say(exec_of("gpu-feature-discovery-q"), printed(TWO_BY_HOST_BRIDGE))
        with pytest.raises(UnknownLinks) as raised:
            await fetch_links(client, row())
        assert raised.value.what == "Could not read how the GPUs of a are linked."
        first, second, third = raised.value.why.splitlines()
        assert first == "gpu-operator/nvidia-driver-daemonset-b: sh: nvidia-smi: not found"
        assert second.startswith("kube-system/plugin: ") and "not you" in second
        assert third == "gpu-operator/gpu-feature-discovery-q sees 2 of 8 GPUs."
        assert raised.value.hint == NEEDS
        assert (await fetch_links(client, row(2))).links == (("X", "PHB"), ("PHB", "X"))


async def test_a_job_that_holds_all_gpus_sees_them_too() -> None:
    """Run the command in the user's own pod when no other namespace may be read."""
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, refusal(403, "no", "Forbidden"))
        cluster.say(PODS, refusal(403, "not all pods", "Forbidden"))
        cluster.say("/api/v1/namespaces/*", refusal(403, "not these", "Forbidden"))
        own = [pod("bert-0", "nlp", gpus=8), pod("a-vit-0", "nlp", gpus=4)]
        cluster.say("/api/v1/namespaces/nlp/pods", page(own))
        cluster.say(exec_of("bert-0", "nlp"), printed())
        assert (await fetch_links(client, row(), "nlp")).source.endswith("pod nlp/bert-0")
        assert not cluster.asked(exec_of("a-vit-0", "nlp"))


async def test_slices_are_not_counted_as_gpus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([]))
        cluster.say(PODS, page([pod("nvidia-dcgm-exporter-x")]))
        cluster.say(exec_of("nvidia-dcgm-exporter-x"), printed(TWO_BY_HOST_BRIDGE))
        assert len((await fetch_links(client, replace(row(14), mode="mig"))).links) == 2


async def test_unknown_links_are_explained_when_no_pod_sees_all_gpus() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([{"metadata": {"name": "odd"}, "data": {"linkType": "{"}}]))
        cluster.say(PODS, page([pod("web", "default")]))
        with pytest.raises(UnknownLinks) as raised:
            await fetch_links(client, row())
        assert raised.value.why.splitlines() == [
            "ConfigMap odd has no matrix in its linkType.",
            "No pod on it sees all of its GPUs.",
        ]


async def test_measured_links_of_all_nodes_are_read_in_one_request() -> None:
    maps = [config_map(name, MACHINES["dgx-1v"].matrix()) for name in ("a", "b")]
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([*maps, {"metadata": {"name": "odd"}}]), refusal(403, "no", "Forbidden"))
        found = await fetch_known_links(client, {"a": "NVIDIA-A100-SXM4-40GB"})
        assert sorted(found) == ["a", "b"]
        assert (found["a"].bandwidth[0][1], found["b"].bandwidth[0][1]) == (20.0, 20.0)
        assert await fetch_known_links(client, {}) == {}


async def test_the_label_is_set_and_the_answer_is_read() -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        labelled = {"metadata": {"name": "a", "labels": {"ack.node.gpu.schedule": "topology"}}}
        cluster.say("/api/v1/nodes/a", Answer(labelled), Answer({"metadata": {"name": "a"}}), method="PATCH")
        await set_schedule(client, "a", "topology")
        (asked,) = cluster.asked("/api/v1/nodes/a", method="PATCH")
        assert json.loads(asked.body) == labelled | {"metadata": {"labels": labelled["metadata"]["labels"]}}
        with pytest.raises(KubeError, match="the label is not there"):
            await set_schedule(client, "a", "default")


def test_the_label_goes_back_to_default() -> None:
    schedules = [other_schedule(row(8, value)) for value in ("", "default", "topology", "share")]
    assert schedules == ["topology", "topology", "default", "topology"]
    holder = Holder("default", "p", "bert", 4, {GPU: 4})
    words = describe_schedule(row(8, "", holder), "topology")
    assert words[0] == "Label ack.node.gpu.schedule=topology, now not set."
    assert words[-1] == "The pod that holds GPUs there runs on."
    back = describe_schedule(row(8, "topology", holder, holder), "default")
    assert back[0] == "Label ack.node.gpu.schedule=default, now topology."
    assert back[-1] == "The 2 pods that hold GPUs there run on."


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (replace(row(), is_simulated=True), "sandbox start --links dgx-1v"),
        (replace(row(), resources={"amd.com/gpu": Share(8, 0, 0)}), "They are not NVIDIA GPUs"),
    ],
)
async def test_no_pods_are_listed_for_simulated_or_non_nvidia_gpus(node: NodeRow, words: str) -> None:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(MAPS, page([]))
        with pytest.raises(UnknownLinks) as caught:
            await fetch_links(client, node)
        assert words in str(caught.value) and "DCGM" not in str(caught.value)
        assert not cluster.asked(PODS)


PCIE = MACHINES["pcie"].matrix()


def weighted(weights: list[list[float]]) -> LinkMatrix:
    """Make a matrix with measured bandwidths."""
    size = len(weights)
    links = tuple(tuple("X" if a == b else "NV1" for b in range(size)) for a in range(size))
    return LinkMatrix(links, tuple(map(tuple, weights)), is_measured=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LinkMatrix, list[int], int]:
    """Draw links, symmetric or not, of few or of many speeds; which GPUs are free; how many are wanted."""
    size = draw(st.integers(1, 9))
    speed = draw(
        st.sampled_from(
            [
                st.sampled_from([10.0, 20.0, 40.0]),
                st.integers(0, 50).map(float),
                st.integers(0, 99999).map(lambda n: n / 1000),
            ]
        )
    )
    weights = [[0.0 if a == b else draw(speed) for b in range(size)] for a in range(size)]
    free = draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1))
    return weighted(weights), free, draw(st.integers(1, len(free)))


@settings(max_examples=300)
@given(cases())
@pytest.mark.slow
def test_no_set_is_better_than_the_one_found(case: tuple[LinkMatrix, list[int], int]) -> None:
    matrix, free, count = case
    found = best_set(matrix, free, count)
    assert found is not None
    assert len(found.gpus) == count
    assert set(found.gpus) <= set(free)
    every = [measure(matrix, gpus) for gpus in combinations(sorted(free), count)]
    best = max((each.bottleneck, each.total) for each in every)
    assert (found.bottleneck, found.total) == best


def test_the_sets_of_a_dgx_1v() -> None:
    for free, gpus, link in [
        (range(8), (0, 1, 2, 3), "NV1"),
        (range(8), (0, 3), "NV2"),
        (range(8), (0, 2, 3), "NV1"),
        ((0, 1, 5, 6), (5, 6), "NV2"),
        ((0, 1, 6, 7), (6, 7), "NV2"),
        ((0, 5, 6), (0, 5, 6), "SYS"),
    ]:
        found = best_set(V100, free, len(gpus))
        assert found is not None
        assert (found.gpus, found.link) == (gpus, link)


def test_the_best_of_equal_sets_leaves_the_other_gpus_best_linked() -> None:
    """GPUs 0 and 1 share a switch; 2 has lost its neighbour: a job with one GPU takes that."""
    found = best_set(PCIE, (0, 1, 2), 1)
    assert found is not None
    assert (found.gpus, found.bottleneck, found.link) == ((2,), math.inf, "")


def test_too_few_free_gpus_are_no_set() -> None:
    assert best_set(V100, (0, 1), 3) is None
    assert best_set(V100, (), 1) is None
    assert best_set(V100, (0, 99), 2) is None
    assert best_set(V100, (0, 1), 0) is None


def test_numbers_that_do_not_begin_at_zero_are_kept() -> None:
    matrix = LinkMatrix(
        (("X", "PIX", "SYS"), ("PIX", "X", "SYS"), ("SYS", "SYS", "X")), PCIE.bandwidth, numbers=(2, 5, 7)
    )
    found = best_set(matrix, (2, 5, 7), 2)
    assert found is not None
    assert found.gpus == (2, 5)


@pytest.mark.parametrize("kind", ["noise", "two speeds", "uniform", "pairs"])
def test_the_best_set_of_sixteen_gpus_is_found_within_a_second(kind: str) -> None:
    chance = random.Random(7)
    kinds: dict[str, Callable[[int, int], float]] = {
        "noise": lambda a, b: round(chance.uniform(80, 100), 3),
        "two speeds": lambda a, b: chance.choice((10.0, 40.0)),
        "uniform": lambda a, b: 120.0,
        "pairs": lambda a, b: 24.0 if a // 2 == b // 2 else 16.0,
    }
    speeds = kinds[kind]
    weights = [[0.0] * 16 for _ in range(16)]
    for a, b in combinations(range(16), 2):
        weights[a][b] = weights[b][a] = speeds(a, b)
    matrix = weighted(weights)
    began_s = time.process_time()
    found = best_set(matrix, range(16), 8)
    took_s = time.process_time() - began_s
    assert found is not None
    every = (measure(matrix, gpus) for gpus in combinations(range(16), 8))
    assert (found.bottleneck, found.total) == max((each.bottleneck, each.total) for each in every)
    assert took_s < 1.0


def test_a_machine_with_more_gpus_gets_a_good_set() -> None:
    size = 32
    links = [
        ["X" if a == b else "NV4" if a // 8 == b // 8 else "SYS" for b in range(size)] for a in range(size)
    ]
    found = best_set(LinkMatrix.of(links), range(3, size), 8)
    assert found is not None
    assert found.link == "NV4"


def test_a_set_is_divided_among_pods_so_that_each_keeps_together() -> None:
    assert split(PCIE, (0, 1, 2, 3), (2, 2)) == [(0, 1), (2, 3)]
    assert split(V100, (0, 1, 2, 3), (1, 3)) == [(1,), (0, 2, 3)]
    assert split(V100, (0, 1), (1, 0, 1)) in ([(0,), (), (1,)], [(1,), (), (0,)])
    assert split(V100, (0, 1), (2, 1)) is None
