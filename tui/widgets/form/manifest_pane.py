"""The manifest beside the new-job form: read while one fills in the form, edited when it has the focus."""

from __future__ import annotations

from textual import events
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import TextArea

from k8s.kinds import Manifest
from tui.jobs.new_job.manifest_edits import ManifestEdits
from tui.text.format import plural
from tui.widgets.form.fields import TextAreaField
from tui.widgets.yaml_view import YamlView


class ManifestPane(Vertical):
    """Shows what the form makes and the edits of it; a message tells of each edit."""

    DEFAULT_CSS = """
    ManifestPane > YamlView { width: 100%; height: 1fr; }
    ManifestPane > TextAreaField { width: 100%; height: 1fr; border: none; padding: 0; display: none; }
    ManifestPane.-editing > TextAreaField { display: block; }
    ManifestPane.-editing > YamlView { display: none; }
    """

    class Edited(Message):
        """The text was changed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text
            """As edited; nothing where it is what the form makes."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        """Start empty."""
        super().__init__(id=id, classes=classes)
        self.edits = ManifestEdits()
        """The text, and what is wrong with it."""
        self._beside = ""
        self._view = YamlView()
        self._editor: TextAreaField | None = None

    def on_mount(self) -> None:
        """Show the text; what edits it comes when it is asked for."""
        self.mount(self._view)
        self._write_title()

    @property
    def is_read(self) -> bool:
        """Whether the text to read has the focus."""
        return self._view.has_focus

    def read(self) -> None:
        """Put the focus on the text."""
        self._view.focus()

    def show(self, manifest: Manifest, beside: str = "") -> None:
        """Take what the form makes now, and what is created beside it, which is to be read only."""
        self._beside = beside
        self.edits.make(manifest)
        if not self.has_class("-editing"):
            self._show_text()
        self._write_title()

    def _show_text(self) -> None:
        self._view.show(f"{self.edits.text.rstrip()}\n{self._beside}")

    async def open(self) -> None:
        """Let the text be edited."""
        if self._editor is None:
            self._editor = TextAreaField(show_line_numbers=True, compact=True, tab_behavior="indent")
            self._editor.cursor_blink = False
            await self.mount(self._editor)
        with self.prevent(TextArea.Changed):
            self._editor.load_text(self.edits.text)
        self.add_class("-editing")
        self._editor.focus()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Take the edit."""
        event.stop()
        if self._editor is not None and self._editor.text != self.edits.text:
            self.edits.edit(self._editor.text)
            self._write_title()
            self.post_message(self.Edited(self.edits.text if self.edits.is_edited else ""))

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Merge what the form made meanwhile, and show the text to read."""
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
            parts.append(f"{plural(marked, 'line')} marked: the form says otherwise")
        if self.edits.problem:
            parts.append(self.edits.problem.split(":")[0].lower() + " is wrong")
        self.border_title = ", ".join(parts)
