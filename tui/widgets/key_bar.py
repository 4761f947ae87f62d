"""The line below every view: the keys that work here, as many as fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.widget import Widget

from tui.keys import Key


class KeyBar(Widget):
    """One line of keys and short words."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-bar--key", "key-bar--words"}

    DEFAULT_CSS = """
    KeyBar { height: 1; }
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        """Show those of `keys` that have short words, in order; the last two always fit."""
        super().__init__()
        self._keys = [key for key in keys if key.short]

    def render(self) -> Text:
        """Draw the keys; where they do not all fit, those in the middle go first."""
        parts = [self._part(key) for key in self._keys]
        ends = parts[-2:]
        kept: list[Text] = []
        room = self.size.width - 1 - sum(part.cell_len for part in ends)
        for part in parts[:-2]:
            if part.cell_len > room:
                break
            kept.append(part)
            room -= part.cell_len
        return Text.assemble(" ", *kept, *ends, no_wrap=True, end="")

    def _part(self, key: Key) -> Text:
        return Text.assemble(
            (key.shown, self.get_component_rich_style("key-bar--key", partial=True)),
            (f" {key.short}  ", self.get_component_rich_style("key-bar--words", partial=True)),
        )
