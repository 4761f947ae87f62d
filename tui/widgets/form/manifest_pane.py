"""Manifest beside the new-job form: read-only and coloured until it is edited."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static, TextArea

from k8s.kinds import Manifest
from k8s.text.sanitize import sanitize
from tui.draft.manifest_edits import ManifestEdits
from tui.settings.keys import TEXT
from tui.text.cells import cell_len, head
from tui.text.format import plural
from tui.widgets.form.fields import TextAreaField
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


class ManifestPane(Vertical):
    """Manifest of the form with the user's edits; posts `Edited` after each edit."""

    DEFAULT_CSS = """
    ManifestPane > YamlView { width: 100%; height: 1fr; }
    ManifestPane > TextAreaField { width: 100%; height: 1fr; border: none; padding: 0; display: none; }
    ManifestPane.-editing > TextAreaField { display: block; }
    ManifestPane.-editing > YamlView { display: none; }
    """

    class Edited(Message):
        """Posted when the text was edited."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text
            """The edited text; empty if it equals the form's manifest."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """Start empty."""
        super().__init__(id=id, classes=classes)
        self.edits = ManifestEdits()
        self._beside = ""
        self._view = YamlView()
        self._editor: TextAreaField | None = None

    def on_mount(self) -> None:
        """Show the text; the editor is mounted on demand."""
        self.mount(self._view)
        self._write_title()

    @property
    def is_read(self) -> bool:
        """True if the read-only text has the focus."""
        return self._view.has_focus

    def read(self) -> None:
        """Focus the read-only text."""
        self._view.focus()

    def show(self, manifest: Manifest, beside: str = "") -> None:
        """Show the form's new manifest, merged with the edits, and its owned objects, which are read-only."""
        self._beside = beside
        self.edits.make(manifest)
        if not self.has_class("-editing"):
            self._show_text()
        self._write_title()

    def _show_text(self) -> None:
        self._view.show(f"{self.edits.text.rstrip()}\n{self._beside}")

    async def open(self) -> None:
        """Open the editor."""
        if self._editor is None:
            self._editor = TextAreaField(show_line_numbers=True, compact=True, tab_behavior="indent")
            self._editor.cursor_blink = False
            await self.mount(self._editor)
        with self.prevent(TextArea.Changed):
            self._editor.load_text(self.edits.text)
        self.add_class("-editing")
        self._editor.focus()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Store the edit, and post it."""
        event.stop()
        if self._editor is not None and self._editor.text != self.edits.text:
            self.edits.edit(self._editor.text)
            self._write_title()
            self.post_message(self.Edited(self.edits.text if self.edits.is_edited else ""))

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Merge the form's changes since the edit began, and show the read-only text."""
        if event.widget is not self._editor:
            return
        self.edits.settle()
        self.remove_class("-editing")
        self._show_text()
        self._write_title()

    def _write_title(self) -> None:
        marked = len(self.edits.conflicts)
        parts = ["YAML"]
        if self.edits.is_edited:
            parts.append("edited")
        if marked:
            parts.append(f"{plural(marked, 'line')} marked: the form differs")
        if self.edits.problem:
            parts.append(self.edits.problem.split(":")[0].lower() + " is wrong")
        self.border_title = ", ".join(parts)
