"""The panes of home: which are shown, which has the keys, and what they point at in each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.timer import Timer
from textual.widget import Widget

from k8s.snapshot import ClusterSnapshot, Job
from tui.screens.lists.home_layout import (
    MIN_COLUMNS,
    MIN_LINES,
    SIDE_COLUMNS,
    HomeLayout,
    PaneName,
    has_room,
    layout_for,
    strip_lines,
)
from tui.screens.lists.home_light import HomeLight, jobs_on, light_of_jobs
from tui.text.natural_order import natural_key
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_strip import NodeStrip
from tui.widgets.preview import DRAW_S
from tui.widgets.table.table import Table

if TYPE_CHECKING:
    from trainer.tfevents import ScalarCurve
    from tui.keys import Action
    from tui.screens.base.view_context import ViewContext


class HomePanes:
    """The strip of nodes, and the pane of the job under the cursor, around the list of a view."""

    def __init__(
        self,
        context: Callable[[], ViewContext],
        table: Callable[[], Table],
        loss_of: Callable[[str], ScalarCurve | None],
    ) -> None:
        """Make the panes.

        Args:
            context: Returns what the application gives the view.
            table: Returns the list between them.
            loss_of: Returns the loss that was read from the event files of a job, by its uid.
        """
        self.strip = NodeStrip(context().strip_by)
        """The nodes."""
        self.job_pane = JobPane(context().client, context().permissions, loss_of)
        """What the job says."""
        self.nodes: frozenset[str] = frozenset()
        """The nodes of whose jobs alone the list consists; empty for all."""
        self.nodes_words = ""
        """What these nodes are called together."""
        self._context = context
        self._table = table
        self._size = Size()
        self._arranged_for: tuple[Size, str] | None = None
        self._layout = HomeLayout.LIST
        self._snapshot = ClusterSnapshot()
        self._job: Job | None = None
        self._light = HomeLight()
        self._shows_soon = False
        self._rests: Timer | None = None

    @property
    def layout(self) -> HomeLayout:
        """The panes that are shown."""
        return self._layout

    @property
    def focused(self) -> PaneName:
        """The pane that has the keys."""
        focused = self.strip.screen.focused if self.strip.is_attached else None
        if focused is self.strip:
            return "nodes"
        return "job" if focused is not None and self.job_pane in focused.ancestors_with_self else "list"

    @property
    def node(self) -> str:
        """The one node on which keys act; empty where the list or the job has the focus, or a group has."""
        return self.strip.cursor if self.focused == "nodes" and not self.strip.is_grouped else ""

    def copy_text(self) -> str | None:
        """Return the names of the nodes, or of the job, with the focus; None where the list has it."""
        if self.focused == "nodes":
            return "\n".join(sorted(self.strip.nodes_under_cursor, key=natural_key))
        return self._job.ref.name if self.focused == "job" and self._job is not None else None

    def refusal(self, action: Action | None) -> str:
        """Return why an action makes no sense on what has the focus; empty where it does."""
        if self.focused != "nodes" or action is None:
            return ""
        if action.acts_on_job:
            return "That key is for a job, and the cursor is on a node; esc goes to the list."
        if any(on.view == "strip" for on in action.on) and not self.node:
            return "That key is for one node." + " These are several." * bool(self.strip.cursor)
        return ""

    @property
    def _room_words(self) -> str:
        width, height = self._size
        return f"More panes need {MIN_COLUMNS}x{MIN_LINES}; this terminal has {width}x{height}."

    def arrange(self, size: Size, context_name: str) -> None:
        """Show the panes that there is room for, and that were chosen for this context."""
        if (size, context_name) == self._arranged_for:
            return
        self._arranged_for = size, context_name
        self._size = size
        chosen = self._context().layouts.find(context_name)
        self._show_layout(layout_for(size.width, size.height, chosen))

    def _show_layout(self, layout: HomeLayout) -> None:
        self._layout, size = layout, self._size
        self.strip.display = self._layout.has_nodes
        self.job_pane.display = self._layout.has_job
        is_side = self._layout.has_job and size.width >= SIDE_COLUMNS
        self.job_pane.set_side(is_side)
        if isinstance(self.job_pane.parent, Widget):
            self.job_pane.parent.set_class(is_side, "-side")
        hidden = [has for pane, has in self._focus_by_pane if not pane.display]
        if any(hidden):
            self._table().focus()
        self.show(self._job, self._snapshot)
        self.job_pane.consider()

    @property
    def _focus_by_pane(self) -> tuple[tuple[Widget, bool], ...]:
        return (self.strip, self.strip.has_focus), (self.job_pane, self.job_pane.holds_focus)

    def cycle(self, context_name: str) -> str:
        """Go to the next layout and keep it for this context; return what there is to say."""
        if not has_room(*self._size):
            return self._room_words
        following = self._layout.following
        is_kept = self._context().layouts.keep(context_name, following.value)
        self._show_layout(following)
        return f"Layout: {following}." + ("" if is_kept else " It could not be saved.")

    def focus(self, name: PaneName) -> str:
        """Give the keys to a pane; return why that cannot be."""
        widgets: dict[PaneName, Widget] = {
            "nodes": self.strip,
            "list": self._table(),
            "job": self.job_pane.focus_target,
        }
        if not has_room(*self._size):
            return "" if name == "list" else self._room_words
        if name not in self._layout.panes:
            self._show_layout(self._layout.with_pane(name))
        widgets[name].focus()
        return ""

    @property
    def is_settled(self) -> bool:
        """Whether the panes show what they were told to."""
        return not self._shows_soon and self._rests is None

    def show_soon(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show the picture, and the job under the cursor, once the list has said it and the cursor rests.

        A key is answered by the list alone, and the next one need not wait for what the panes cost.
        What was read for a job that the cursor has left is read no more from now on. Where there is no job
        any more nothing is put off: it may be another cluster.
        """
        has_moved = self._job is not None and self._job.uid != (job and job.uid)
        self._job, self._snapshot = job, snapshot
        if not self.strip.is_mounted:
            return
        if has_moved and job is None:
            self.job_pane.leave()
            self._show()
        elif has_moved:
            self.job_pane.leave()
            if self._rests is not None:
                self._rests.stop()
            self._rests = self.strip.set_timer(DRAW_S, self._show)
        elif self._rests is None and not self._shows_soon:
            self._shows_soon = True
            self.strip.call_later(self._show)

    def _show(self) -> None:
        if self._rests is not None:
            self._rests.stop()
        self._shows_soon, self._rests = False, None
        if self.strip.screen.is_running:  # while it is closed its widgets go one by one
            self.show(self._job, self._snapshot)

    def show(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show the picture, and the job under the cursor."""
        self._job, self._snapshot = job, snapshot
        if not self.strip.is_mounted:
            return
        is_on_nodes = self.strip.has_focus
        under = jobs_on(self.strip.nodes_under_cursor, snapshot) if is_on_nodes else []
        light = light_of_jobs(under) if is_on_nodes else self._light.of(job, snapshot)
        if self._layout.has_nodes:
            self.strip.show(snapshot, light, strip_lines(self._size.height))
        self._table().point_at(frozenset(each.uid for each in under))
        if self.job_pane.is_mounted:
            self.job_pane.show(job, snapshot)

    def filter_to_cursor(self) -> bool:
        """List only the jobs on the node under the cursor; return whether that was so already."""
        nodes = self.strip.nodes_under_cursor
        if self.nodes == nodes:
            return True
        self.nodes, self.nodes_words = nodes, self.strip.cursor
        return False

    @property
    def nodes_argument(self) -> str:
        """Return what the list of nodes is opened with for the entry under the cursor: see `NodesView`."""
        cursor, label = self.strip.cursor, self._context().strip_by
        if not self.strip.is_grouped:
            return cursor
        return f"/-l {label}={cursor}" if label else f"/model:^{re.escape(cursor)}$"

    def clear_filter(self) -> bool:
        """List all jobs again; return whether that is a change."""
        had_filter = bool(self.nodes)
        self.nodes, self.nodes_words = frozenset(), ""
        return had_filter
