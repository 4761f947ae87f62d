"""Layout of the node bar: every node if all fit, otherwise groups of nodes.

Pure. Below a heading, entries are arranged in a grid of equal rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from k8s.snapshot import NodeRow
from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_end, elide_middle, pad
from tui.text.format import NOTHING, CellStyle, Run, compact_ranges, count, plural, shares
from tui.text.gpu_bar import BAD, FITTING, FREE, HELD, HIGHLIGHTED, MOST_CELLS, node_cells
from tui.text.natural_order import natural_key
from tui.widgets.home.node_groups import CLOSED, NodeGroup, NodeGroups, closed_by, format_block

BAR_CELLS = 12
TIGHT_BAR_CELLS = 6


class GroupLabels(msgspec.Struct, frozen=True):
    """Texts before and after the bars, one of each per group."""

    names: Sequence[str]
    tails: Sequence[str]
    bar_cells: int


def variants(groups: Sequence[NodeGroup]) -> Sequence[Callable[[], GroupLabels]]:
    """Return labels in several lengths, longest first."""
    return (
        lambda: GroupLabels(_names(groups), _columns(groups, _full), BAR_CELLS),
        lambda: GroupLabels(_names(groups), _columns(groups, _brief), BAR_CELLS),
        lambda: GroupLabels(_names(groups), [_held(each) for each in groups], BAR_CELLS),
        lambda: GroupLabels(_short_names(groups), [_held(each) for each in groups], TIGHT_BAR_CELLS),
        lambda: GroupLabels(_short_names(groups), [_share(each) for each in groups], TIGHT_BAR_CELLS),
    )


def _full(group: NodeGroup) -> list[str]:
    return [
        _format_amounts(group),
        plural(group.nodes, "node"),
        f"{count(group.whole)} whole free" if group.whole else "",
        f"largest block {group.largest_free}" if group.largest_free else "none free",
        *_closed(group),
        f"{count(group.bad)} unhealthy" if group.bad else "",
    ]


def _brief(group: NodeGroup) -> list[str]:
    return [
        _format_amounts(group),
        plural(group.nodes, "node"),
        f"{count(group.whole)} whole" if group.whole else "",
        f"block {group.largest_free}" if group.largest_free else "none free",
        *_closed(group),
        f"{count(group.bad)} ✕" if group.bad else "",
    ]


def _closed(group: NodeGroup) -> list[str]:
    return [f"{count(group.closed[reason])} {reason}" if group.closed[reason] else "" for reason in CLOSED]


def _format_amounts(group: NodeGroup) -> str:
    return f"{count(group.held)}/{count(group.total)}"


def _held(group: NodeGroup) -> str:
    return "closed" if group.closed.total() == group.nodes else _format_amounts(group)


def _share(group: NodeGroup) -> str:
    return f"{group.held / group.total:.0%}" if group.total else NOTHING


def _columns(groups: Sequence[NodeGroup], words_of: Callable[[NodeGroup], list[str]]) -> list[str]:
    rows = [words_of(group) for group in groups]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True) if width).rstrip()
        for row in rows
    ]


def _names(groups: Sequence[NodeGroup]) -> list[str]:
    return [sanitize(group.name).removeprefix("Tesla-") for group in groups]


def _short_names(groups: Sequence[NodeGroup]) -> list[str]:
    parts = [name.split("-") for name in _names(groups)]
    amount = 1
    while len({tuple(each[:amount]) for each in parts}) < len({tuple(each) for each in parts}):
        amount += 1
    return ["-".join(each[:amount]) for each in parts]


Lines = list[list[Run]]
# Maximum width of a node's name.
MOST_NAME = 18
# Width of the text after a node's GPUs: `6/8`, `cordoned`, `NotReady`.
_TAIL = 8
# Numbers of block sizes in the heading, with the words before them, longest first.
_HEADINGS = ((6, "free in blocks"), (6, "free"), (2, "free"), (1, "free"))
_GAP = 2
_INDENT = 1


class NodeBarHighlight(msgspec.Struct, frozen=True):
    """Highlighted nodes and GPUs."""

    jobs: frozenset[tuple[str, str]] = frozenset()
    """Jobs whose GPUs are highlighted, by namespace and name."""
    held: Mapping[str, int] = msgspec.field(default_factory=dict)
    fitting: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Free GPUs per node that the job fits on."""
    # Dim all nodes: the job fits on none.
    is_dim: bool = False
    words: str = ""
    """Location of the job, or the reason why it waits."""


class NodeBarEntry(msgspec.Struct, frozen=True):
    """One node or one group of nodes."""

    key: str
    runs: tuple[Run, ...]


class NodeBarLayout:
    """Entries of the node bar for a given size."""

    def __init__(self, label: str = "") -> None:
        self.groups = NodeGroups(label)
        self.entries: Sequence[NodeBarEntry] = ()
        self.is_grouped = False
        self.columns = 1
        self._entry_cells = 1

    @property
    def rows(self) -> int:
        """Number of lines of all entries."""
        return -(-len(self.entries) // self.columns)

    def lay_out(
        self, nodes: Sequence[NodeRow], highlight: NodeBarHighlight, width: int, most_rows: int
    ) -> None:
        """Choose and arrange the entries, in at most so many rows below the heading."""
        self.groups.update(nodes)
        # An entry takes 18 cells at least: what cannot fit is not laid out.
        most = most_rows * max(1, width // 18)
        shown = self.groups.nodes if self.groups.node_count <= most else []
        entries, cells = _node_entries(sorted(shown, key=lambda node: natural_key(node.name)), highlight)
        columns = max(1, (width - _INDENT) // (cells + _GAP))
        self.is_grouped = self.groups.node_count > min(most, columns * most_rows)
        if self.is_grouped:
            held = self._held_in_groups(highlight.held), self._held_in_groups(highlight.fitting)
            groups = self.groups.by_size
            for words_of in variants(groups):
                entries, cells = _group_entries(groups, highlight, *held, words_of())
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
        """Return the nodes of an entry."""
        return self.groups.names_in(key) if self.is_grouped else frozenset({key})

    def heading(self, highlight: NodeBarHighlight, problem: str, hidden_rows: int, width: int) -> list[Run]:
        """Return the heading: number of nodes, free blocks, highlights."""
        more: Run = (f" · +{plural(hidden_rows, 'line')}" if hidden_rows else "", "quiet")
        room = width - cell_len(more[0])
        for blocks, words in _HEADINGS:
            runs = self._heading(highlight, problem, blocks, words)
            if sum(cell_len(text) for text, _ in runs) <= room:
                break
        return _cut([*_cut(runs, room), more], width)

    def _heading(
        self, highlight: NodeBarHighlight, problem: str, most_blocks: int, free_words: str
    ) -> list[Run]:
        groups = self.groups.groups.values()
        runs: list[Run] = [(self._format_amount(problem), "bright")]
        if blocks := format_block(self.groups.blocks, most_blocks):
            runs.append((f" · {free_words} {blocks}", "quiet"))
        elif self.groups.node_count and not problem:
            runs.append((" · no GPU is free", "quiet"))
        for reason, style in CLOSED.items():
            if number := sum(each.closed[reason] for each in groups):
                runs.append((f" · {count(number)} {reason}", style))
        if problem:
            runs.append((f" · {sanitize(problem)}", "pending"))
        elif highlight.words and self.groups.node_count:
            runs.append((f" · {sanitize(highlight.words)}", "pending" if highlight.is_dim else "bright"))
        return runs

    def _format_amount(self, problem: str) -> str:
        if self.groups.node_count or problem:
            return f"nodes {count(self.groups.node_count) if self.groups.node_count else '?'}"
        return "no node has a GPU" if self.groups.has_nodes else "no nodes, so nothing can run"

    def place_of(self, key: str) -> tuple[int, range]:
        """Return the line of an entry, and its cells in that line."""
        row, column = divmod([entry.key for entry in self.entries].index(key), self.columns)
        first = _INDENT + column * (self._entry_cells + _GAP)
        return row, range(first, first + 1 + self._entry_cells)

    def row(self, number: int, cursor: str | None) -> list[Run]:
        """Return one line of entries, with the cursor mark."""
        runs: list[Run] = []
        first = number * self.columns
        for entry in self.entries[first : first + self.columns]:
            at_cursor = entry.key == cursor
            runs += [(" " * (_INDENT if not runs else _GAP - 1), ""), ("▸" if at_cursor else " ", "bright")]
            runs += entry.runs
        return runs


def _node_entries(nodes: Sequence[NodeRow], highlight: NodeBarHighlight) -> tuple[list[NodeBarEntry], int]:
    if not nodes:
        return [], 1
    name_cells = min(MOST_NAME, max(cell_len(sanitize(node.name)) for node in nodes))
    bar_cells = min(MOST_CELLS, max(_cells_of(node) for node in nodes))
    found = []
    for node in nodes:
        bar = node_cells(
            node, bar_cells, highlighted=highlight.jobs, fitting=highlight.fitting.get(node.name, 0)
        )
        rest = bar_cells - sum(cell_len(text) for text, _ in bar)
        words, style = _node_tail(node)
        is_highlighted = node.name in highlight.held or node.name in highlight.fitting
        name = pad(elide_middle(sanitize(node.name), name_cells), name_cells)
        runs: list[Run] = [
            (f"{name} ", "bright" if is_highlighted else ""),
            *bar,
            (" " * (rest + 1) + pad(words, _TAIL), style),
        ]
        found.append(NodeBarEntry(node.name, _dimmed(runs, highlight)))
    return found, name_cells + bar_cells + _TAIL + 2


def _cells_of(node: NodeRow) -> int:
    if node.shared is not None:
        return node.shared.devices or MOST_CELLS
    return max(node.gpus_total, node.gpus_allocated) + node.gpus_unhealthy


def _node_tail(node: NodeRow) -> Run:
    if reason := closed_by(node):
        return "NotReady" if reason == "not ready" else reason, CLOSED[reason]
    if node.shared is not None:
        return elide_end(f"{node.shared.allocated_gib}/{node.shared.total_gib}G", _TAIL), "quiet"
    total = node.gpus_total if node.is_schedulable else "?"
    return f"{node.gpus_allocated}/{total}", "quiet"


def _group_entries(
    groups: Sequence[NodeGroup],
    highlight: NodeBarHighlight,
    highlighted: Mapping[str, int],
    fitting: Mapping[str, int],
    words: GroupLabels,
) -> tuple[list[NodeBarEntry], int]:
    if not groups:
        return [], 1
    name_cells = min(2 * MOST_NAME, max(map(cell_len, words.names)))
    tail_cells = max(map(cell_len, words.tails))
    found = []
    for group, name, tail in zip(groups, words.names, words.tails, strict=True):
        at = group.name
        runs: list[Run] = [
            (pad(elide_middle(name, name_cells), name_cells) + " ", "bright" if highlighted.get(at) else ""),
            *_group_cells(group, highlighted.get(at, 0), fitting.get(at, 0), words.bar_cells),
            (" " + pad(tail, tail_cells), "quiet"),
        ]
        found.append(NodeBarEntry(at, _dimmed(runs, highlight)))
    return found, name_cells + words.bar_cells + tail_cells + 2


def _group_cells(group: NodeGroup, highlighted: int, fitting: int, width: int) -> list[Run]:
    free = max(0, group.total - group.held)
    highlighted, fitting = min(highlighted, group.held), min(fitting, free)
    amounts = (highlighted, group.held - highlighted, fitting, free - fitting, group.bad)
    cells = shares(amounts, width)
    marks = (HIGHLIGHTED, HELD[0], FITTING, FREE, BAD)
    styles: tuple[CellStyle, ...] = ("bright", "gpu-busy", "running", "gpu-free", "gpu-bad")
    drawn = [
        (mark * amount, style) for mark, amount, style in zip(marks, cells, styles, strict=True) if amount
    ]
    return [*drawn, (" " * (width - sum(cells)), "")]


def _dimmed(runs: Sequence[Run], highlight: NodeBarHighlight) -> tuple[Run, ...]:
    return tuple((text, "quiet") for text, _ in runs) if highlight.is_dim else tuple(runs)


def _cut(runs: Sequence[Run], width: int) -> list[Run]:
    kept: list[Run] = []
    left = width
    for text, style in runs:
        text = elide_end(text, left)
        if text:
            kept.append((text, style))
        left -= cell_len(text)
        if left <= 0:
            break
    return kept


def describe_position(what: str, nodes: Sequence[str]) -> str:
    """Return a location: `◆ on a100-[1-2]`; empty without nodes."""
    return f"{what} on {compact_ranges(nodes)}" if nodes else ""
