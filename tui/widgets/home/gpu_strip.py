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
from tui.text.natural_order import natural_key
from tui.widgets.home.group_words import GroupWords, variants
from tui.widgets.home.node_groups import NodeGroup, NodeGroups, block_words, is_cordoned, is_unready

Lines = list[list[Run]]
"""Lines of the strip, each in pieces."""
MOST_NAME = 18
"""Cells that the name of a node gets at most."""
_TAIL = 8
"""Cells of what stands behind a node's GPUs: `6/8`, `cordoned`, `NotReady`."""
_HEADINGS = ((6, "free in blocks"), (6, "free"), (2, "free"), (1, "free"))
"""Ways to say in the heading which blocks are free: how many sizes, after which words."""
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
        self._entry_cells = 1

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
        entries, cells = _node_entries(sorted(shown, key=lambda node: natural_key(node.name)), light)
        columns = max(1, (width - _INDENT) // (cells + _GAP))
        self.is_grouped = self.groups.node_count > min(most, columns * most_rows)
        if self.is_grouped:
            held = self._held_in_groups(light.held), self._held_in_groups(light.offered)
            groups = self.groups.by_size
            for words_of in variants(groups):
                entries, cells = _group_entries(groups, light, *held, words_of())
                columns = max(1, (width - _INDENT) // (cells + _GAP))
                if columns * most_rows >= len(entries) and _INDENT + 1 + cells <= width:
                    break
        self.entries, self.columns, self._entry_cells = entries, columns, cells

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
        more: Run = (f" · +{plural(hidden_rows, 'line')}" if hidden_rows else "", "quiet")
        room = width - cell_len(more[0])
        for blocks, words in _HEADINGS:
            runs = self._heading(light, problem, blocks, words)
            if sum(cell_len(text) for text, _ in runs) <= room:
                break
        return _cut([*_cut(runs, room), more], width)

    def _heading(self, light: StripLight, problem: str, most_blocks: int, free_words: str) -> list[Run]:
        groups = self.groups.groups.values()
        runs: list[Run] = [(self._amount_words(problem), "bright")]
        if blocks := block_words(self.groups.blocks, most_blocks):
            runs.append((f" · {free_words} {blocks}", "quiet"))
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
        return runs

    def _amount_words(self, problem: str) -> str:
        if self.groups.node_count or problem:
            return f"nodes {count(self.groups.node_count)}"
        return "no node has a GPU" if self.groups.has_nodes else "no nodes, so nothing can run"

    def place_of(self, key: str) -> tuple[int, range]:
        """Return the line of an entry among the lines of entries, and which cells of it are the entry's."""
        row, column = divmod([entry.key for entry in self.entries].index(key), self.columns)
        first = _INDENT + column * (self._entry_cells + _GAP)
        return row, range(first, first + 1 + self._entry_cells)

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
    words: GroupWords,
) -> tuple[list[StripEntry], int]:
    """Return an entry for each group, and how many cells each of them takes."""
    if not groups:
        return [], 1
    name_cells = min(2 * MOST_NAME, max(map(cell_len, words.names)))
    tail_cells = max(map(cell_len, words.tails))
    found = []
    for group, name, tail in zip(groups, words.names, words.tails, strict=True):
        at = group.name
        runs: list[Run] = [
            (pad(elide_middle(name, name_cells), name_cells) + " ", "bright" if lit.get(at) else ""),
            *_group_cells(group, lit.get(at, 0), offered.get(at, 0), words.bar_cells),
            (" " + pad(tail, tail_cells), "quiet"),
        ]
        found.append(StripEntry(at, _dimmed(runs, light)))
    return found, name_cells + words.bar_cells + tail_cells + 2


def _group_cells(group: NodeGroup, lit: int, offered: int, width: int) -> list[Run]:
    free = max(0, group.total - group.held)
    lit, offered = min(lit, group.held), min(offered, free)
    amounts = (lit, group.held - lit, offered, free - offered, group.bad)
    cells = shares(amounts, width)
    marks = (LIT, HELD[0], OFFERED, FREE, BAD)
    looks: tuple[Look, ...] = ("bright", "gpu-busy", "running", "gpu-free", "gpu-bad")
    drawn = [(mark * amount, look) for mark, amount, look in zip(marks, cells, looks, strict=True) if amount]
    return [*drawn, (" " * (width - sum(cells)), "")]


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
