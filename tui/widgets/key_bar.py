"""The key bar below every view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from tui.keys import Key

# The last keys are shown however narrow the terminal is.
LAST = 2


class KeyBar(Widget):
    """One line of keys with short labels."""

    COMPONENT_CLASSES = {"key-bar--key", "key-bar--words", "key-bar--refused"}  # noqa: RUF012

    DEFAULT_CSS = """
    KeyBar { height: 1; }
    """

    refused: reactive[Mapping[str, str]] = reactive(dict, layout=False)
    """Refused keys by id, with reasons; drawn dim."""

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self._keys = [key for key in keys if key.footer]

    def show(self, keys: Sequence[Key]) -> None:
        """Replace the keys; those without a label are not shown."""
        shown = [key for key in keys if key.footer]
        if shown != self._keys:
            self._keys = shown
            self.refresh()

    def render(self) -> Text:
        """Render the keys; keys in the middle are dropped first if they do not fit."""
        parts = [self._part(key) for key in self._keys]
        ends = parts[-LAST:]
        kept: list[Text] = []
        room = self.size.width - 1 - sum(part.cell_len for part in ends)
        for part in parts[:-LAST]:
            if part.cell_len > room:
                break
            kept.append(part)
            room -= part.cell_len
        return Text.assemble(" ", *kept, *ends, no_wrap=True, end="")

    def _part(self, key: Key) -> Text:
        is_refused = key.id in self.refused
        looks = ("refused", "refused") if is_refused else ("key", "words")
        key_style, words_style = (
            self.get_component_rich_style(f"key-bar--{look}", partial=True) for look in looks
        )
        return Text.assemble((key.shown, key_style), (f" {key.footer}  ", words_style))
