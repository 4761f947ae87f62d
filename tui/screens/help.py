"""All keys and commands, made from the table that also makes the bindings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.keys import COMMANDS, EVERYWHERE, MOVING, Key


class HelpScreen(ModalScreen[None]):
    """The keys of the view behind it, those that work everywhere, and the commands."""

    CSS_PATH = "help.tcss"
    AUTO_FOCUS: ClassVar[str] = "VerticalScroll"
    COMPONENT_CLASSES: ClassVar[set[str]] = {"help--heading", "help--key"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "close", "Close", show=False),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, view: str, keys: Sequence[Key]) -> None:
        """Show the `keys` of the view with this name first."""
        super().__init__()
        self._view = view
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll():
            yield Static(id="text", markup=False)

    def on_mount(self) -> None:
        """Write the help once the theme's colours are known."""
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        heading = self.get_component_rich_style("help--heading", partial=True)
        key_style = self.get_component_rich_style("help--key", partial=True)
        text = Text()
        sections = ((self._view, self._keys), ("In tables", MOVING), ("Everywhere", EVERYWHERE))
        for title, keys in sections:
            text.append(f"{title}\n", heading)
            for key in keys:
                text.append(f"  {key.shown:<8}", key_style)
                text.append(f"{key.words}\n")
            text.append("\n")
        text.append("Commands, after :\n", heading)
        for command in COMMANDS:
            text.append(f"  {' '.join((command.name, command.argument)).strip():<22}", key_style)
            text.append(f"{command.words}\n")
        self.query_one("#text", Static).update(text)

    def action_close(self) -> None:
        """Go back to the view."""
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        """Scroll by lines."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=rows, animate=False)
