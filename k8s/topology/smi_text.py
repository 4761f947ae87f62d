"""Reads what `nvidia-smi topo -m` prints, as every driver since 2015 has printed it.

A header names the devices: GPUs, then network adapters by their own name (`mlx5_0`) or, since
driver 520, as `NIC0` with a legend below; then `CPU Affinity`, `NUMA Affinity`, `GPU NUMA ID`, of which
older drivers lack the last ones. A row each follows. Columns are divided by tabs, which become spaces
where the text was copied. Some drivers underline the header on terminals and elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from k8s.topology.links import SELF, LinkMatrix, link_name

COMMAND = ("nvidia-smi", "topo", "-m")
"""What prints it."""
MOST_GPUS = 64
"""A matrix of more is none."""
_MARKUP = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,3})")
_LINK = re.compile(r"X|N/A|SOC|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,2}")
_NIC_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3})\s*:\s*(\S+)\s*")
_HEADINGS = ("CPU", "NUMA", "GPU")
"""First words of the columns after the devices: CPU Affinity, NUMA Affinity, GPU NUMA ID."""


class UnreadableTopology(ValueError):
    """What was read is no matrix of links; its text says why, as a sentence."""


def read_topology(text: str, model: str = "", source: str = "") -> LinkMatrix:
    """Read the matrix.

    Args:
        text: What the command printed; what stands around the matrix is ignored.
        model: The GPUs' model, which decides how fast a link is.
        source: Where the text is from.

    Raises:
        UnreadableTopology: There is no matrix, or a part of it is missing.
    """
    lines = [line for line in _MARKUP.sub("", text).splitlines() if line.strip()]
    at = next((at for at, line in enumerate(lines) if _is_header(line)), None)
    if at is None:
        raise UnreadableTopology("There is no matrix of GPUs in it.")
    devices, headings = _columns(lines[at])
    rows = _rows(lines[at + 1 :], devices)
    names = _nic_names(lines)
    gpus = [name for name in devices if _GPU.fullmatch(name)]
    if len(gpus) > MOST_GPUS:
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
    """Tell whether a line names devices and no links."""
    words = line.split()
    return _GPU.fullmatch(words[0]) is not None and (len(words) < 2 or not _LINK.fullmatch(words[1]))


def _columns(header: str) -> tuple[list[str], list[str]]:
    """Return the devices, and which columns follow them."""
    words = header.split()
    end = next((at for at, word in enumerate(words) if word in _HEADINGS), len(words))
    if len(set(words[:end])) != end:
        raise UnreadableTopology("A device is named twice in its header.")
    # Of `GPU NUMA ID` the second word is no column of its own.
    headings = [
        word for at, word in enumerate(words[end:], end) if word in _HEADINGS and words[at - 1] != "GPU"
    ]
    return words[:end], headings


def _rows(lines: Sequence[str], devices: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return for each device its links, and what stands behind them; rows that are cut off are left out."""
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for line in lines:
        words = line.split()
        if words[0] not in devices or words[0] in rows:
            continue
        found = words[1 : 1 + len(devices)]
        if len(found) == len(devices) and all(map(_LINK.fullmatch, found)):
            rows[words[0]] = [link_name(word) for word in found], _behind(line, words, len(devices))
    return rows


def _behind(line: str, words: Sequence[str], devices: int) -> list[str]:
    """Return the affinities of a row; between tabs one may be empty."""
    cells = [cell.strip() for cell in line.split("\t")]
    is_empty = len(cells) > devices + 1 and not cells[devices + 1]
    return ["", *words[devices + 1 :]] if is_empty else list(words[devices + 1 :])


def _affinity(behind: Sequence[Sequence[str]], headings: Sequence[str], heading: str) -> tuple[str, ...]:
    if heading not in headings:
        return ()
    at = headings.index(heading)
    found = tuple(words[at] if at < len(words) else "" for words in behind)
    return tuple("" if word == "N/A" else word for word in found) if any(found) else ()


def _pick(links: Sequence[str], devices: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(link for link, name in zip(links, devices, strict=True) if name in wanted)


def _nic_names(lines: Sequence[str]) -> Mapping[str, str]:
    """Return what the legend calls the network adapters: `NIC0: mlx5_0`."""
    return {found[1]: found[2] for line in lines if (found := _NIC_LEGEND.fullmatch(line))}
