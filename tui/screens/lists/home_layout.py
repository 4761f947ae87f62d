"""Which panes home shows: by what was chosen for the context, and by how large the terminal is."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

PaneName = Literal["nodes", "list", "job"]
"""The panes, in the order of their numbers."""
MIN_COLUMNS, MIN_LINES = 80, 20
"""In a smaller terminal the list is alone."""
TALL_LINES = 32
"""From so many lines on there is room for all panes below each other."""
SIDE_COLUMNS = 160
"""From so many columns on the job's pane stands beside the list."""
SHORT_STRIP_LINES = 2
"""Lines of the strip where there are few."""


class HomeLayout(StrEnum):
    """The panes that are shown, the list among them always. `z` goes round in this order."""

    ALL = "all panes"
    LIST = "list"
    LIST_NODES = "list and nodes"
    LIST_JOB = "list and job"

    @property
    def panes(self) -> frozenset[PaneName]:
        """Return the panes that are shown."""
        return _PANES[self]

    def with_pane(self, name: PaneName) -> HomeLayout:
        """Return the layout that shows this pane too."""
        return next(layout for layout in HomeLayout if layout.panes == self.panes | {name})

    @property
    def has_nodes(self) -> bool:
        """Tell whether the strip of nodes is shown."""
        return "nodes" in self.panes

    @property
    def has_job(self) -> bool:
        """Tell whether the pane of the job under the cursor is shown."""
        return "job" in self.panes

    @property
    def following(self) -> HomeLayout:
        """Return the layout that `z` goes to from this one."""
        layouts = list(HomeLayout)
        return layouts[(layouts.index(self) + 1) % len(layouts)]


_PANES: dict[HomeLayout, frozenset[PaneName]] = {
    HomeLayout.ALL: frozenset({"nodes", "list", "job"}),
    HomeLayout.LIST: frozenset({"list"}),
    HomeLayout.LIST_NODES: frozenset({"nodes", "list"}),
    HomeLayout.LIST_JOB: frozenset({"list", "job"}),
}


def has_room(columns: int, lines: int) -> bool:
    """Tell whether a terminal has room for more than the list."""
    return columns >= MIN_COLUMNS and lines >= MIN_LINES


def layout_for(columns: int, lines: int, chosen: str) -> HomeLayout:
    """Return the layout of a terminal of this size; `chosen` is the name of one, or of none."""
    if not has_room(columns, lines):
        return HomeLayout.LIST
    if chosen in set(HomeLayout):
        return HomeLayout(chosen)
    return HomeLayout.ALL if lines >= TALL_LINES or columns >= SIDE_COLUMNS else HomeLayout.LIST_NODES


def strip_lines(lines: int) -> int:
    """Return how many lines the strip may take, its heading among them."""
    return lines // 3 if lines >= TALL_LINES else SHORT_STRIP_LINES
