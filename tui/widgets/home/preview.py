"""Details of the job under the cursor.

Details from the snapshot are shown at once. The cluster is asked only when the cursor rests, and again
when that row has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual import events, work
from textual.reactive import reactive
from textual.strip import Strip
from textual.timer import Timer

from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.sanitize import sanitize
from tui.tables.jobs import JobsNow, status_text
from tui.text.cells import cell_len, elide_end, wrapped
from tui.text.format import CellStyle, Clock, Run, compact_ranges
from tui.widgets.painted import PaintedWidget
from tui.widgets.table.visible_lines import SHORTEST_TIMER_S

if TYPE_CHECKING:
    from k8s.models.event import Event
    from tui.session.preview_data import PreviewData
    from tui.session.session import Session

Lines = list[list[Run]]
# The cursor has to rest this long before the pane changes.
DRAW_S = 0.06
FETCH_S = 0.3
# Fetched details of a job are reused for this long.
CACHE_S = 5.0
MAX_CACHED = 50
_LINES_OF_EVENT = 3


class Preview(PaintedWidget):
    """Details of a job."""

    session: reactive[Session | None] = reactive(None, repaint=False)

    def __init__(self, is_explained: Callable[[str], bool] = lambda _uid: False) -> None:
        """Create an empty preview.

        `is_explained` returns True if the row of a job, by uid, shows its reason in full.
        """
        super().__init__()
        self._is_explained = is_explained
        # Text without a selection.
        self.empty = ""
        self._job: Job | None = None
        self._snapshot = ClusterSnapshot()
        self._lines: Lines = []
        self._timer: Timer | None = None
        self._previews: dict[str, tuple[Job, PreviewData, float]] = {}

    @property
    def is_idle(self) -> bool:
        """True if no fetch or repaint of the job is scheduled."""
        return self._timer is None or not self.display

    def show(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show a job; the same one may be shown again."""
        was, before, self._job, self._snapshot = self._job, self._snapshot, job, snapshot
        if not self.display:
            return
        if _uid(was) != _uid(job):
            self._cancel()
            self._timer = self.set_timer(DRAW_S, self._rested)
        elif job is not None and (was is not job or before.signs(job) != snapshot.signs(job)):
            self._update()
            if self._timer is None:
                self._fetch_later(0.0)

    def on_show(self) -> None:
        """Draw and fetch the current job."""
        self._cancel()
        self._rested()

    def on_hide(self) -> None:
        """Stop fetching."""
        self._cancel()

    def on_resize(self, event: events.Resize) -> None:
        """Draw in the new width."""
        self._update()

    def on_mount(self) -> None:
        """Refresh the ages."""
        self.set_interval(10, self._update)

    def _rested(self) -> None:
        self._timer = None
        self._update()
        self._fetch_later(FETCH_S - DRAW_S)

    def _fetch_later(self, wait_s: float) -> None:
        job = self._job
        if job is None or not self.display:
            return
        if job.uid in self._previews:
            cached, _, at_s = self._previews[job.uid]
            left_s = at_s + CACHE_S - asyncio.get_running_loop().time()
            if cached is job and left_s > 0:
                return
            wait_s = max(wait_s, left_s)
        self._timer = self.set_timer(max(wait_s, SHORTEST_TIMER_S), self._fetch)

    def _fetch(self) -> None:
        self._timer = None
        session, job = self.session, self._job
        if session is not None and job is not None and self.screen.is_current:
            self._fetch_preview(session, job)

    @work(group="preview", exclusive=True)
    async def _fetch_preview(self, session: Session, job: Job) -> None:
        from tui.session.preview_data import fetch_preview

        preview = await fetch_preview(session.client, job, session.permissions)
        self._previews.pop(job.uid, None)
        self._previews[job.uid] = (job, preview, asyncio.get_running_loop().time())
        for uid in list(self._previews)[:-MAX_CACHED]:
            del self._previews[uid]
        self._update()
        if self._job is not job and _uid(self._job) == job.uid and self._timer is None:
            self._fetch_later(0.0)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.workers.cancel_group(self, "preview")

    def _update(self) -> None:
        lines = self._compose_lines()
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def _compose_lines(self) -> Lines:
        job = self._job
        width, height = self.content_size
        if not self.display or width < 1:
            return []
        if job is None:
            return [[(line, "quiet")] for line in wrapped(self.empty, width)]
        now = JobsNow(Clock.ahead(self._snapshot.clock_offset_s), signs=self._snapshot.signs)
        cached = self._previews.get(job.uid)
        preview = cached[1] if cached else None
        has_reason = not self._is_explained(job.uid)
        return job_preview(job, preview, now, width, height, has_reason=has_reason)

    def render_line(self, y: int) -> Strip:
        """Render one line."""
        base = self.rich_style
        if y >= len(self._lines):
            return Strip.blank(self.content_size.width, base)
        segments = [Segment(text, base + self.look(f"table--{style}")) for text, style in self._lines[y]]
        cells = sum(cell_len(text) for text, _ in self._lines[y])
        return Strip(segments, cells).adjust_cell_length(self.content_size.width, base)


def _uid(job: Job | None) -> str | None:
    return job.uid if job is not None else None


def job_preview(
    job: Job, preview: PreviewData | None, now: JobsNow, width: int, height: int, *, has_reason: bool = True
) -> Lines:
    """Render the preview of a job: identity, status, reason, events.

    Args:
        job: The job.
        preview: Its events; None before they were fetched.
        now: Current time, and the trouble in the output of jobs.
        width: Cells per line.
        height: Maximum number of lines.
        has_reason: Show the reason; its row may do so.
    """
    lines: Lines = [[(elide_end(sanitize(job.ref.name), width), "bright")]]
    about = " · ".join(
        dict.fromkeys(filter(None, (job.ref.kind, job.ref.namespace, job.user, job.queue, job.priority)))
    )
    lines += _wrapped_lines(about, width, "quiet")
    amounts = f"  {job.instances_running}/{len(job.instances)} pods"
    if job.gpus_requested or job.gpus_allocated:
        amounts = f"  {job.gpus_allocated}/{job.gpus_requested} GPUs{amounts}"
    status = status_text(job, now)
    fits = cell_len(status[0] + amounts) <= width
    lines += [[status, (amounts, "")]] if fits else [[status], *_wrapped_lines(amounts, width, "")]
    if job.nodes:
        lines += _wrapped_lines(f"on {compact_ranges(job.nodes)}", width, "quiet")
    if job.progress:
        lines += _wrapped_lines(job.progress, width, "")
    reason = now.reason(job) if has_reason else ""
    if told := [
        *_wrapped_lines(reason, width, "quiet" if status[1] == "done" else status[1]),
        *_wrapped_lines(job.remedy, width, ""),
    ]:
        lines += [[], *told]
    if preview is None:
        return lines[:height]
    lines += [[], _heading("events", width)]
    if preview.events_problem:
        lines += _wrapped_lines(preview.events_problem, width, "pending")
    elif not preview.events:
        lines += _wrapped_lines("None; a cluster forgets them after an hour.", width, "quiet")
    for event in preview.events:
        if len(lines) > height:
            break
        lines += _event(event, now.clock, width)
    return lines[:height]


def _wrapped_lines(text: str, width: int, look: CellStyle) -> Lines:
    return [[(line, look)] for line in wrapped(text, width)]


def _heading(text: str, width: int) -> list[Run]:
    text = elide_end(sanitize(text), width - 4)
    return [(f"─ {text} {'─' * (width - cell_len(text) - 3)}", "quiet")]


def _event(event: Event, clock: Clock, width: int) -> Lines:
    is_warning = event.type == "Warning"
    count = f" ×{event.count}" if (event.count or 1) > 1 else ""
    start = f"{clock.age(event.at)} {event.reason or ''}{count}: "
    texts = wrapped(start + (event.message or ""), width)
    if len(texts) > _LINES_OF_EVENT:
        texts = [*texts[: _LINES_OF_EVENT - 1], elide_end(" ".join(texts[_LINES_OF_EVENT - 1 :]), width)]
    return [[(text, "pending" if is_warning else "")] for text in texts]
