"""Events of the user's jobs, by job and the newest first, below bars over time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.app import ComposeResult
from textual.reactive import reactive

from k8s.kinds import JobRef
from tui.runs.journal.history import Entry, Gap, Timeline, default_since_s, read_timeline
from tui.screens.base.feed_view import DescribedList, ListContent, ListDescription
from tui.screens.base.request import ActionRequest
from tui.screens.lists import TIMELINE
from tui.tables.column import Row
from tui.tables.timeline import COLUMNS, minute, row_cells
from tui.text.format import CellStyle, Clock, age, plural
from tui.text.sparkline import sparkline
from tui.widgets.painted import PaintedWidget
from tui.widgets.table.table import Table

if TYPE_CHECKING:
    from tui.session.session import Session

# Interval of looking for changes in the journal, and of moving the bars without any.
POLL_S, MOVE_S = 3.0, 60.0
LISTED, MORE = 1_000, 4  # newest changes to list at first, and how many times more on the last row
_STYLES: tuple[CellStyle, ...] = ("pending", "running", "changing", "failed")
# The log tells nothing of them.
_UNLOGGED = ("queued", "preempted", "suspended")


class PhaseBars(PaintedWidget):
    """Numbers of jobs over time: one line of bars for each phase, and the times below."""

    timeline: reactive[Timeline] = reactive(Timeline)

    def render(self) -> Text:
        """Draw the bars; the highest of each line is its maximum, written beside it."""
        found, clock, quiet = self.timeline, Clock.ahead(0), self.look("table--quiet")
        if not found.until_s:  # it is being read
            return Text("")
        cells = max(self.size.width - 20, 14)
        lines = []
        for (phase, numbers), style in zip(found.counts(cells).items(), _STYLES, strict=True):
            known = [each for each in numbers if each is not None]
            most = max(known, default=0)
            # One of many is more than none.
            bars = sparkline([each and max(15.0, 100.0 * each / most) for each in numbers], cells)
            number = f"  max {most}" if phase != "failed" else f"  sum {sum(known)}"
            line = (f" {phase:<9}", quiet), (bars, self.look(f"table--{style}")), (number, quiet)
            lines.append(Text.assemble(*line))
        start, end = minute(found.since_s, clock), minute(found.until_s, clock)
        rule = "─" * (cells - len(start) - len(end) - 2)
        lines.append(Text(f"{'':10}{start} {rule} {end}", quiet))
        return Text("\n", no_wrap=True, end="").join(lines)


class TimelineView(DescribedList):
    """List of events, which follows the journal."""

    CSS_PATH = "timeline.tcss"

    def __init__(self, *, is_for_all: bool = False) -> None:
        """Show the events of the user's jobs, or of all."""
        self._is_for_all, self._listed, self._version = is_for_all, LISTED, (0, 0)
        self._timeline: Timeline | None = None
        self._rows: dict[str, tuple[Entry | Gap, Row]] = {}
        gone = "This job is gone; enter shows what was kept of it."
        columns = tuple(each for each in COLUMNS if is_for_all or each.key != "user")
        super().__init__(
            ListDescription(
                view=TIMELINE, columns=columns, content=self._content, on_enter="open_job", order=None,
                no_job=gone, load=self._fetch,
            )
        )  # fmt: skip

    def compose_body(self) -> ComposeResult:
        """Lay out the bars above the table."""
        notice, table = super().compose_body()
        yield from (notice, PhaseBars(), table)

    def on_mount(self) -> None:
        """Follow the journal."""
        self.set_interval(POLL_S, self._load)

    def watch_session(self) -> None:
        """Read the journal once the cluster is known, which is after the view was mounted."""
        self._load()

    async def _fetch(self) -> None:
        if self.session is not None and (self.is_shown or self._timeline is None):
            if self._timeline and self._timeline.listed_s > self._timeline.since_s:
                last = [row.key for row in self.query_one(Table).shown_rows[-1:]]
                self._listed *= MORE if self.selected_row() in (*last, "") else 1
            await asyncio.to_thread(self._read, self.session, self.columns_of(self.COLUMNS))

    def _read(self, session: Session, columns: Any) -> None:
        journal, last = self.context.runs.journal, self._timeline
        clock = Clock.ahead(self.snapshot.clock_offset_s)
        version, now_s = (journal.version, self._listed), clock.now.timestamp()
        if last is not None and version == self._version and now_s < last.until_s + MOVE_S:
            return
        context = session.client.config.context
        own = session.recorder.observer if session.recorder is not None else ""
        since_s = last.since_s if last is not None else default_since_s(journal, context, now_s, own)
        found = read_timeline(journal, context, since_s, now_s, is_for_all=self._is_for_all, most=version[1])
        keyed = ((_key(each), each) for each in (found.grouped() if found.entries else ()))
        rows = {key: (each, Row(key, row_cells(each, clock, columns))) for key, each in keyed}
        self._version, self._timeline, self._rows = version, found, rows

    def _content(self, _view: DescribedList, _columns: Any) -> ListContent:
        found, clock = self._timeline or Timeline(), Clock.ahead(self.snapshot.clock_offset_s)
        self.query_one(PhaseBars).timeline = found
        since, span = minute(found.listed_s, clock), age(found.until_s - found.listed_s)
        whose, jobs = "all jobs" if self._is_for_all else "your jobs", {each.uid for each in found.entries}
        gaps = f" · {plural(len(found.gaps), 'time')} not observed" if found.gaps else ""
        gaps += " · earlier ones follow the last row" if found.listed_s > found.since_s else ""
        return ListContent(
            rows=[row for _, row in self._rows.values()],
            title=["Timeline ({})", f"of {whose} since {since} ({span})" if self._timeline else ""],
            totals=f"Σ {plural(len(found.entries), 'event')} of {plural(len(jobs), 'job')}{gaps}",
            empty=f"No known events of {whose} since {since}." if self._timeline else "Reading the journal…",
            notice="; ".join(self.context.runs.journal.problems),
            is_complete=self._timeline is not None,
        )

    def current_job(self) -> JobRef | None:
        """Return the job of the row under the cursor if it still exists."""
        row, _ = self._rows.get(self.selected_row(), (None, None))
        uid = row.uid if isinstance(row, Entry) else ""
        known = self.session.mirror.all_jobs if self.session is not None else ()
        return next((job.ref for job in known if job.uid == uid), None)

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Open the job, and its log at the time of the event; of a job that is gone, what was kept."""
        event.stop().prevent_default()
        (row, _), job = self._rows.get(event.key, (None, None)), self.current_job()
        if not isinstance(row, Entry):
            self.flash("Neither a console nor gpuconsole record ran then.")
        elif job is not None:
            self.post_message(ActionRequest("open_job", targets=[job]))
            if row.event not in _UNLOGGED:
                self.post_message(ActionRequest("logs", str(row.change.at_s), [job]))
        elif self.context.runs.get(row.uid) is not None:
            self.post_message(ActionRequest("open_run", row.uid))
        else:
            self.flash("The job is gone, and no run of it was recorded.")


def _key(row: Entry | Gap) -> str:
    return f"{row.change.id} {row.event}" if isinstance(row, Entry) else f"gap {row.from_s}"
