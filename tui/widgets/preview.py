"""What there is to say of the row under the cursor, read only while the cursor rests.

What the snapshot has is shown at once. The cluster is asked when the cursor has rested, and
again when that row has changed; while nothing happens nothing is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, get_args

from rich.segment import Segment
from rich.style import Style
from textual import events, work
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from k8s.snapshot import ClusterSnapshot, Job, NodeRow
from tui.feeds.preview_text import Lines, job_preview, node_preview, wrapped
from tui.text.cells import cell_len
from tui.text.format import Clock, Look
from tui.widgets.table.flashes import SHORTEST_TIMER_S

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.jobs.permissions import Permissions
    from tui.feeds.preview_data import PreviewData

DRAW_S = 0.06
"""How long the cursor rests before the pane shows another row."""
FETCH_S = 0.3
"""How long it rests before the cluster is asked."""
KEPT_S = 5.0
"""How long what was seen of a job is not asked for again."""
MOST_KEPT = 50
"""Jobs of which it is kept what was seen."""


class Preview(Widget):
    """Shows why a job waits or fails, and its events; or who holds a node."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"table--{look}" for look in filter(None, get_args(Look))}

    def __init__(
        self,
        client: Callable[[], Client | None],
        permissions: Callable[[], Permissions | None] = lambda: None,
    ) -> None:
        """Show nothing yet.

        Args:
            client: Returns the cluster once it is reached.
            permissions: Returns what this user may do there; what is refused is not asked for.
        """
        super().__init__()
        self._client, self._permissions = client, permissions
        self.empty = ""
        """What it says while there is nothing under the cursor."""
        self._subject: Job | NodeRow | None = None
        self._snapshot = ClusterSnapshot()
        self._lines: Lines = []
        self._timer: Timer | None = None
        self._previews: dict[str, tuple[Job, PreviewData, float]] = {}
        self._styles: dict[Look, Style] = {}

    def show(self, subject: Job | NodeRow | None, snapshot: ClusterSnapshot) -> None:
        """Show what is under the cursor now, which may be what it was before."""
        was, self._subject, self._snapshot = self._subject, subject, snapshot
        if not self.display:
            return
        if _key(was) != _key(subject):
            self._cancel()
            self._timer = self.set_timer(DRAW_S, self._rested)
        elif was is not subject:
            self._update()
            if self._timer is None:
                self._fetch_later(0.0)

    def on_show(self) -> None:
        """Show it, now that there is room for it."""
        self._cancel()
        self._rested()

    def on_hide(self) -> None:
        """Ask nothing more."""
        self._cancel()

    def on_resize(self, event: events.Resize) -> None:
        """Show it in the new width."""
        self._update()

    def on_mount(self) -> None:
        """Let ages grow though nothing changes."""
        self.set_interval(10, self._update)

    def _rested(self) -> None:
        self._timer = None
        self._update()
        self._fetch_later(FETCH_S - DRAW_S)

    def _fetch_later(self, wait_s: float) -> None:
        """Look at the job after a while, but not sooner after the last time than what was seen is kept."""
        job = self._subject
        if not isinstance(job, Job) or not self.display:
            return
        if job.uid in self._previews:
            seen, _, at_s = self._previews[job.uid]
            left_s = at_s + KEPT_S - asyncio.get_running_loop().time()
            if seen is job and left_s > 0:
                return
            wait_s = max(wait_s, left_s)
        self._timer = self.set_timer(max(wait_s, SHORTEST_TIMER_S), self._fetch)

    def _fetch(self) -> None:
        self._timer = None
        client, job = self._client(), self._subject
        if client is not None and isinstance(job, Job) and self.screen.is_current:
            self._look(client, job)

    @work(group="preview", exclusive=True)
    async def _look(self, client: Client, job: Job) -> None:
        from tui.feeds.preview_data import fetch_preview

        preview = await fetch_preview(client, job, self._permissions())
        self._previews.pop(job.uid, None)
        self._previews[job.uid] = (job, preview, asyncio.get_running_loop().time())
        for uid in list(self._previews)[:-MOST_KEPT]:
            del self._previews[uid]
        self._update()
        if self._subject is not job and _key(self._subject) == job.uid and self._timer is None:
            self._fetch_later(0.0)

    def _cancel(self) -> None:
        """Neither wait nor ask for what the cursor has left."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.workers.cancel_group(self, "preview")

    def _update(self) -> None:
        """Draw the lines anew where they say something else now."""
        lines = self._compose_lines()
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def _compose_lines(self) -> Lines:
        subject, snapshot = self._subject, self._snapshot
        width, height = self.content_size
        if not self.display or width < 1:
            return []
        if subject is None:
            return [[(line, "quiet")] for line in wrapped(self.empty, width)]
        clock = Clock.ahead(snapshot.clock_offset_s)
        if isinstance(subject, Job):
            seen = self._previews.get(subject.uid)
            preview = seen[1] if seen else None
            return job_preview(subject, preview, clock, width, height)
        users = {(job.ref.namespace, job.ref.name): job.user for job in snapshot.jobs}
        return node_preview(subject, users, clock, width)

    def notify_style_update(self) -> None:
        """Draw in the colours of another theme."""
        super().notify_style_update()
        self._styles.clear()

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        base = self.rich_style
        if y >= len(self._lines):
            return Strip.blank(self.content_size.width, base)
        segments = [Segment(text, self._style(look)) for text, look in self._lines[y]]
        cells = sum(cell_len(text) for text, _ in self._lines[y])
        return Strip(segments, cells).adjust_cell_length(self.content_size.width, base)

    def _style(self, look: Look) -> Style:
        if look not in self._styles:
            above = self.get_component_rich_style(f"table--{look}", partial=True) if look else Style()
            self._styles[look] = self.rich_style + above
        return self._styles[look]


def _key(subject: Job | NodeRow | None) -> str | None:
    if subject is None:
        return None
    return subject.uid if isinstance(subject, Job) else subject.name
