"""The theme picker: the cursor applies a theme to the whole console, enter saves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static

import themes
from k8s.text.errors import KubeError
from tui.settings.keys import DIALOG
from tui.tables.column import Cell, Column, Row
from tui.terminal.key_queue import keys_held
from tui.text.format import STATUS_STYLES, CellStyle, Run
from tui.widgets.bindings import bindings
from tui.widgets.table.table import Table

_COLUMNS = (
    Column("name", "THEME", min_width=16, elide="middle", max_width=28),
    Column("background", "BACKGROUND", min_width=8),
)
_COLOURS: Mapping[CellStyle, str] = {
    "quiet": "$quiet",
    "running": "$status-running",
    "pending": "$status-pending",
    "changing": "$status-changing",
    "failed": "bold $status-failed",
    "done": "$status-done",
    "gpu-busy": "$gpu-busy",
    "gpu-free": "$gpu-free",
    "gpu-bad": "$gpu-bad",
}
_SAMPLE: tuple[tuple[Run, ...], ...] = (
    tuple((status, STATUS_STYLES[status]) for status in ("Running", "Pending", "Restarting")),
    (
        *((status, STATUS_STYLES[status]) for status in ("Failed", "Succeeded")),
        ("▮▮▮", "gpu-busy"),
        ("▯▯", "gpu-free"),
        ("✕", "gpu-bad"),
    ),
)


class ThemesScreen(ModalScreen[None]):
    """A small list of themes in a corner, so that the view behind it serves as the preview."""

    CSS_PATH = "themes.tcss"
    AUTO_FOCUS: ClassVar[str] = "Table"
    BINDINGS: ClassVar[list[BindingType]] = bindings(key for key in DIALOG if key.id == "dialog.escape")

    def __init__(self, palettes: Mapping[str, themes.Palette], save: Callable[[str], None]) -> None:
        """List `palettes`; `save` stores the name of the chosen one, and is run in a thread."""
        super().__init__()
        self._palettes = palettes
        self._save_theme = save
        self._original = ""

    def compose(self) -> ComposeResult:
        """Lay out the list, a sample of the status colours, and the keys."""
        with Vertical(id="picker", classes="pane") as pane:
            pane.border_title = "Theme"
            yield Table(_COLUMNS)
            yield Static(_sample(), id="sample", markup=False)
            yield Label("enter save · esc cancel", id="keys", markup=False)

    def on_mount(self) -> None:
        """List the themes, with the cursor on the one in use."""
        self._original = self.app.theme
        table = self.query_one(Table)
        table.set_rows([_row(palette) for palette in self._palettes.values()])
        table.move_to(self._original)

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Apply the theme under the cursor."""
        event.stop()
        if event.key:
            self.app.theme = event.key

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Apply the theme and save it."""
        event.stop()
        self.app.theme = event.key
        self._save(event.key)

    def action_escape(self) -> None:
        """Go back to the original theme."""
        self.app.theme = self._original
        self.dismiss(None)

    @work(exclusive=True, group="save")
    async def _save(self, name: str) -> None:
        # In a thread: home folders may be slow.
        try:
            with keys_held(self.app):
                await asyncio.to_thread(self._save_theme, themes.short(name))
        except KubeError as error:
            self.app.notify(error.details, title=error.what, severity="error", markup=False)
        self.dismiss(None)


def _row(palette: themes.Palette) -> Row:
    background = "terminal's" if palette.get("ansi") else "dark" if palette["dark"] else "light"
    return Row(palette["name"], (Cell(themes.short(palette["name"])), Cell(background, "quiet")))


def _sample() -> Content:
    lines = (
        Content(" ").join(Content.styled(text, _COLOURS[look]) for text, look in runs) for runs in _SAMPLE
    )
    return Content("\n").join(lines)
