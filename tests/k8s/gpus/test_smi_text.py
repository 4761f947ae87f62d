"""The matrix that nvidia-smi prints is read, whatever driver printed it; what is none is refused."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.gpus.gpu_links import MAX_GPUS, read_topology
from k8s.gpus.links import MACHINES, PCIE_LINKS, LinkMatrix, UnreadableTopology
from tests.k8s.gpus.texts import DGX_1V, H100, LEGEND, OLD, ONE, TWO_BY_HOST_BRIDGE


def test_a_dgx_1v_is_read_with_its_adapters_and_cpus() -> None:
    found = read_topology(DGX_1V + LEGEND, "Tesla-V100-SXM2-32GB", "somewhere")
    assert found.links == MACHINES["dgx-1v"].matrix().links
    assert found.bandwidth[0][:5] == (0.0, 20.0, 20.0, 40.0, 40.0)
    assert found.nics == ("mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3")
    assert found.nic_links[6] == ("SYS", "PHB", "SYS", "PIX")
    assert found.cpus == ("0-19,40-59",) * 4 + ("20-39,60-79",) * 4
    assert (found.numa, found.source, found.gpus) == ((), "somewhere", tuple(range(8)))


def test_adapters_have_the_names_of_the_legend() -> None:
    found = read_topology(H100 + LEGEND, "NVIDIA-H100-80GB-HBM3")
    assert found.nics == ("mlx5_0", "mlx5_bond_0")
    assert found.nic_links == (("PIX", "SYS"), ("NODE", "SYS"), ("SYS", "PXB"), ("SYS", "PXB"))
    assert found.numa == ("0", "0", "1", "1")
    assert found.bandwidth[0][1] == pytest.approx(18 * 20.6)


@pytest.mark.parametrize(
    ("text", "links", "numa"),
    [
        (TWO_BY_HOST_BRIDGE, (("X", "PHB"), ("PHB", "X")), ("0", "0")),
        (ONE, (("X",),), ()),
        (OLD, (("X", "PIX", "SYS"), ("PIX", "X", "SYS"), ("SYS", "SYS", "X")), ()),
    ],
    ids=["two", "one", "old"],
)
def test_small_machines_are_read(
    text: str, links: tuple[tuple[str, ...], ...], numa: tuple[str, ...]
) -> None:
    found = read_topology(text)
    assert (found.links, found.numa) == (links, numa)


def test_an_affinity_that_is_left_out_does_not_shift_the_others() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t\t0\nGPU1\tPHB\t X \t8-15\t1\n"
    found = read_topology(text)
    assert (found.cpus, found.numa) == (("", "8-15"), ("0", "1"))


def test_the_first_of_two_matrices_is_used() -> None:
    assert read_topology(TWO_BY_HOST_BRIDGE + OLD).links == (("X", "PHB"), ("PHB", "X"))
    again = TWO_BY_HOST_BRIDGE + TWO_BY_HOST_BRIDGE.replace("PHB", "SYS")
    assert read_topology(again).links == (("X", "PHB"), ("PHB", "X"))


def test_gpus_that_are_not_all_visible_keep_their_numbers() -> None:
    assert read_topology("\tGPU2\tGPU5\nGPU2\t X \tNV4\nGPU5\tNV4\t X \n").gpus == (2, 5)


def test_text_without_a_valid_matrix_is_rejected() -> None:
    for text, why in [
        ("", "It contains no GPU matrix"),
        ("No devices were found\n", "It contains no GPU matrix"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "no GPU matrix"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV1\n", "The row of GPU1 is missing"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV", "The row of GPU1 is missing"),
        ("\tGPU0\tGPU1\nGPU0\tNV1\t X \nGPU1\t X \tNV1\n", "does not fit the header"),
        ("\tGPU0\tGPU0\nGPU0\t X \tNV1\n", "named twice"),
        ("  GPU0 NIC9NIC1NIC1\nGPU0  X  PXB SYS SYS\n", "named twice"),
        ("  GPU0 GPU1 NIC8NI\nGPU0  X  NV4 PXB SYS\nGPU1 NV4  X  SYS PXB\n", "has more links"),
        ("  GPU0 GPU1\nGPU0  X  NV4 NODE NODE  0-15\nGPU1 NV4  X  SYS SYS  0-15\n", "has more links"),
    ]:
        with pytest.raises(UnreadableTopology, match=why):
            read_topology(text)


def test_more_gpus_than_any_node_has_are_refused() -> None:
    size = MAX_GPUS + 1
    names = [f"GPU{at}" for at in range(size)]
    rows = [
        "\t".join((name, *("X" if a == b else "SYS" for b in range(size)))) for a, name in enumerate(names)
    ]
    with pytest.raises(UnreadableTopology, match="65 GPUs"):
        read_topology("\t".join(("", *names)) + "\n" + "\n".join(rows))


def _text_of(matrix: LinkMatrix, extra: list[str], *, has_tabs: bool, headings: int, is_marked: bool) -> str:
    """Print a matrix as a driver would, with other devices behind the GPUs."""
    gpus = [f"GPU{number}" for number in matrix.gpus]
    titles = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][:headings]
    header = ["", *gpus, *extra, *titles]
    lines = []
    for at, name in enumerate(gpus):
        links = [f" {link} " if link == "X" else link for link in matrix.links[at]]
        behind = ["0-3,8", str(at % 2), "N/A"][:headings]
        lines.append([name, *links, *("SYS" for _ in extra), *behind])
    for name in extra:
        links = ["SYS" for _ in gpus] + [" X " if other == name else "PIX" for other in extra]
        lines.append([name, *links, *("" for _ in titles)])
    joined = [("\t" if has_tabs else "   ").join(line) for line in [header, *lines]]
    if is_marked:
        joined[0] = f"\x1b[4m{joined[0]}\x1b[0m"
    return "\n".join(joined) + "\n" + LEGEND


@st.composite
def matrices(draw: st.DrawFn, most: int = 10) -> LinkMatrix:
    size = draw(st.integers(1, most))
    names = st.sampled_from([*PCIE_LINKS, *(f"NV{links}" for links in range(1, 19))])
    upper = {(a, b): draw(names) for a in range(size) for b in range(a + 1, size)}
    rows = [["X" if a == b else upper[min(a, b), max(a, b)] for b in range(size)] for a in range(size)]
    return LinkMatrix.of(rows)


@given(
    matrices(),
    st.lists(
        st.from_regex(re.compile(r"(mlx5|NIC|bnxt_re|qedr)_?[0-9]{1,2}"), fullmatch=True),
        unique=True,
        max_size=4,
    ),
    st.booleans(),
    st.integers(0, 3),
    st.booleans(),
)
def test_every_matrix_that_can_be_printed_is_read_back(
    matrix: LinkMatrix, extra: list[str], has_tabs: bool, headings: int, is_marked: bool
) -> None:
    text = _text_of(matrix, extra, has_tabs=has_tabs, headings=headings, is_marked=is_marked)
    found = read_topology(text)
    assert (found.links, found.bandwidth, found.gpus) == (matrix.links, matrix.bandwidth, matrix.gpus)
    assert found.nics == tuple(extra)
    assert found.cpus == (("0-3,8",) * len(matrix.links) if headings else ())
    assert found.numa == (tuple(str(at % 2) for at in range(len(matrix.links))) if headings > 1 else ())


@given(st.data())
def test_a_text_that_is_cut_or_changed_is_read_whole_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([DGX_1V, H100, OLD, TWO_BY_HOST_BRIDGE]))
    start, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
    changed = text[:start] + data.draw(st.text(max_size=8)) + text[end:]
    try:
        found = read_topology(changed)
    except UnreadableTopology:
        return
    assert all(len(row) == len(found.links) for row in (*found.links, *found.bandwidth))
    assert all(found.links[at][at] == "X" for at in range(len(found.links)))


@given(st.text(alphabet="GPU0123 X\tNV\nSYPIMLmlx5_\x1b[4m"))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(UnreadableTopology):
        read_topology(text)


def test_adjoining_wide_cells_are_separated() -> None:
    """As a driver prints 8 B200 with 16 adapters, whose columns from NIC10 on are too narrow."""
    gpus, nics = [f"GPU{at}" for at in range(8)], [f"NIC{at}" for at in range(16)]
    lines = ["  ".join(["", *gpus, *nics, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for at, name in enumerate(gpus):
        near = ["PXB" if nic // 2 == at else "NODE" if nic // 8 == at // 4 else "SYS" for nic in range(16)]
        links = "  ".join("X" if other == at else "NV18" for other in range(8))
        lines.append(
            f"{name}  {links}  {'  '.join(near[:10])}  {''.join(near[10:])}  0-55,112-167  {at // 4}  N/A"
        )
    found = read_topology("\n".join(lines))
    assert found.nic_links[6][10:] == ("NODE", "NODE", "PXB", "PXB", "NODE", "NODE")
    assert found.nic_links[0][:3] == ("PXB", "PXB", "NODE")
    assert (found.cpus[7], found.numa[7]) == ("0-55,112-167", "1")
    for wide in ("  NIC9  NIC10  NIC11  ", "NIC15  CPU"):
        lines[0] = lines[0].replace(wide, "".join(wide.split()))
    assert read_topology("\n".join(lines)) == found
