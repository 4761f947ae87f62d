"""The panes of home: layout, keys, focus and highlights."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from textual.geometry import Size
from textual.timer import Timer
from textual.widget import Widget

from k8s.snapshot import ClusterSnapshot, Job
from tui.runs.journal.choices import read_layout, store_layout
from tui.screens.base.view_context import ViewContext
from tui.screens.lists import JOBS
from tui.settings.keys import (
    EVERYWHERE,
    JOB_PANE,
    LOG,
    ROW,
    SCROLL,
    STRIP,
    ActionTable,
    Key,
    remapped,
    unshadowed,
    view_keys,
)
from tui.text.format import plural
from tui.text.gpu_bar import FITTING, HIGHLIGHTED
from tui.text.natural_order import natural_key
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.home.node_bar_layout import NodeBarHighlight, describe_position
from tui.widgets.home.preview import DRAW_S
from tui.widgets.table.table import Table

if TYPE_CHECKING:
    from k8s.reasons.pending import FreeBlocks
    from tui.screens.base.view_context import ViewContext
    from tui.settings.keys import Action


# In the order of their numbers.
PaneName = Literal["nodes", "list", "job"]
MIN_COLUMNS, MIN_LINES = 80, 20
# Terminal height from which all panes fit below each other.
TALL_LINES = 32
# Terminal width from which the job pane is beside the list.
SIDE_COLUMNS = 160
# Height of the node bar in a short terminal.
SHORT_NODE_BAR_LINES = 2


class HomeLayout(StrEnum):
    """Panes around the list; in a small terminal, `FULL` omits the job pane until it is focused."""

    FULL = "full"
    LIST = "list"


# Stored by earlier releases.
REMOVED_LAYOUTS = ("list and nodes", "list and job")


def has_room(columns: int, lines: int) -> bool:
    """Return True if the terminal fits more than the list."""
    return columns >= MIN_COLUMNS and lines >= MIN_LINES


def layout_for(columns: int, lines: int, chosen: str) -> HomeLayout:
    """Return the layout for a terminal size; `chosen` is the stored layout name, or anything else."""
    is_list = chosen == HomeLayout.LIST or not has_room(columns, lines)
    return HomeLayout.LIST if is_list else HomeLayout.FULL


def node_bar_lines(lines: int) -> int:
    """Return the maximum height of the node bar, including its heading."""
    return lines // 3 if lines >= TALL_LINES else SHORT_NODE_BAR_LINES


MOST_NAMES = 3


class HomeHighlight:
    """Finds the highlight of the job under the cursor."""

    def __init__(self) -> None:
        self._blocks: FreeBlocks | None = None

    def of(self, job: Job | None, snapshot: ClusterSnapshot) -> NodeBarHighlight:
        """Highlight a job's GPUs; if it waits, the free ones it fits, or none."""
        return _highlight_of(job, lambda waits: self._free_blocks(waits, snapshot))

    def _free_blocks(self, job: Job, snapshot: ClusterSnapshot) -> dict[str, int] | None:
        if self._blocks is None:
            # Slow to import, and in a quiet cluster nothing waits.
            from k8s.reasons.pending import FreeBlocks

            self._blocks = FreeBlocks()
        return self._blocks.find(job, snapshot.nodes)


def _highlight_of(job: Job | None, free_blocks: Callable[[Job], dict[str, int] | None]) -> NodeBarHighlight:
    if job is None:
        return NodeBarHighlight()
    key = (job.ref.namespace, job.ref.name)
    held: dict[str, int] = {}
    for each in job.instances:
        if each.node and not each.status.is_final:
            held[each.node] = held.get(each.node, 0) + each.gpus
    if not job.gpus_waiting or held:
        return NodeBarHighlight(frozenset({key}), held, words=describe_position(HIGHLIGHTED, list(held)))
    fitting = free_blocks(job)
    if fitting is None:
        # Its row gives the reason.
        return NodeBarHighlight(is_dim=True, words=f"no room for {job.ref.name}")
    if not fitting:
        return NodeBarHighlight()
    amount = plural(sum(fitting.values()), "free GPU")
    return NodeBarHighlight(fitting=fitting, words=describe_position(f"{FITTING} {amount}", list(fitting)))


def highlight_of_jobs(jobs: Collection[Job]) -> NodeBarHighlight:
    """Highlight the GPUs of all jobs of a node."""
    names = ", ".join(job.ref.name for job in jobs) if len(jobs) <= MOST_NAMES else plural(len(jobs), "job")
    keys = frozenset((job.ref.namespace, job.ref.name) for job in jobs)
    return NodeBarHighlight(jobs=keys, words=f"{HIGHLIGHTED} {names}" if jobs else "no job here")


def jobs_on(nodes: Collection[str], snapshot: ClusterSnapshot) -> list[Job]:
    """Return the jobs that have an unfinished pod on one of these nodes."""
    return [
        job
        for job in snapshot.jobs
        if any(each.node in nodes and not each.status.is_final for each in job.instances)
    ]


_BACK, _LAYOUT = f"{EVERYWHERE}.back", "jobs.layout"
# The layout key comes before these, so that it is visible even without the job pane.
_LAYOUT_BEFORE = (f"{ROW}.clone", "jobs.next_view")


def tail_keys(actions: ActionTable) -> tuple[Key, ...]:
    """Return the keys of the log beside the job list."""
    # Letters of the list stay the list's, except ctrl+d, which scrolls.
    of_list = (*view_keys(JOBS, actions), *actions.keys(ROW))
    return unshadowed((*SCROLL, *LOG), [key for key in of_list if key.id != f"{ROW}.delete"])


def pane_keys(
    pane: PaneName, keys: Sequence[Key], of_nodes: Sequence[Key], actions: ActionTable
) -> tuple[Key, ...]:
    """Return the keys of the view that work while a pane is focused.

    Args:
        pane: Focused pane.
        keys: Keys of the view.
        of_nodes: Keys that act on the selected node.
        actions: Action table.
    """
    if pane != "nodes":
        return tuple(keys)
    of_jobs = {key.id for key in actions.keys(ROW)} | {"jobs.compare"}
    return (*of_nodes, *(key for key in keys if key.id not in of_jobs))


def bar_keys(pane: PaneName, keys: Iterable[Key], context: ViewContext, *, has_room: bool) -> tuple[Key, ...]:
    """Return the keys for the key bar.

    Args:
        pane: Focused pane; its keys shadow those of the view.
        keys: Keys of the view and global keys, in order.
        context: Session, for the keymap and the actions.
        has_room: True if more than one layout fits.
    """
    tail = tail_keys(context.actions)
    by_pane: Mapping[PaneName, tuple[Key, ...]] = {"nodes": STRIP, "list": (), "job": (*JOB_PANE, *tail)}
    own = remapped(by_pane[pane], context.keymap)
    taken = {each for key in own for each in key.keys.split(",")}
    others = [key for key in keys if taken.isdisjoint(key.keys.split(","))]
    shown = list(own)
    if pane != "list":
        at = next((place for place, key in enumerate(shown) if key in tail), len(shown))
        shown[at:at] = [replace(key, footer="list") for key in others if key.id == _BACK]
        others = [key for key in others if key.id != _BACK]
    if has_room:
        at = next((place for place, key in enumerate(others) if key.id in _LAYOUT_BEFORE), 0)
        others[at:at] = [replace(key, footer="layout") for key in others if key.id == _LAYOUT]
    return (*shown, *others)


class HomePanes:
    """Node bar and job pane around the job list."""

    def __init__(self, context: Callable[[], ViewContext], table: Callable[[], Table]) -> None:
        """Create the panes.

        Args:
            context: Returns the keys, settings and history.
            table: Returns the job list.
        """
        self.node_bar = NodeBar(context().strip_by, context().actions.keys("strip"))
        self.job_pane = JobPane(tail_keys(context().actions), lambda uid: table().shows_detail(uid))
        self.nodes: frozenset[str] = frozenset()
        """Nodes whose jobs are listed; empty lists all jobs."""
        self.nodes_text = ""
        self._context = context
        self._table = table
        self._size = Size()
        self._arranged_for: tuple[Size, str] | None = None
        self._layout = HomeLayout.LIST
        self._snapshot = ClusterSnapshot()
        self._job: Job | None = None
        self._highlight = HomeHighlight()
        self._is_update_pending = False
        self._rest_timer: Timer | None = None

    @property
    def layout(self) -> HomeLayout:
        """Current layout."""
        return self._layout

    @property
    def is_idle(self) -> bool:
        """True if the panes show the row under the cursor."""
        return not self._is_update_pending and self._rest_timer is None

    @property
    def focused(self) -> PaneName:
        """Focused pane."""
        focused = self.node_bar.screen.focused if self.node_bar.is_attached else None
        if focused is self.node_bar:
            return "nodes"
        return "job" if focused is not None and self.job_pane in focused.ancestors_with_self else "list"

    @property
    def node(self) -> str:
        """Node that keys act on; empty if the focus is elsewhere or on a group."""
        return self.node_bar.cursor if self.focused == "nodes" and not self.node_bar.is_grouped else ""

    def copy_text(self) -> str | None:
        """Return the names of the focused nodes or job; None if the list is focused."""
        if self.focused == "nodes":
            return "\n".join(sorted(self.node_bar.nodes_under_cursor, key=natural_key))
        return self._job.ref.name if self.focused == "job" and self._job is not None else None

    def refusal(self, action: Action | None) -> str:
        """Return the reason why an action does not apply to the focused pane; empty if it does."""
        if self.focused != "nodes" or action is None:
            return ""
        if action.acts_on_job:
            return "That key is for jobs, and the cursor is on a node; esc goes to the list."
        if any(on.view == "strip" for on in action.on) and not self.node:
            return "That key is for one node." + " Several are selected." * bool(self.node_bar.cursor)
        return ""

    @property
    def _format_free_space(self) -> str:
        width, height = self._size
        return f"More panes need {MIN_COLUMNS}x{MIN_LINES}; this terminal has {width}x{height}."

    def arrange(self, size: Size, context_name: str) -> str:
        """Lay out the panes for a terminal size and the layout stored for a context.

        Returns:
            A notice, once, if that layout no longer exists; empty otherwise.
        """
        if (size, context_name) == self._arranged_for:
            return ""
        self._arranged_for = size, context_name
        self._size = size
        journal = self._context().runs.journal
        chosen = read_layout(journal, context_name)
        self._show_layout(layout_for(size.width, size.height, chosen))
        if chosen not in REMOVED_LAYOUTS:
            return ""
        store_layout(journal, context_name, HomeLayout.FULL.value)
        return f"The layout '{chosen}' is gone: home is full, or the list alone (z)."

    def _show_layout(self, layout: HomeLayout, *, with_job: bool = False) -> None:
        self._layout, size = layout, self._size
        has_job_room = size.height >= TALL_LINES or size.width >= SIDE_COLUMNS
        is_full = layout is HomeLayout.FULL
        self.node_bar.display = is_full
        self.job_pane.display = is_full and (with_job or has_job_room)
        is_side = is_full and size.width >= SIDE_COLUMNS
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
        return (self.node_bar, self.node_bar.has_focus), (self.job_pane, self.job_pane.holds_focus)

    def cycle(self, context_name: str) -> str:
        """Switch to the next layout, store it for the context, and return the notice."""
        if not has_room(*self._size):
            return self._format_free_space
        following = HomeLayout.LIST if self._layout is HomeLayout.FULL else HomeLayout.FULL
        is_kept = store_layout(self._context().runs.journal, context_name, following.value)
        self._show_layout(following)
        return f"Layout: {following}." + ("" if is_kept else " It could not be saved.")

    def focus(self, name: PaneName) -> str:
        """Focus a pane; return the reason if there is no room."""
        widgets: dict[PaneName, Widget] = {
            "nodes": self.node_bar,
            "list": self._table(),
            "job": self.job_pane.focus_target,
        }
        if not has_room(*self._size):
            return "" if name == "list" else self._format_free_space
        if (name == "nodes" and not self.node_bar.display) or (name == "job" and not self.job_pane.display):
            self._show_layout(HomeLayout.FULL, with_job=name == "job")
        widgets[name].focus()
        return ""

    def show_soon(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show the snapshot and the job under the cursor once the cursor rests.

        The list answers a key alone, so the next key does not wait for the panes. The log of a job that the
        cursor has left is no longer read. Without a job nothing is delayed: the cluster may have changed.
        """
        has_moved = self._job is not None and self._job.uid != (job and job.uid)
        self._job, self._snapshot = job, snapshot
        if not self.node_bar.is_mounted:
            return
        if has_moved and job is None:
            self.job_pane.leave()
            self._show()
        elif has_moved:
            self.job_pane.leave()
            if self._rest_timer is not None:
                self._rest_timer.stop()
            self._rest_timer = self.node_bar.set_timer(DRAW_S, self._show)
        elif self._rest_timer is None and not self._is_update_pending:
            self._is_update_pending = True
            self.node_bar.call_later(self._show)

    def _show(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.stop()
        self._is_update_pending, self._rest_timer = False, None
        if self.node_bar.screen.display:  # False while it is removed, when its widgets go one by one
            self.show(self._job, self._snapshot)

    def show(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show the snapshot and the job under the cursor."""
        self._job, self._snapshot = job, snapshot
        if not self.node_bar.is_mounted:
            return
        is_on_nodes = self.node_bar.has_focus
        under = jobs_on(self.node_bar.nodes_under_cursor, snapshot) if is_on_nodes else []
        highlight = highlight_of_jobs(under) if is_on_nodes else self._highlight.of(job, snapshot)
        if self.node_bar.display:
            self.node_bar.show(snapshot, highlight, node_bar_lines(self._size.height))
        self._table().point_at(frozenset(each.uid for each in under))
        if self.job_pane.is_mounted:
            self.job_pane.show(job, snapshot)

    def filter_to_cursor(self) -> bool:
        """List only the jobs on the selected nodes; return True if they already were."""
        nodes = self.node_bar.nodes_under_cursor
        if self.nodes == nodes:
            return True
        self.nodes, self.nodes_text = nodes, self.node_bar.cursor
        return False

    @property
    def nodes_argument(self) -> str:
        """Return the argument of `NodesView` for the selected entry."""
        cursor, label = self.node_bar.cursor, self._context().strip_by
        if not self.node_bar.is_grouped:
            return cursor
        model = re.escape(cursor).replace("\\ ", r"\s")  # a space would end the term
        return f"/-l {label}={cursor}" if label else f"/model:^{model}$"

    def clear_filter(self) -> bool:
        """List all jobs again; return False if they already were."""
        had_filter = bool(self.nodes)
        self.nodes, self.nodes_text = frozenset(), ""
        return had_filter
