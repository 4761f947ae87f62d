"""What somebody must know before they go on: an error in words, above what it is about."""

from __future__ import annotations

from textual.widgets import Static

from k8s.text.sanitize import sanitize_lines


class Notice(Static):
    """Lines of plain text; hidden while there is nothing to say."""

    def __init__(self, *, id: str | None = None) -> None:
        """Make a hidden notice."""
        super().__init__("", id=id, markup=False)
        self.display = False

    def say(self, words: str, *, is_bad: bool = True) -> None:
        """Show `words`, as an error or as a remark; nothing hides it."""
        mark = "✕ " if is_bad else ""
        self.update(mark + sanitize_lines(words))
        self.display = bool(words)
        self.set_class(is_bad, "-bad")
