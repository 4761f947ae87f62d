"""Parser for the output of `nvidia-smi topo -m`, from every driver since 2015.

A header names the devices: GPUs, then network adapters by their own name (`mlx5_0`) or, since
driver 520, as `NIC0` with a legend below; then `CPU Affinity`, `NUMA Affinity`, `GPU NUMA ID`, of which
older drivers lack the last ones. One row per device follows. Columns are separated by tabs, or by
spaces if the text was copied. Some drivers underline the header, even when not on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from k8s.gpus.links import SELF, LinkMatrix, link_name

COMMAND = ("nvidia-smi", "topo", "-m")
MAX_GPUS = 64
_MARKUP = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,3})")
_LINK = re.compile(r"X|N/A|SOC|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,2}")
# Neighbouring cells run together if there are many columns: `PXBNODE`.
_GLUED = re.compile(rf"(?:{_LINK.pattern}){{2,}}")
_NIC_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3})\s*:\s*(\S+)\s*")
# So do names of devices: `NIC8NIC9`, `NIC15CPU Affinity`.
_GLUED_NAMES = re.compile(r"(?<=\d)(?=(?:GPU|NIC|mlx\d_)\d|(?:CPU|NUMA) Aff|GPU NUMA)")
# First words of the columns after the devices: CPU Affinity, NUMA Affinity, GPU NUMA ID.
_HEADINGS = ("CPU", "NUMA", "GPU")


class UnreadableTopology(ValueError):
    """A text that holds no usable link matrix; the message is a full sentence."""


def read_topology(text: str, model: str = "", source: str = "") -> LinkMatrix:
    """Parse the link matrix.

    Args:
        text: Output of the command; other text around the matrix is ignored.
        model: GPU model, which determines the bandwidths.
        source: Origin of the text, for display.

    Raises:
        UnreadableTopology: The matrix is missing or incomplete.
    """
    lines = [line for line in _MARKUP.sub("", text).splitlines() if line.strip()]
    at = next((at for at, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise UnreadableTopology("It contains no GPU matrix.")
    devices, headings = _columns(lines[at])
    rows = _rows(lines[at + 1 :], devices)
    names = _nic_names(lines)
    gpus = [name for name in devices if _GPU.fullmatch(name)]
    if len(gpus) > MAX_GPUS:
        raise UnreadableTopology(f"It has {len(gpus)} GPUs, which no node has.")
    if missing := [name for name in gpus if name not in rows]:
        raise UnreadableTopology(f"The row of {missing[0]} is missing or cut off.")
    for name in gpus:
        if rows[name][0][devices.index(name)] != SELF:
            raise UnreadableTopology(f"The row of {name} does not fit the header.")
    nics = [name for name in devices if name not in gpus]
    matrix = LinkMatrix.of([_pick(rows[name][0], devices, gpus) for name in gpus], model, source)
    numbers = tuple(int(name.removeprefix("GPU")) for name in gpus)
    return replace(
        matrix,
        numbers=() if numbers == tuple(range(len(gpus))) else numbers,
        cpus=_affinity([rows[name][1] for name in gpus], headings, "CPU"),
        numa=_affinity([rows[name][1] for name in gpus], headings, "NUMA"),
        nics=tuple(names.get(name, name) for name in nics),
        nic_links=tuple(_pick(rows[name][0], devices, nics) for name in gpus) if nics else (),
    )


def _is_header(line: str) -> bool:
    cells = _GLUED_NAMES.sub(" ", line).split()
    return _GPU.fullmatch(cells[0]) is not None and (len(cells) < 2 or not _LINK.fullmatch(cells[1]))


def _columns(header: str) -> tuple[list[str], list[str]]:
    cells = _GLUED_NAMES.sub(" ", header).split()
    end = next((at for at, word in enumerate(cells) if word in _HEADINGS), len(cells))
    if len(set(cells[:end])) != end:
        raise UnreadableTopology("A device is named twice in its header.")
    # Of `GPU NUMA ID` the second word is no column of its own.
    headings = [
        word for at, word in enumerate(cells[end:], end) if word in _HEADINGS and cells[at - 1] != "GPU"
    ]
    return cells[:end], headings


def _rows(lines: Sequence[str], devices: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    # Rows that were cut off are dropped.
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for line in lines:
        cells = [
            cell
            for word in line.split()
            for cell in (_LINK.findall(word) if _GLUED.fullmatch(word) else [word])
        ]
        if cells[0] not in devices or cells[0] in rows:
            continue
        found = cells[1 : 1 + len(devices)]
        further = cells[1 + len(devices) : 2 + len(devices)]
        if further and further != ["N/A"] and _LINK.fullmatch(further[0]):
            raise UnreadableTopology(f"The row of {cells[0]} has more links than the header has devices.")
        if len(found) == len(devices) and all(map(_LINK.fullmatch, found)):
            rows[cells[0]] = [link_name(word) for word in found], _behind(line, cells, len(devices))
    return rows


def _behind(line: str, cells: Sequence[str], devices: int) -> list[str]:
    # Between tabs, an affinity may be empty.
    between_tabs = [cell.strip() for cell in line.split("\t")]
    is_empty = len(between_tabs) > devices + 1 and not between_tabs[devices + 1]
    return ["", *cells[devices + 1 :]] if is_empty else list(cells[devices + 1 :])


def _affinity(behind: Sequence[Sequence[str]], headings: Sequence[str], heading: str) -> tuple[str, ...]:
    if heading not in headings:
        return ()
    at = headings.index(heading)
    found = tuple(cells[at] if at < len(cells) else "" for cells in behind)
    return tuple("" if word == "N/A" else word for word in found) if any(found) else ()


def _pick(links: Sequence[str], devices: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(link for link, name in zip(links, devices, strict=True) if name in wanted)


def _nic_names(lines: Sequence[str]) -> Mapping[str, str]:
    return {found[1]: found[2] for line in lines if (found := _NIC_LEGEND.fullmatch(line))}
