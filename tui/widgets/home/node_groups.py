"""Totals of nodes grouped by GPU model or label, updated incrementally.

An update costs only as much as the nodes that have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from k8s.snapshot import NodeRow
from tui.text.format import CellStyle

# Group of the nodes without the label.
NO_LABEL = "no label"
# States in which a node takes no ordinary pods, worst first.
CLOSED: Mapping[str, CellStyle] = {"not ready": "failed", "cordoned": "pending", "tainted": "quiet"}


class _NodeCounts(NamedTuple):
    group: str
    total: int
    held: int
    bad: int
    simulated: int
    largest_free: int
    is_whole: bool
    closed: str
    """State of the node in `CLOSED`, or empty."""


class NodeGroup(msgspec.Struct):
    """Totals of one group of nodes."""

    name: str
    nodes: int = 0
    total: int = 0
    held: int = 0
    bad: int = 0
    simulated: int = 0
    whole: int = 0
    """Schedulable nodes without held GPUs."""
    closed: Counter[str] = msgspec.field(default_factory=Counter)
    blocks: Counter[int] = msgspec.field(default_factory=Counter)

    @property
    def largest_free(self) -> int:
        """Return the largest number of GPUs available to one pod."""
        return max((size for size, nodes in self.blocks.items() if nodes), default=0)

    def count(self, node: _NodeCounts, sign: int) -> None:
        """Add the counts of a node, or subtract them with sign -1."""
        self.nodes += sign
        self.total += sign * node.total
        self.held += sign * node.held
        self.bad += sign * node.bad
        self.simulated += sign * node.simulated
        self.whole += sign * node.is_whole
        if node.closed:
            self.closed[node.closed] += sign
        if node.largest_free:
            self.blocks[node.largest_free] += sign


class NodeGroups:
    """Nodes with GPUs, by group."""

    def __init__(self, label: str = "") -> None:
        """Group by this node label; empty groups by GPU model."""
        self.groups: dict[str, NodeGroup] = {}
        # See `NodeGroup.blocks`, for all nodes.
        self.blocks: Counter[int] = Counter()
        self._label = label
        self._all: Sequence[NodeRow] = ()
        self._counts: dict[str, _NodeCounts] = {}

    @property
    def node_count(self) -> int:
        """Number of nodes with GPUs."""
        return len(self._counts)

    @property
    def has_nodes(self) -> bool:
        """True if there are any nodes."""
        return bool(self._all)

    @property
    def nodes(self) -> list[NodeRow]:
        """Return the nodes with GPUs, in order."""
        return [node for node in self._all if node.name in self._counts]

    @property
    def by_size(self) -> list[NodeGroup]:
        """Return the groups, largest first."""
        return sorted(self.groups.values(), key=lambda each: (-each.total, each.name))

    def group_of(self, node: str) -> str:
        """Return the group of a node; empty if it has no GPUs."""
        counts = self._counts.get(node)
        return counts.group if counts is not None else ""

    def names_in(self, group: str) -> frozenset[str]:
        """Return the names of a group's nodes."""
        return frozenset(node for node, counts in self._counts.items() if counts.group == group)

    def update(self, nodes: Sequence[NodeRow]) -> None:
        """Set the current nodes; only changed ones are recounted."""
        if nodes is self._all:
            return
        before, self._all = self._all, nodes
        if len(before) == len(nodes):
            changed = [pair for pair in zip(before, nodes, strict=True) if pair[0] is not pair[1]]
        else:
            changed = [*zip_longest(_others(before, nodes), _others(nodes, before))]
        current = {new.name: new for _, new in changed if new is not None}
        for old, _ in changed:
            if old is not None and old.name not in current:
                self._replace_counts(old.name, None)
        for name, node in current.items():
            self._replace_counts(name, self._counts_of(node))

    def _replace_counts(self, name: str, counts: _NodeCounts | None) -> None:
        before = self._counts.get(name)
        if counts == before:
            return
        if before is not None:
            self._count(self._counts.pop(name), -1)
        if counts is not None:
            self._counts[name] = counts
            self._count(counts, 1)

    def _count(self, node: _NodeCounts, sign: int) -> None:
        group = self.groups.setdefault(node.group, NodeGroup(node.group))
        group.count(node, sign)
        if node.largest_free:
            self.blocks[node.largest_free] += sign
        if not group.nodes:
            del self.groups[node.group]

    def _counts_of(self, node: NodeRow) -> _NodeCounts | None:
        total, held, bad = node.gpus_total, node.gpus_allocated, node.gpus_unhealthy
        if not (total or held or bad):
            return None
        free = node.largest_free
        is_whole = node.is_schedulable and free > 0 and not held
        return _NodeCounts(
            self._name_of(node), total, held, bad, int(node.is_simulated), free, is_whole, closed_by(node)
        )

    def _name_of(self, node: NodeRow) -> str:
        if self._label:
            return node.labels.get(self._label) or NO_LABEL
        model = node.gpu_model.removeprefix("NVIDIA-") or "GPUs"
        return f"{model} ({node.mode})" if node.parts else model


def _others(nodes: Sequence[NodeRow], known: Sequence[NodeRow]) -> list[NodeRow]:
    ids = set(map(id, known))
    return [node for node in nodes if id(node) not in ids]


def closed_by(node: NodeRow) -> str:
    """Return the worst state in `CLOSED` of a node; empty if it takes pods."""
    if node.status.startswith("NotReady"):
        return "not ready"
    return next((reason for reason in CLOSED if reason in node.status), "")


def format_block(blocks: Counter[int], most: int) -> str:
    """Format the free blocks with at most `most` sizes: `8×3 4 2`."""
    sizes = sorted((size for size, nodes in blocks.items() if nodes > 0), reverse=True)
    words = [f"{size}×{blocks[size]}" if blocks[size] > 1 else str(size) for size in sizes[:most]]
    return " ".join(words) + " …" * (len(sizes) > most)
