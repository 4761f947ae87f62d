"""The links between a node's GPUs as text: short enough for a small terminal, and in ASCII."""

from __future__ import annotations

from dataclasses import replace

from k8s.topology.ack import config_map, read_config_map
from k8s.topology.links import MACHINES, LinkMatrix
from k8s.topology.smi_text import read_topology
from tests.k8s.scheduling.test_requests import row
from tests.k8s.topology.texts import DGX_1V, H100, ONE
from tui.text.gpu_links import link_lines, place_line, schedule_line

V100 = """\
Links between its GPUs,
by nvidia-smi topo -m in pod gpu-operator/x:

         0   1   2   3   4   5   6   7
  GPU0   X NV1 NV1 NV2 NV2 SYS SYS SYS   bert
  GPU1 NV1   X NV2 NV1 SYS NV2 SYS SYS
  GPU2 NV1 NV2   X NV2 SYS SYS NV1 SYS
  GPU3 NV2 NV1 NV2   X SYS SYS SYS NV1   bert
  GPU4 NV2 SYS SYS SYS   X NV1 NV1 NV2
  GPU5 SYS NV2 SYS SYS NV1   X NV2 NV1
  GPU6 SYS SYS NV1 SYS NV1 NV2   X NV2
  GPU7 SYS SYS SYS NV1 NV2 NV1 NV2   X

Groups:
  NVLink   0 1 2 3 | 4 5 6 7

GB/s one way, NCCL's constant for the link type:
  NV2           40   2 NVLinks
  NV1           20   1 NVLink
  SYS            6   the link between CPU sockets

Best sets of its free GPUs:
  2 GPUs: 1 2, NV2, 40 GB/s between the slowest pair
  4 GPUs: 4-7, NV1, 20 GB/s between the slowest pair

Network adapters, with the GPUs nearest to each:
  mlx5_0   0 1 (PIX)
  mlx5_2   4 5 (PIX)
  mlx5_1   2 3 (PIX)
  mlx5_3   6 7 (PIX)"""


def test_the_full_link_report_of_a_dgx_1v_is_rendered() -> None:
    source = "nvidia-smi topo -m in pod gpu-operator/x"
    matrix = read_topology(DGX_1V, "Tesla-V100-SXM2-32GB", source)
    assert "\n".join(link_lines(row((2, (0, 3))), matrix)) == V100


def test_numa_nodes_and_unknown_free_gpus_are_shown_in_the_link_report() -> None:
    lines = link_lines(row((2, ())), read_topology(H100, "NVIDIA-H100-80GB-HBM3"))
    assert "  GPU2 NV18 NV18    X NV18   NUMA 1" in lines
    assert "Best sets (free GPUs are unknown):" in lines
    assert "  mlx5_bond_0   2 3 (PXB)" in lines


def test_measured_bandwidth_is_labelled_as_measured() -> None:
    v100 = MACHINES["dgx-1v"].matrix()
    measured = replace(
        v100,
        is_measured=True,
        bandwidth=tuple(tuple(each * 1.2 + (each == 20) for each in line) for line in v100.bandwidth),
    )
    lines = link_lines(row(), read_config_map(config_map("a", measured)))
    assert "GB/s one way, measured on the node:" in lines
    assert "  NV1           25   1 NVLink" in lines


def test_sixteen_gpus_fit_a_small_terminal_in_ascii() -> None:
    links = [["X" if a == b else "NV6" for b in range(16)] for a in range(16)]
    for matrix in (LinkMatrix.of(links, source="NVML"), MACHINES["pcie"].matrix(), read_topology(ONE)):
        lines = link_lines(row(), matrix)
        assert all(line.isascii() and len(line) <= 78 for line in lines)


def test_unknown_links_have_no_speed() -> None:
    lines = link_lines(row(), LinkMatrix.of([["X", "?"], ["?", "X"]]))
    assert "  ?              ?   not told" in lines
    assert "  2 GPUs: 0 1, ?, speed not known" in lines


def test_slices_of_gpus_use_no_links() -> None:
    lines = link_lines(replace(row(), mode="mig"), MACHINES["dgx-a100"].matrix())
    assert "Its GPUs are cut into slices (MIG), which use none of these links." in lines
    assert not any("Best sets" in line for line in lines)


def test_the_network_location_and_schedule_label_of_a_node_are_shown() -> None:
    node = replace(row(), network=("z", "", "b7", "r1", ""), schedule="topology")
    assert (place_line(node), schedule_line(node)) == (
        "zone z, block b7, rack r1",
        "ack.node.gpu.schedule=topology",
    )
    assert (place_line(row()), schedule_line(row())) == ("", "")
