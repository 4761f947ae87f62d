"""What many nodes come to together, by the model of their GPUs or by a label: counted as nodes change.

Thousands of nodes cost no more than those that are not the same objects as in the picture before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from k8s.snapshot import NodeRow

NO_LABEL = "no label"
"""The group of the nodes that do not have the label."""


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

    def count(self, node: NodeRow, sign: int) -> None:
        """Add what a node comes to, or with the sign -1 take it away."""
        free = node.largest_free
        self.nodes += sign
        self.total += sign * node.gpus_total
        self.held += sign * node.gpus_allocated
        self.bad += sign * node.gpus_unhealthy
        self.whole += sign * (node.takes_pods and free > 0 and not node.gpus_allocated)
        self.unready += sign * is_unready(node)
        self.cordoned += sign * is_cordoned(node)
        if free:
            self.blocks[free] += sign


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
        self._group_by_node: dict[str, str] = {}

    @property
    def node_count(self) -> int:
        """How many nodes have GPUs."""
        return len(self._group_by_node)

    @property
    def has_nodes(self) -> bool:
        """Whether there are any nodes at all."""
        return bool(self._all)

    @property
    def nodes(self) -> list[NodeRow]:
        """Return the nodes that have GPUs, in their order."""
        return [node for node in self._all if node.name in self._group_by_node]

    @property
    def by_size(self) -> list[NodeGroup]:
        """Return the groups, that with the most GPUs first."""
        return sorted(self.groups.values(), key=lambda each: (-each.total, each.name))

    def group_of(self, node: str) -> str:
        """Return the group of a node; empty for one that has no GPUs."""
        return self._group_by_node.get(node, "")

    def names_in(self, group: str) -> frozenset[str]:
        """Return the names of a group's nodes."""
        return frozenset(node for node, name in self._group_by_node.items() if name == group)

    def update(self, nodes: Sequence[NodeRow]) -> None:
        """Take over what the nodes are now; only those that changed are counted anew."""
        if nodes is self._all:
            return
        before, self._all = self._all, nodes
        changed = [pair for pair in zip_longest(before, nodes) if pair[0] is not pair[1]]
        for node, _ in changed:
            if node is not None and (name := self._group_by_node.pop(node.name, "")):
                self._count(name, node, -1)
        for _, node in changed:
            if node is not None and (node.gpus_total or node.gpus_unhealthy or node.gpus_allocated):
                self._group_by_node[node.name] = name = self._name_of(node)
                self._count(name, node, 1)

    def _count(self, name: str, node: NodeRow, sign: int) -> None:
        group = self.groups.setdefault(name, NodeGroup(name))
        group.count(node, sign)
        if node.largest_free:
            self.blocks[node.largest_free] += sign
        if not group.nodes:
            del self.groups[name]

    def _name_of(self, node: NodeRow) -> str:
        if self._label:
            return node.labels.get(self._label) or NO_LABEL
        return node.gpu_model.removeprefix("NVIDIA-") or "GPUs"


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
