"""What the strip says of groups of nodes, in columns: in full, in brief, or as little as can be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len
from tui.text.format import NOTHING, count, plural
from tui.widgets.home.node_groups import NodeGroup

BAR_CELLS = 12
"""Cells of the bar of a group."""
TIGHT_BAR_CELLS = 6
"""The same where many groups stand in little room."""
_GAP = "  "


@dataclass(frozen=True, slots=True)
class GroupWords:
    """What stands before and behind the bars of the groups, one of each for every group."""

    names: Sequence[str]
    tails: Sequence[str]
    bar_cells: int


def variants(groups: Sequence[NodeGroup]) -> Sequence[Callable[[], GroupWords]]:
    """Return ways to say the same, the one that needs the most room first."""
    return (
        lambda: GroupWords(_names(groups), _columns(groups, _full), BAR_CELLS),
        lambda: GroupWords(_names(groups), _columns(groups, _brief), BAR_CELLS),
        lambda: GroupWords(_names(groups), [_held(each) for each in groups], BAR_CELLS),
        lambda: GroupWords(_short_names(groups), [_held(each) for each in groups], TIGHT_BAR_CELLS),
        lambda: GroupWords(_short_names(groups), [_share(each) for each in groups], TIGHT_BAR_CELLS),
    )


def _full(group: NodeGroup) -> list[str]:
    return [
        _amounts(group),
        plural(group.nodes, "node"),
        f"{count(group.whole)} whole free" if group.whole else "",
        f"largest block {group.largest_free}" if group.largest_free else "none free",
        *_closed(group),
        f"{count(group.bad)} unhealthy" if group.bad else "",
    ]


def _brief(group: NodeGroup) -> list[str]:
    return [
        _amounts(group),
        plural(group.nodes, "node"),
        f"{count(group.whole)} whole" if group.whole else "",
        f"block {group.largest_free}" if group.largest_free else "none free",
        *_closed(group),
        f"{count(group.bad)} ✕" if group.bad else "",
    ]


def _closed(group: NodeGroup) -> list[str]:
    return [
        f"{count(group.unready)} not ready" if group.unready else "",
        f"{count(group.cordoned)} cordoned" if group.cordoned else "",
    ]


def _amounts(group: NodeGroup) -> str:
    return f"{count(group.held)}/{count(group.total)}"


def _held(group: NodeGroup) -> str:
    return "closed" if group.unready + group.cordoned == group.nodes else _amounts(group)


def _share(group: NodeGroup) -> str:
    return f"{group.held / group.total:.0%}" if group.total else NOTHING


def _columns(groups: Sequence[NodeGroup], words_of: Callable[[NodeGroup], list[str]]) -> list[str]:
    """Return the words of each group, below each other what belongs together."""
    rows = [words_of(group) for group in groups]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(word.rjust(width) for word, width in zip(row, widths, strict=True) if width).rstrip()
        for row in rows
    ]


def _names(groups: Sequence[NodeGroup]) -> list[str]:
    return [sanitize(group.name).removeprefix("Tesla-") for group in groups]


def _short_names(groups: Sequence[NodeGroup]) -> list[str]:
    """Return of each name no more parts than it takes to tell all apart: `A100` of `A100-SXM4-80GB`."""
    parts = [name.split("-") for name in _names(groups)]
    amount = 1
    while len({tuple(each[:amount]) for each in parts}) < len({tuple(each) for each in parts}):
        amount += 1
    return ["-".join(each[:amount]) for each in parts]
