"""A YAML pane for the form: highlighted field names, no markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from k8s.text.sanitize import sanitize
from tui.keys import TEXT
from tui.text.cells import cell_len, head
from tui.widgets.scroll_pane import ScrollPane

_NAME = re.compile(r"( *(?:- )*)([\w./-]+:)(?= |$)")
# One cell on each side, and the scroll bar.
_MARGIN = 3

# Scroll methods for text keys.
_SCROLLS = {
    "text.down": "scroll_down",
    "text.up": "scroll_up",
    "text.start": "scroll_home",
    "text.end": "scroll_end",
}


class YamlView(ScrollPane):
    """A scrolling pane; long lines continue with a deeper indentation."""

    DEFAULT_CSS = """
    YamlView > Static { width: 100%; height: auto; padding: 0 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, _SCROLLS[key.id], key.help, show=False, id=key.id)
        for key in TEXT
        if key.id in _SCROLLS
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._text = ""
        self._line_count = 0

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        yield Static("", markup=False)

    def show(self, text: str) -> None:
        """Replace the text."""
        self._text = text
        self._draw()

    def on_resize(self) -> None:
        """Wrap lines at the new width."""
        self._draw()

    def _draw(self) -> None:
        width = max(20, self.size.width - _MARGIN)
        lines = [
            _drawn(part, is_first=not number)
            for line in self._text.splitlines()
            for number, part in enumerate(_broken(sanitize(line), width))
        ]
        self.query_one(Static).update(Content("\n").join(lines), layout=len(lines) != self._line_count)
        self._line_count = len(lines)


def _drawn(line: str, *, is_first: bool) -> Content:
    found = _NAME.match(line) if is_first else None
    if found is None:
        return Content(line)
    return Content.assemble(found[1], (found[2], "$primary"), line[found.end() :])


def _broken(line: str, width: int) -> Iterator[str]:
    indent = " " * min(len(line) - len(line.lstrip(" -")) + 2, width // 2)
    while cell_len(line) > width:
        part = head(line, width)
        space = part.rfind(" ")
        if space > len(indent):
            part = part[:space]
        yield part
        line = indent + line[len(part) :].lstrip(" ")
    yield line
