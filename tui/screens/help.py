"""All keys and commands, made from the table that also makes the bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from k8s.text import sanitize
from tui.keys import COMMANDS, EVERYWHERE, HELP, PROMPT, TABLE, Key
from tui.match import FILTERS
from tui.screens.view import Given
from tui.widgets.bindings import bindings


class HelpScreen(ModalScreen[None]):
    """The keys of the view behind it, those that work everywhere, and the commands."""

    CSS_PATH = "help.tcss"
    AUTO_FOCUS: ClassVar[str] = "VerticalScroll"
    COMPONENT_CLASSES: ClassVar[set[str]] = {"help--heading", "help--key", "help--refused"}
    BINDINGS: ClassVar[list[BindingType]] = bindings(HELP)

    def __init__(self, view: str, keys: Sequence[Key], given: Given, refused: Mapping[str, str]) -> None:
        """Show the `keys` of the view with this name first.

        Args:
            view: What the view is called.
            keys: Its part of the table.
            given: What the application gives: whose keys, and whether anything may be changed.
            refused: Ids of keys that would be refused, and why.
        """
        super().__init__()
        self._view = view
        self._keys = keys
        self._given = given
        self._refused = refused

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
        quiet = self.get_component_rich_style("help--refused", partial=True)
        text = Text()
        sections = (
            (self._view, self._keys),
            ("In tables", TABLE),
            ("Everywhere", EVERYWHERE),
            ("While typing", PROMPT),
        )
        for title, keys in sections:
            if not keys:
                continue
            text.append(f"{title}\n", heading)
            for key in self._given.keys(keys):
                why = self._refused.get(key.id, "")
                text.append(f"  {key.all_shown:<10} ", quiet if why else key_style)
                text.append(f"{key.words}\n", quiet if why else "")
                if why:
                    text.append(f"{'':13}{sanitize(why)}\n", quiet)
            text.append("\n")
        text.append("Filters, after /\n", heading)
        for typed, words in FILTERS:
            text.append(f"  {typed:<22} ", key_style)
            text.append(f"{words}\n")
        text.append("\nCommands, after :\n", heading)
        for command in COMMANDS:
            if command.changes and self._given.is_read_only:
                continue
            text.append(f"  {f'{command.name} {command.takes.upper()}'.strip():<22} ", key_style)
            text.append(f"{command.words}\n")
        self.query_one("#text", Static).update(text)

    def action_close(self) -> None:
        """Go back to the view."""
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        """Scroll by lines."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=rows, animate=False)
