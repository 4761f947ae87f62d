"""Speeds of links and further sources for them: Alibaba Cloud's ConfigMap, NVML, labels of nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.gpus.ack import config_map, node_of, read_config_map
from k8s.gpus.gpu_links import read_topology
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
from tests.k8s.gpus.texts import H100, OLD

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


class ScriptedNvml:
    """A driver that says what a machine's GPUs are linked by, as NVML says it."""

    NVML_NVLINK_MAX_LINKS = 18

    class NVMLError(Exception):
        """The error of every call that the driver refuses."""

    def __init__(
        self,
        ends: list[list[int | str]],
        levels: Mapping[tuple[int, int], int] | None = None,
        *,
        has_driver: bool = True,
        knows_types: bool = True,
    ) -> None:
        self.ends = ends
        self.levels = levels or {}
        self.has_driver, self.knows_types = has_driver, knows_types
        self.shut_down = 0

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.shut_down += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.ends)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"Tesla V100-SXM2-16GB"

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
    nvml = ScriptedNvml([[1, 1, "off"], [0, 0], []], levels)
    found = read_nvml(nvml)
    assert found is not None
    assert found.links == (("X", "NV2", "SYS"), ("NV2", "X", "NODE"), ("SYS", "NODE", "X"))
    assert (found.bandwidth[0][1], found.source, nvml.shut_down) == (40.0, "NVML", 1)


@pytest.mark.parametrize("knows_types", [True, False])
def test_gpus_at_switches_reach_each_other_over_all_their_links(knows_types: bool) -> None:
    found = read_nvml(
        ScriptedNvml([["switch"] * 12, ["switch"] * 12, ["switch"] * 10], knows_types=knows_types)
    )
    assert found is not None
    assert found.links == (("X", "NV12", "NV10"), ("NV12", "X", "NV10"), ("NV10", "NV10", "X"))


def test_nvlinks_to_the_cpu_are_not_counted_between_gpus() -> None:
    found = read_nvml(ScriptedNvml([["npu"] * 3, ["npu"] * 3], {(0, 1): 10, (1, 0): 20}))
    assert found is not None
    assert found.links == (("X", "PIX"), ("PXB", "X"))


def test_links_missing_from_nvml_are_unknown() -> None:
    found = read_nvml(ScriptedNvml([[], []], {(0, 1): 30}))
    assert found is not None
    assert found.links == (("X", "PHB"), ("?", "X"))
    assert read_nvml(ScriptedNvml([])) is None
    assert read_nvml(ScriptedNvml([[]], has_driver=False)) is None


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
