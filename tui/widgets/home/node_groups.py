"""What many nodes come to together, by the model of their GPUs or by a label: counted as nodes change.

Thousands of nodes cost no more than those that are not the same objects as in the picture before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from k8s.snapshot import NodeRow

NO_LABEL = "no label"
"""The group of the nodes that do not have the label."""


class _NodeCounts(NamedTuple):
    """What one node comes to, and in which group."""

    group: str
    total: int
    held: int
    bad: int
    simulated: int
    largest_free: int
    is_whole: bool
    is_unready: bool
    is_cordoned: bool


@dataclass(slots=True)
class NodeGroup:
    """The nodes of one group, counted."""

    name: str
    nodes: int = 0
    total: int = 0
    """GPUs that may be given to pods."""
    held: int = 0
    bad: int = 0
    """GPUs that are there but may not be used."""
    simulated: int = 0
    """Nodes whose GPUs are not real."""
    whole: int = 0
    """Nodes of which nobody holds a GPU, and that take pods."""
    cordoned: int = 0
    """Nodes that take no new pods, though they answer."""
    unready: int = 0
    """Nodes that do not answer, or are not well."""
    blocks: Counter[int] = field(default_factory=Counter)
    """How many nodes there are on which a single pod could have so many GPUs, by that number."""

    @property
    def largest_free(self) -> int:
        """Return the most GPUs that a single pod could have."""
        return max((size for size, nodes in self.blocks.items() if nodes), default=0)

    def count(self, node: _NodeCounts, sign: int) -> None:
        """Add what a node comes to, or with the sign -1 take it away."""
        self.nodes += sign
        self.total += sign * node.total
        self.held += sign * node.held
        self.bad += sign * node.bad
        self.simulated += sign * node.simulated
        self.whole += sign * node.is_whole
        self.unready += sign * node.is_unready
        self.cordoned += sign * node.is_cordoned
        if node.largest_free:
            self.blocks[node.largest_free] += sign


class NodeGroups:
    """The nodes that have GPUs, each in its group; those without any are left out."""

    def __init__(self, label: str = "") -> None:
        """Group by this label of the nodes; without one by the model of their GPUs."""
        self.groups: dict[str, NodeGroup] = {}
        """The groups, by name."""
        self.blocks: Counter[int] = Counter()
        """Free blocks of all nodes together: see `NodeGroup.blocks`."""
        self._label = label
        self._all: Sequence[NodeRow] = ()
        self._counts: dict[str, _NodeCounts] = {}

    @property
    def node_count(self) -> int:
        """How many nodes have GPUs."""
        return len(self._counts)

    @property
    def has_nodes(self) -> bool:
        """Whether there are any nodes at all."""
        return bool(self._all)

    @property
    def nodes(self) -> list[NodeRow]:
        """Return the nodes that have GPUs, in their order."""
        return [node for node in self._all if node.name in self._counts]

    @property
    def by_size(self) -> list[NodeGroup]:
        """Return the groups, that with the most GPUs first."""
        return sorted(self.groups.values(), key=lambda each: (-each.total, each.name))

    def group_of(self, node: str) -> str:
        """Return the group of a node; empty for one that has no GPUs."""
        counts = self._counts.get(node)
        return counts.group if counts is not None else ""

    def names_in(self, group: str) -> frozenset[str]:
        """Return the names of a group's nodes."""
        return frozenset(node for node, counts in self._counts.items() if counts.group == group)

    def update(self, nodes: Sequence[NodeRow]) -> None:
        """Take over what the nodes are now; only those that changed are counted anew."""
        if nodes is self._all:
            return
        before, self._all = self._all, nodes
        if len(before) == len(nodes):
            changed = [pair for pair in zip(before, nodes, strict=True) if pair[0] is not pair[1]]
        else:
            changed = [*zip_longest(_others(before, nodes), _others(nodes, before))]
        came = {new.name: new for _, new in changed if new is not None}
        for old, _ in changed:
            if old is not None and old.name not in came:
                self._take(old.name, None)
        for name, node in came.items():
            self._take(name, self._counts_of(node))

    def _take(self, name: str, counts: _NodeCounts | None) -> None:
        """Count a node as it is now; None where it is gone, or has no GPUs."""
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
        is_whole = node.takes_pods and free > 0 and not held
        return _NodeCounts(
            self._name_of(node),
            total,
            held,
            bad,
            int(node.is_simulated),
            free,
            is_whole,
            is_unready(node),
            is_cordoned(node),
        )

    def _name_of(self, node: NodeRow) -> str:
        if self._label:
            return node.labels.get(self._label) or NO_LABEL
        return node.gpu_model.removeprefix("NVIDIA-") or "GPUs"


def _others(nodes: Sequence[NodeRow], known: Sequence[NodeRow]) -> list[NodeRow]:
    """Return the nodes that are not among those known, as objects."""
    ids = set(map(id, known))
    return [node for node in nodes if id(node) not in ids]


def is_unready(node: NodeRow) -> bool:
    """Tell whether a node does not answer, or says that it is not well."""
    return node.status.startswith("NotReady")


def is_cordoned(node: NodeRow) -> bool:
    """Tell whether a node is well, and takes no new pods."""
    return not is_unready(node) and "cordoned" in node.status


def block_words(blocks: Counter[int], most: int) -> str:
    """Say in which blocks GPUs are free, naming so many sizes of them at most: `8×3 4 2`."""
    sizes = sorted((size for size, nodes in blocks.items() if nodes > 0), reverse=True)
    words = [f"{size}×{blocks[size]}" if blocks[size] > 1 else str(size) for size in sizes[:most]]
    return " ".join(words) + " …" * (len(sizes) > most)
