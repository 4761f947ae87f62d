"""The links between a node's GPUs as text: matrix, groups, best sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from k8s.gpus.gpu_set import GpuSet, best_sets, free_gpus
from k8s.gpus.links import LINK_WORDS, SELF, LinkMatrix, groups_of, is_nvlink
from k8s.models.gpu_sharing import SCHEDULE_LABEL
from k8s.models.node import LEVELS
from k8s.snapshot import NodeRow
from k8s.text.sanitize import sanitize

_SEPARATED = " | "
_INDENT = "  "


def link_lines(node: NodeRow, matrix: LinkMatrix) -> list[str]:
    """Describe the links between a node's GPUs, in ASCII."""
    simulated = " (simulated)" * node.is_simulated
    lines = [f"Links between its GPUs{simulated},", f"by {matrix.source}:", "", *matrix_lines(node, matrix)]
    if node.mode == "mig":
        lines += ["", "Its GPUs are cut into slices (MIG), which use none of these links."]
    if groups := groups_of(matrix):
        lines += ["", "Groups:"]
        width = max(len(each.title) for each in groups)
        for each in groups:
            numbers = _SEPARATED.join(" ".join(map(str, group)) for group in each.groups)
            lines.append(f"{_INDENT}{each.title:<{width}}   {numbers}")
    lines += ["", *_bandwidth_lines(matrix)]
    lines += _set_lines(node, matrix)
    lines += _nic_lines(matrix)
    return lines


def matrix_lines(node: NodeRow, matrix: LinkMatrix) -> list[str]:
    """Return the link matrix, one row per GPU, with NUMA node and holder."""
    names = [f"GPU{number}" for number in matrix.gpus]
    width = max([len(link) for row in matrix.links for link in row] + [len(str(max(matrix.gpus)))])
    first = max(map(len, names))
    holders = {device: each.job for each in node.holders for device in each.devices}
    header = f"{'':<{first}} " + " ".join(f"{number:>{width}}" for number in matrix.gpus)
    lines = [f"{_INDENT}{header}"]
    for at, name in enumerate(names):
        cells = " ".join(f"{link:>{width}}" for link in matrix.links[at])
        behind = [f"NUMA {matrix.numa[at]}"] if matrix.numa and matrix.numa[at] else []
        behind += [holders[number]] if (number := matrix.gpus[at]) in holders else []
        lines.append(f"{_INDENT}{name:<{first}} {cells}   {', '.join(behind)}".rstrip())
    return lines


def version_fields(node: NodeRow) -> list[tuple[str, str]]:
    """Return the software versions of a node with titles."""
    titles = ("OS", "Kernel", "Runtime", "Kubelet", "GPU driver", "CUDA")
    return list(zip(titles, map(sanitize, node.versions.values()), strict=False))


def place_line(node: NodeRow) -> str:
    """Return the network location of a node: `zone z, rack r7`; empty without labels."""
    known = ((name, value) for (name, _), value in zip(LEVELS, node.network, strict=False) if value)
    return ", ".join(f"{name} {value}" for name, value in known)


def schedule_line(node: NodeRow) -> str:
    """Return the GPU scheduling mode on Alibaba Cloud; empty without the label."""
    return f"{SCHEDULE_LABEL}={node.schedule}" if node.schedule else ""


def format_set(found: GpuSet) -> str:
    """Describe a set of GPUs: `4 GPUs: 0 4-6, NV1, 20 GB/s between the slowest pair`."""
    numbers = format_number(found.gpus)
    if math.isinf(found.bottleneck):
        return f"1 GPU: {numbers}"
    speed = f"{found.bottleneck:g} GB/s between the slowest pair" if found.bottleneck else "speed not known"
    return f"{len(found.gpus)} GPUs: {numbers}, {found.link}, {speed}"


def format_number(numbers: Sequence[int]) -> str:
    """Format sorted numbers with ranges: `0 4-6`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)


def describe_links(link: str) -> str:
    """Describe a link: `2 NVLinks`, `the link between CPU sockets`."""
    if is_nvlink(link):
        lanes = int(link.removeprefix("NV"))
        return f"{lanes} NVLink{'s' * (lanes > 1)}"
    return LINK_WORDS.get(link, "")


def _bandwidth_lines(matrix: LinkMatrix) -> list[str]:
    lines = [f"GB/s one way, {matrix.bandwidth_source}:"]
    for name in matrix.names:
        speeds = sorted(
            {
                matrix.bandwidth[row][column]
                for row, links in enumerate(matrix.links)
                for column, link in enumerate(links)
                if link == name
            }
        )
        lines.append(f"{_INDENT}{name:<4} {_range(speeds):>11}   {describe_links(name)}".rstrip())
    return lines if len(lines) > 1 else []


def _range(speeds: Sequence[float]) -> str:
    low, high = speeds[0], speeds[-1]
    if not high:
        return "?"
    return f"{high:g}" if low == high else f"{low:g}-{high:g}"


def _set_lines(node: NodeRow, matrix: LinkMatrix) -> list[str]:
    found = best_sets(node, matrix)
    if not found:
        return []
    is_known = free_gpus(node, matrix) is not None
    lines = ["", "Best sets of its free GPUs:" if is_known else "Best sets (free GPUs are unknown):"]
    return lines + [f"{_INDENT}{format_set(each)}" for each in found]


def _nic_lines(matrix: LinkMatrix) -> list[str]:
    if not matrix.nics:
        return []
    lines = ["", "Network adapters, with the GPUs nearest to each:"]
    for at, nic in enumerate(matrix.nics):
        near = _nearest(matrix.gpus, [links[at] for links in matrix.nic_links])
        lines.append(f"{_INDENT}{nic:<{max(map(len, matrix.nics))}}   {near}")
    return lines


def _nearest(gpus: Sequence[int], links: Iterable[str]) -> str:
    by_link: dict[str, list[int]] = {}
    for number, link in zip(gpus, links, strict=True):
        by_link.setdefault(link, []).append(number)
    nearest = next((link for link in LINK_WORDS if link in by_link), SELF)
    return f"{' '.join(map(str, by_link.get(nearest, ())))} ({nearest})"
