"""The plan for a job: lines with a mark each, which says whether somebody should think about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from textual.content import Content
from textual.widgets import Static

from k8s.text.sanitize import sanitize
from tui.jobs.new_job.preflight import PlanLine

_MARKS: Mapping[str, tuple[str, str]] = {
    "good": ("✓", "$status-running"),
    "note": ("·", "$quiet"),
    "warning": ("!", "bold $status-pending"),
    "bad": ("✕", "bold $status-failed"),
}
"""Mark and colour."""
_INDENT = 3
"""Cells of the mark with a space on each side."""


class PlanView(Static):
    """As many lines as the plan has."""

    def __init__(self, *, id: str | None = None) -> None:
        """Make an empty plan."""
        super().__init__("", id=id, markup=False)
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
        mark, style = _MARKS[line.mark]
        words = sanitize(line.text)
        width = max(20, self.size.width - _INDENT - 1)
        return Content.assemble((f" {mark} ", style), f"\n{' ' * _INDENT}".join(wrap(words, width)))
