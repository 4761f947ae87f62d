"""Command lines for a job, to read and copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from k8s.text.sanitize import sanitize
from tui.settings.keys import JOB_COMMANDS
from tui.tables.column import Cell, Column, Row
from tui.widgets.bindings import bindings
from tui.widgets.table.table import Table

_COLUMNS = (
    Column("key", "KEY", min_width=5),
    Column("words", "COMMAND", min_width=16, elide="end", max_width=300),
)


class JobCommandsScreen(ModalScreen[str]):
    """A list of command lines with the one under the cursor in full; returns the one to copy."""

    CSS_PATH = "job_commands.tcss"
    AUTO_FOCUS: ClassVar[str] = "Table"
    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_COMMANDS)

    def __init__(self, heading: str, commands: Sequence[tuple[str, str, str]]) -> None:
        """List commands under `heading`.

        Args:
            heading: The title.
            commands: The key that does the same, the command in short, and its whole line.
        """
        super().__init__()
        self._heading = sanitize(heading)
        self._commands = commands

    def compose(self) -> ComposeResult:
        """Lay out the list, the whole line, and the keys."""
        with Vertical(id="commands", classes="pane") as pane:
            pane.border_title = Content(self._heading)
            yield Table(_COLUMNS)
            yield Static("", id="line", markup=False)
            shown = " · ".join(f"{key.shown} {key.footer}" for key in JOB_COMMANDS if key.footer)
            yield Label(shown, id="keys", markup=False)

    def on_mount(self) -> None:
        """Fill the list."""
        rows = [
            Row(str(place), (Cell(key), Cell(sanitize(words))))
            for place, (key, words, _) in enumerate(self._commands)
        ]
        self.query_one(Table).set_rows(rows)

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Show the line in full."""
        event.stop()
        self.query_one("#line", Static).update(sanitize(self._line))

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Return the line."""
        event.stop()
        self.action_copy()

    @property
    def _line(self) -> str:
        key = self.query_one(Table).cursor_key
        return self._commands[int(key)][2] if key else ""

    def action_copy(self) -> None:
        """Return the line under the cursor."""
        self.dismiss(self._line)

    def action_close(self) -> None:
        """Return nothing."""
        self.dismiss("")
