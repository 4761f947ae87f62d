"""The list of past runs, and several runs side by side: settings that differ, values and bars."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from textual import work

from k8s.kinds import JobRef
from k8s.text.errors import KubeError
from k8s.text.sanitize import sanitize
from tui.runs.compare import MAX_BAR_CELLS, MIN_BAR_CELLS, CompareColumn, CompareRow, Comparison
from tui.runs.record import RunRecord
from tui.runs.store import RunStore
from tui.screens.base.feed_view import DescribedList, ListContent, ListDescription
from tui.screens.base.list_view import ListView
from tui.screens.lists import COMPARE, RUNS
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, Column, Row, cells
from tui.tables.runs import COLUMNS
from tui.text.format import CellStyle, Clock, memory, plural
from tui.widgets.table.table import Table

# The kept log is below the record.
OF_GONE = {"curves": "curves", "logs": "open_run"}


def runs_view(store: RunStore) -> DescribedList:
    """Return the list of past runs, the newest first."""

    def content(view: DescribedList, columns: Any) -> ListContent:
        clock, marks = Clock.ahead(0), view.query_one(Table).marks
        found = [each for each in reversed(store.records()) if each.name]
        size, problems = memory(store.journal.size_bytes), store.problems
        return ListContent(
            rows=[Row(each.uid, cells(each, clock, columns)) for each in found],
            title=[f"Past runs ({len(found)})", f"{len(marks)} marked" if marks else ""],
            totals=f"Σ {plural(len(found), 'run')} · {size} · gpuconsole runs --clear deletes them",
            empty="No past runs yet.\nJobs are recorded when they end, or are deleted here.",
            notice=f"{plural(len(problems), 'record')} skipped: {problems[0]}" if problems else "",
        )

    def job_of(view: DescribedList, uid: str) -> JobRef | None:
        return next((job.ref for job in view.snapshot.jobs if job.uid == uid), None)

    view = DescribedList(
        ListDescription(
            view=RUNS,
            columns=COLUMNS,
            content=content,
            on_enter="open_run",
            order=None,
            keeps_row=True,
            no_job="The job of this run is gone; enter shows its record and its kept log.",
            job_of=job_of,
        )
    )
    view.OF_GONE = OF_GONE
    return view


BAR = "bar"


class CompareView(ListView):
    """Table of the settings that differ, and of values; bars show the value of the order."""

    VIEW: ViewDeclaration = COMPARE
    ON_ENTER: str = "open_job"
    NO_JOB: str = "The job of this run is gone; :runs shows its record."
    OF_GONE: Mapping[str, str] = OF_GONE
    ORDER: tuple[str, bool] | None = None

    def __init__(self, count: int, fetch: Callable[[], Awaitable[Sequence[RunRecord]]]) -> None:
        """Compare the runs that `fetch` returns, `count` of them."""
        super().__init__()
        self._count, self._fetch = count, fetch
        self._comparison: Comparison | None = None
        self._problem = ""

    def on_mount(self) -> None:
        """Redraw the bars when the order changes."""
        self.watch(self.query_one(Table), "order", self.refresh_view, init=False)

    def resume_feeds(self) -> None:
        """Read the runs."""
        self.read()

    def pause_feeds(self) -> None:
        """Cancel the reads."""
        self.workers.cancel_group(self, "read")

    def refresh_feeds(self) -> None:
        """Read the runs again."""
        self.read()

    @work(exclusive=True, group="read")
    async def read(self) -> None:
        """Read the runs."""
        try:
            records = await self._fetch()
        except KubeError as error:
            self._problem = str(error)
        else:
            self._problem = "; ".join(f"{each.name}: {each.problem}" for each in records if each.problem)
            self._comparison = Comparison(records, now_s=time.time())
        self.refresh_view()

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        found = self._comparison
        self.set_list_title(f"Compare {plural(self._count, 'run')}")
        self.set_line("notice", self._problem)
        if found is None:
            table.empty = f"Reading {plural(self._count, 'run')}…"
            return
        key = table.order[0] if table.order is not None else ""
        if any(each.key == key for each in found.measures):
            found.bar_key = key
        fields = found.fields()
        longest = max(len(row.name) for row in found.rows)
        columns = [_column(field, place, longest) for place, field in enumerate(fields)]
        if found.bar_key:
            columns.append(Column(BAR, "", min_width=MIN_BAR_CELLS, max_width=MAX_BAR_CELLS))
        rows = [
            self._row(found, row, fields, f"{number} {row.runs[0].uid}")
            for number, row in enumerate(found.rows)
        ]
        table.set_columns(columns, rows)
        differing = ", ".join(map(sanitize, found.differing))
        words = f"differ in {differing}" if differing else "no setting differs"
        title = next((each.title for each in found.measures if each.key == found.bar_key), "")
        self.set_line("totals", " · ".join(filter(None, (f"Σ {words}", f"bars: {title}" * bool(title)))))

    def _row(self, found: Comparison, row: CompareRow, fields: Sequence[CompareColumn], key: str) -> Row:
        texts = found.texts(row)
        made = []
        for field in fields:
            figure = row.figures.get(field.key)
            style: CellStyle = "bright" if field.key == "name" else ""
            made.append(Cell(texts[field.key], style, sort=figure.value if figure is not None else None))
        if found.bar_key:
            made.append(Cell(found.bar(row, MIN_BAR_CELLS * 2), "series-1"))
        return Row(key, tuple(made))

    @property
    def is_synced(self) -> bool:
        """Return True: the runs are read once."""
        return True

    def current_job(self) -> JobRef | None:
        """Return the job of the run under the cursor, if it exists here."""
        uid = self.selected_object()
        return next((job.ref for job in self.snapshot.jobs if job.uid == uid), None)

    def selected_object(self) -> str:
        """Return the UID of the run under the cursor."""
        return self.selected_row().partition(" ")[2]


# Hidden before the settings, the highest first.
_PRIORITIES = {"placement": 97, "gpu_hours": 98, "duration_s": 99}


def _column(field: CompareColumn, place: int, longest: int) -> Column:
    title, priority = sanitize(field.title), _PRIORITIES.get(field.key, 0)
    if field.is_number:
        return Column(field.key, title, "right", priority=priority, sorts_largest_first=True)
    if field.is_setting:
        width = min(8, len(title))
        return Column(
            field.key, title, priority=priority or 9 + place, elide="end", min_width=width, max_width=24
        )
    return Column(field.key, title, min_width=16, good_width=min(longest, 40), elide="middle", max_width=48)
