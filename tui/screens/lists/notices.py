"""List of the notices of this session."""

from __future__ import annotations

from typing import ClassVar

from textual.message import Message

from k8s.kinds import JobRef
from tui.screens.base.feed_view import AGES_S
from tui.screens.base.list_view import ListView
from tui.screens.lists import NOTICES
from tui.settings.keys import ViewDeclaration
from tui.tables.column import ListColumn, Row, cells
from tui.tables.notices import COLUMNS, MAX_NOTICES, JobNotice
from tui.text.format import Clock, plural
from tui.widgets.table.table import Table


class NoticesView(ListView):
    """List of notices, newest first."""

    VIEW: ClassVar[ViewDeclaration] = NOTICES
    ON_ENTER: ClassVar[str] = "open_notice"
    NO_JOB: ClassVar[str] = "Its job is in another cluster; :ctx switches."
    COLUMNS: ClassVar[tuple[ListColumn[JobNotice, Clock], ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = None

    class Looked(Message):
        """The user has seen all notices."""

    def on_mount(self) -> None:
        """Refresh the ages."""
        self.set_interval(AGES_S, self.refresh_view)

    def on_screen_resume(self) -> None:
        """Report that the notices were seen."""
        self.post_message(self.Looked())

    def watch_notices(self) -> None:
        """Redraw, and report that the notices were seen."""
        self.refresh_view()
        if self.is_shown:
            self.post_message(self.Looked())

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        clock = Clock.ahead(self.snapshot.clock_offset_s)
        table.empty = "No news about your jobs since the console was opened."
        columns = self.columns_of(COLUMNS)
        table.set_columns(columns, [Row(each.key, cells(each, clock, columns)) for each in self.notices])
        self.set_list_title(f"Notices ({len(self.notices)})")
        full = f" · the newest {MAX_NOTICES}" if len(self.notices) >= MAX_NOTICES else ""
        self.set_line("totals", f"Σ {plural(len(self.notices), 'notice')}{full}")

    @property
    def is_synced(self) -> bool:
        """Return True: notices need no request."""
        return True

    def selected_object(self) -> str:
        """Return the key of the notice under the cursor."""
        return self.selected_row()

    def current_job(self) -> JobRef | None:
        """Return the job of the notice under the cursor, if it is in this cluster."""
        here, key = self.snapshot.context, self.selected_row()
        return next((each.job for each in self.notices if each.key == key and each.context == here), None)
