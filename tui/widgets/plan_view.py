"""The plan for a job: lines with a mark each, which says whether somebody should think about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from textual.content import Content
from textual.widgets import Static

from k8s.text import sanitize
from tui.job_plan import PlanLine

_MARKS: Mapping[str, tuple[str, str, str]] = {
    "good": ("✓", "+", "$status-running"),
    "note": ("·", "-", "$quiet"),
    "warning": ("!", "!", "bold $status-pending"),
    "bad": ("✕", "x", "bold $status-failed"),
}
"""Mark, mark in ASCII, and colour."""
_INDENT = 3
"""Cells of the mark with a space on each side."""


class PlanView(Static):
    """As many lines as the plan has."""

    def __init__(self, *, ascii_only: bool = False, id: str | None = None) -> None:
        """Make an empty plan; `ascii_only` draws its marks with ASCII."""
        super().__init__("", id=id, markup=False)
        self._ascii_only = ascii_only
        self._lines: Sequence[PlanLine] = ()

    def show(self, lines: Sequence[PlanLine]) -> None:
        """Replace the lines; those that say the same are not drawn again."""
        if lines == self._lines:
            return
        self._lines = lines
        self._draw()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self._draw()

    def _draw(self) -> None:
        self.update(Content("\n").join(self._drawn(line) for line in self._lines))

    def _drawn(self, line: PlanLine) -> Content:
        mark, ascii_mark, style = _MARKS[line.mark]
        words = sanitize(line.text)
        if self._ascii_only:
            mark, words = ascii_mark, words.replace("×", "x")
        width = max(20, self.size.width - _INDENT - 1)
        return Content.assemble((f" {mark} ", style), f"\n{' ' * _INDENT}".join(wrap(words, width)))
