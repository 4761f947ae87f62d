"""List of past runs, also of jobs that are gone."""

from __future__ import annotations

from typing import ClassVar

from tui.keys import ViewDeclaration
from tui.runs.record import RunRecord
from tui.runs.store import RunStore
from tui.screens.base.list_view import ListView
from tui.screens.base.request import ActionRequest
from tui.screens.lists import RUNS
from tui.tables.column import ListColumn, Row, cells
from tui.tables.runs import COLUMNS
from tui.text.format import Clock, memory, plural
from tui.widgets.table.table import Table

AGES_S = 10.0


class RunsView(ListView):
    """List of past runs, the newest first."""

    VIEW: ClassVar[ViewDeclaration] = RUNS
    ON_ENTER: ClassVar[str] = "open_run"
    COLUMNS: ClassVar[tuple[ListColumn[RunRecord, Clock], ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = None
    KEEPS_ROW: ClassVar[bool] = True

    def __init__(self, store: RunStore) -> None:
        super().__init__()
        self._store = store

    def on_mount(self) -> None:
        """Refresh the ages, and show runs that are recorded meanwhile."""
        self.set_interval(AGES_S, self.refresh_view)

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        clock = Clock.ahead(0)
        runs = [each for each in reversed(self._store.records()) if each.name]
        table.empty = "No past runs yet.\nJobs are recorded when they end, or are deleted here."
        columns = self.columns_of(COLUMNS)
        table.set_columns(columns, [Row(each.uid, cells(each, clock, columns)) for each in runs])
        marked = f"{len(table.marks)} marked" if table.marks else ""
        self.set_list_title(f"Past runs ({len(runs)})", marked)
        problems = self._store.problems
        self.set_line(
            "notice", f"{plural(len(problems), 'record')} skipped: {problems[0]}" if problems else ""
        )
        size = memory(self._store.size_bytes)
        self.set_line(
            "totals", f"Σ {plural(len(runs), 'run')} · {size} · gpuconsole runs --clear deletes them"
        )

    @property
    def is_synced(self) -> bool:
        """Return True: past runs need no request."""
        return True

    def on_table_row_marked(self, event: Table.RowMarked) -> None:
        """Update the number of marks."""
        event.stop()
        self.refresh_view()

    def selected_object(self) -> str:
        """Return the UID of the run under the cursor."""
        return self.selected_row()

    def action_compare_marked(self) -> None:
        """Compare the marked runs."""
        self.post_message(ActionRequest("compare", " ".join(self.query_one(Table).marks)))
