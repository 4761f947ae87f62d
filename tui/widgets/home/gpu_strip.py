"""The strip of nodes above the jobs: every node while all fit, else what they come to in groups.

Pure: from nodes to lines of a given width. The first line is the heading; below it entries stand in a grid,
the same number of them in each line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from k8s.snapshot import NodeRow
from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_end, elide_middle, pad
from tui.text.format import Look, Run, compact_ranges, count, plural, shares
from tui.text.gpu_bar import BAD, FREE, HELD, LIT, MOST_CELLS, OFFERED, node_cells
from tui.widgets.home.node_groups import NodeGroup, NodeGroups, block_words, is_cordoned, is_unready

Lines = list[list[Run]]
"""Lines of the strip, each in pieces."""
MOST_NAME = 18
"""Cells that the name of a node gets at most."""
GROUP_CELLS = 12
"""Cells of the bar of a group."""
_TAIL = 8
"""Cells of what stands behind a node's GPUs: `6/8`, `cordoned`, `NotReady`."""
_GAP = 2
_INDENT = 1


@dataclass(frozen=True, slots=True)
class StripLight:
    """What is pointed at in the strip."""

    jobs: frozenset[tuple[str, str]] = frozenset()
    """The jobs whose GPUs are lit, each by its namespace and name."""
    held: Mapping[str, int] = field(default_factory=dict)
    """How many GPUs they hold on each node."""
    offered: Mapping[str, int] = field(default_factory=dict)
    """How many free GPUs of each node the job could take."""
    is_dim: bool = False
    """Nothing here can be had: it is all drawn dim."""
    words: str = ""
    """What is said beside the heading: where the job runs, or why it does not."""


@dataclass(frozen=True, slots=True)
class StripEntry:
    """One node, or one group of nodes."""

    key: str
    """The name of the node, or of the group."""
    runs: tuple[Run, ...]


class GpuStrip:
    """What the strip shows of the nodes, in the room there is."""

    def __init__(self, label: str = "") -> None:
        """Show nothing yet; `label` groups nodes, where they do not all fit, by this label of theirs."""
        self.groups = NodeGroups(label)
        """The nodes, counted."""
        self.entries: Sequence[StripEntry] = ()
        """What is shown below the heading, in its order."""
        self.is_grouped = False
        """Whether the entries are groups and not nodes."""
        self.columns = 1
        """How many entries stand beside each other."""

    @property
    def rows(self) -> int:
        """How many lines all entries take."""
        return -(-len(self.entries) // self.columns)

    def lay_out(self, nodes: Sequence[NodeRow], light: StripLight, width: int, most_rows: int) -> None:
        """Take over what the nodes are now, and choose what is shown.

        Args:
            nodes: All nodes.
            light: What is pointed at.
            width: Cells of a line.
            most_rows: How many lines there may be below the heading.
        """
        self.groups.update(nodes)
        # An entry takes 18 cells at least: what cannot fit is not laid out.
        most = most_rows * max(1, width // 18)
        shown = self.groups.nodes if self.groups.node_count <= most else []
        entries, cells = _node_entries(shown, light)
        columns = max(1, (width - _INDENT) // (cells + _GAP))
        self.is_grouped = self.groups.node_count > min(most, columns * most_rows)
        if self.is_grouped:
            held = self._held_in_groups(light.held), self._held_in_groups(light.offered)
            groups = self.groups.by_size
            for tail_of in (_group_tail, _short_tail):
                entries, cells = _group_entries(groups, light, *held, [tail_of(each) for each in groups])
                columns = max(1, (width - _INDENT) // (cells + _GAP))
                if columns * most_rows >= len(entries):
                    break
        self.entries, self.columns = entries, columns

    def _held_in_groups(self, held: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for node, gpus in held.items():
            group = self.groups.group_of(node)
            found[group] = found.get(group, 0) + gpus
        return found

    def names_under(self, key: str) -> frozenset[str]:
        """Return the nodes that an entry stands for."""
        return self.groups.names_in(key) if self.is_grouped else frozenset({key})

    def heading(self, light: StripLight, problem: str, hidden_rows: int, width: int) -> list[Run]:
        """Return the first line: how many nodes, which blocks are free, what is pointed at."""
        runs: list[Run] = [(f"nodes {count(self.groups.node_count)}", "bright")]
        groups = self.groups.groups.values()
        if blocks := block_words(self.groups.blocks):
            runs.append((f" · free in blocks {blocks}", "quiet"))
        elif self.groups.node_count and not problem:
            runs.append((" · no GPU is free", "quiet"))
        if unready := sum(each.unready for each in groups):
            runs.append((f" · {count(unready)} not ready", "failed"))
        if cordoned := sum(each.cordoned for each in groups):
            runs.append((f" · {count(cordoned)} cordoned", "pending"))
        if problem:
            runs.append((f" · {sanitize(problem)}", "pending"))
        elif light.words:
            runs.append((f" · {sanitize(light.words)}", "pending" if light.is_dim else "bright"))
        if hidden_rows:
            runs.append((f" · {plural(hidden_rows, 'more line')}", "quiet"))
        return _cut(runs, width)

    def row(self, number: int, cursor: str | None) -> list[Run]:
        """Return one line of entries; that under the cursor bears its mark."""
        runs: list[Run] = []
        first = number * self.columns
        for entry in self.entries[first : first + self.columns]:
            at_cursor = entry.key == cursor
            runs += [(" " * (_INDENT if not runs else _GAP - 1), ""), ("▸" if at_cursor else " ", "bright")]
            runs += entry.runs
        return runs


def _node_entries(nodes: Sequence[NodeRow], light: StripLight) -> tuple[list[StripEntry], int]:
    """Return an entry for each node, and how many cells each of them takes."""
    if not nodes:
        return [], 1
    name_cells = min(MOST_NAME, max(cell_len(sanitize(node.name)) for node in nodes))
    bar_cells = min(MOST_CELLS, max(_cells_of(node) for node in nodes))
    found = []
    for node in nodes:
        bar = node_cells(node, bar_cells, lit=light.jobs, offered=light.offered.get(node.name, 0))
        rest = bar_cells - sum(cell_len(text) for text, _ in bar)
        words, look = _node_tail(node)
        is_lit = node.name in light.held or node.name in light.offered
        name = pad(elide_middle(sanitize(node.name), name_cells), name_cells)
        runs: list[Run] = [
            (f"{name} ", "bright" if is_lit else ""),
            *bar,
            (" " * (rest + 1) + pad(words, _TAIL), look),
        ]
        found.append(StripEntry(node.name, _dimmed(runs, light)))
    return found, name_cells + bar_cells + _TAIL + 2


def _cells_of(node: NodeRow) -> int:
    """Return how many cells a node would like: one for each GPU; where it is not listed, those held."""
    if node.shared is not None:
        return node.shared.devices or MOST_CELLS
    return max(node.gpus_total, node.gpus_allocated) + node.gpus_unhealthy


def _node_tail(node: NodeRow) -> Run:
    """Return what stands behind a node's GPUs: a word where it takes no pods, else how many are held."""
    if is_unready(node):
        return "NotReady", "failed"
    if is_cordoned(node):
        return "cordoned", "pending"
    if node.shared is not None:
        return elide_end(f"{node.shared.allocated_gib}/{node.shared.total_gib}G", _TAIL), "quiet"
    total = node.gpus_total if node.takes_pods else "?"
    return f"{node.gpus_allocated}/{total}", "quiet"


def _group_entries(
    groups: Sequence[NodeGroup],
    light: StripLight,
    lit: Mapping[str, int],
    offered: Mapping[str, int],
    tails: Sequence[str],
) -> tuple[list[StripEntry], int]:
    """Return an entry for each group, and how many cells each of them takes."""
    if not groups:
        return [], 1
    name_cells = min(2 * MOST_NAME, max(cell_len(sanitize(each.name)) for each in groups))
    tail_cells = max(map(cell_len, tails))
    found = []
    for group, tail in zip(groups, tails, strict=True):
        runs: list[Run] = [
            (pad(elide_middle(sanitize(group.name), name_cells), name_cells) + " ", ""),
            *_group_cells(group, lit.get(group.name, 0), offered.get(group.name, 0)),
            (" " + pad(tail, tail_cells), "quiet"),
        ]
        found.append(StripEntry(group.name, _dimmed(runs, light)))
    return found, name_cells + GROUP_CELLS + tail_cells + 3


def _group_cells(group: NodeGroup, lit: int, offered: int) -> list[Run]:
    free = max(0, group.total - group.held)
    lit, offered = min(lit, group.held), min(offered, free)
    amounts = (lit, group.held - lit, offered, free - offered, group.bad)
    cells = shares(amounts, GROUP_CELLS)
    marks = (LIT, HELD[0], OFFERED, FREE, BAD)
    looks: tuple[Look, ...] = ("bright", "gpu-busy", "running", "gpu-free", "gpu-bad")
    drawn = [(mark * amount, look) for mark, amount, look in zip(marks, cells, looks, strict=True) if amount]
    return [*drawn, (" " * (GROUP_CELLS - sum(cells)), "")]


def _group_tail(group: NodeGroup) -> str:
    words = [f"{count(group.held)}/{count(group.total)}", plural(group.nodes, "node")]
    if group.whole:
        words.append(f"{count(group.whole)} whole free")
    words.append(f"largest block {group.largest_free}" if group.largest_free else "none free")
    for amount, what in (
        (group.unready, "not ready"),
        (group.cordoned, "cordoned"),
        (group.bad, "unhealthy"),
    ):
        if amount:
            words.append(f"{count(amount)} {what}")
    return " · ".join(words)


def _short_tail(group: NodeGroup) -> str:
    """Return the same where there is little room for many groups."""
    is_closed = group.unready + group.cordoned == group.nodes
    return "closed" if is_closed else f"{count(group.held)}/{count(group.total)}"


def _dimmed(runs: Sequence[Run], light: StripLight) -> tuple[Run, ...]:
    return tuple((text, "quiet") for text, _ in runs) if light.is_dim else tuple(runs)


def _cut(runs: Sequence[Run], width: int) -> list[Run]:
    """Shorten pieces of text to so many cells together."""
    kept: list[Run] = []
    left = width
    for text, look in runs:
        text = elide_end(text, left)
        if text:
            kept.append((text, look))
        left -= cell_len(text)
        if left <= 0:
            break
    return kept


def where_words(what: str, nodes: Sequence[str]) -> str:
    """Say where something is: `◆ on a100-[1-2]`; nothing where it is nowhere."""
    return f"{what} on {compact_ranges(nodes)}" if nodes else ""
