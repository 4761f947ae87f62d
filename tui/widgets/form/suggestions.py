"""What may be meant by what is typed into a field: a list below it, filtered as one types."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.fuzzy import FuzzySearch
from textual.widget import Widget
from textual.widgets import Static

from k8s.text.sanitize import sanitize
from tui.text.cells import elide_end

MOST_SHOWN = 6
"""Suggestions at a time."""
Option = tuple[str, str]
"""A value, and what is known of it."""


class Suggestions(Static):
    """The list; nothing is taken from it that was not pointed at."""

    DEFAULT_CSS = """
    Suggestions { display: none; width: 100%; height: auto; padding-left: 20; color: $foreground; }
    """

    def __init__(self) -> None:
        """Start without suggestions, hidden."""
        super().__init__("", markup=False)
        self._options: Sequence[Option] = ()
        self._matches: Sequence[Option] = ()
        self._index = -1
        self._search = FuzzySearch()

    def offer(self, options: Sequence[Option]) -> None:
        """Take what there is to suggest; a list that is open stays as it is."""
        self._options = options

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return bool(self._matches)

    def filter(self, text: str) -> None:
        """Show what matches a text, the best first; nothing where it is one of them, or empty."""
        if not text:
            self.close()
            return
        scored = [(self._search.match(text, value)[0], (value, note)) for value, note in self._options]
        best_first = sorted(scored, key=lambda each: -each[0])
        found = [option for score, option in best_first if score > 0]
        self._show([] if text in (value for value, _ in found) else found)

    def show_all(self) -> bool:
        """Show every option; tell whether there are any."""
        self._show(self._options)
        return self.is_open

    def close(self) -> None:
        """Hide the list."""
        self._show(())

    def move(self, step: int) -> bool:
        """Point at the next option, or the previous one; tell whether it was one of the list."""
        if step < 0 and self._index < 0:
            return False
        self._index = min(self._index + step, len(self._matches) - 1)
        self._draw()
        return True

    @property
    def chosen(self) -> str | None:
        """The value that is pointed at; None for none."""
        return self._matches[self._index][0] if 0 <= self._index < len(self._matches) else None

    def _show(self, matches: Sequence[Option]) -> None:
        if matches or self._matches:
            self._matches, self._index = matches, -1
            self.display = bool(matches)
            self._draw()

    def _draw(self) -> None:
        first = max(0, min(self._index - MOST_SHOWN + 1, len(self._matches) - MOST_SHOWN))
        # Its own width is that of its last showing, or nothing.
        width = max(20, (self.parent.size.width if isinstance(self.parent, Widget) else 0) - 24)
        lines = []
        for number, (value, note) in enumerate(self._matches[first : first + MOST_SHOWN], first):
            text = elide_end(sanitize(f"{value}  {note}" if note else value), width)
            is_chosen = number == self._index
            chosen = Content.styled(f"▸ {text}", "$bright on $cursor-row")
            lines.append(chosen if is_chosen else Content(f"  {text}"))
        if (left := len(self._matches) - first - MOST_SHOWN) > 0:
            lines.append(Content.styled(f"  … {left} more", "$quiet"))
        self.update(Content("\n").join(lines))
