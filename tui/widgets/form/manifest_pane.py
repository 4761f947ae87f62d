"""Manifest beside the new-job form: read-only and coloured until it is edited."""

from __future__ import annotations

import re
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import TextArea

from k8s.kinds import Manifest
from tui.draft.manifest_edits import ManifestEdits
from tui.settings.keys import SCROLL
from tui.text.format import plural
from tui.widgets.bindings import bindings
from tui.widgets.form.fields import TextAreaField
from tui.widgets.text_lines import TextLine, TextLines

_NAME = re.compile(r" *(?:- )*([\w./-]+:)(?= |$)")


class YamlView(TextLines):
    """The YAML to be read; long lines continue with a deeper indentation."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(SCROLL)
    NAME_LOOK = "manifest--name"

    def show_text(self, text: str) -> None:
        """Replace the text."""
        named = ((line, _NAME.match(line)) for line in text.splitlines())
        self.show([TextLine(line, *(found.span(1) if found else ())) for line, found in named])


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
        self._view = YamlView(wraps=True)
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
        self._view.show_text(f"{self.edits.text.rstrip()}\n{self._beside}")

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
        if (title := ", ".join(parts)) != self.border_title:  # each new one draws the whole pane
            self.border_title = title
