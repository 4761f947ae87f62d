"""Fields that are folded away below a title until it is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from tui.jobs.new_job.fields import FormField
from tui.widgets.form.fields import Field


class CollapsibleFields(Vertical):
    """Fields below a title that opens them; they are mounted when it is first opened."""

    DEFAULT_CSS = """
    CollapsibleFields { height: auto; width: 100%; }
    CollapsibleFields > Vertical { height: auto; width: 100%; display: none; }
    CollapsibleFields.-open > Vertical { display: block; }
    CollapsibleFields > FieldsTitle {
        width: 100%; height: 1; padding: 0 2; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    class Opened(Message):
        """It opens for the first time: mount its fields with `mount_fields`."""

        def __init__(self, collapsible: CollapsibleFields) -> None:
            super().__init__()
            self.collapsible = collapsible
            """What opens."""

    def __init__(self, title: str, definitions: Sequence[FormField], *, id: str | None = None) -> None:
        """Start closed, without fields."""
        super().__init__(id=id)
        self.definitions = definitions
        """The fields inside, mounted or not."""
        self._title = title
        self._hidden: Collection[str] = ()
        self.has_fields = False
        """Whether its fields are mounted."""

    def compose(self) -> ComposeResult:
        """Lay out the title; there are no fields yet."""
        yield FieldsTitle("", markup=False)
        yield Vertical()

    def on_mount(self) -> None:
        """Write the title."""
        self._write_title()

    async def toggle(self, is_open: bool | None = None) -> None:
        """Open or close; None toggles."""
        is_open = not self.has_class("-open") if is_open is None else is_open
        self.set_class(is_open, "-open")
        self._write_title()
        if is_open and not self.has_fields:
            self.post_message(self.Opened(self))

    async def mount_fields(self, fields: Iterable[Field]) -> None:
        """Mount the fields."""
        self.has_fields = True
        await self.query_one(Vertical).mount_all(fields)

    def set_hidden(self, hidden: Collection[str]) -> None:
        """Do not name the fields with these keys; where no other is inside, hide the title too."""
        if hidden != self._hidden:
            self._hidden = hidden
            self.display = any(each.key not in hidden for each in self.definitions)
            self._write_title()

    @property
    def is_shown(self) -> bool:
        """Whether neither it nor an ancestor is hidden."""
        return all(widget.display for widget in self.ancestors_with_self if isinstance(widget, Widget))

    def _write_title(self) -> None:
        is_open = self.has_class("-open")
        labels = ", ".join(each.label for each in self.definitions if each.key not in self._hidden)
        self.query_one(FieldsTitle).update(f"▾ {self._title}" if is_open else f"▸ {self._title}: {labels}")


class FieldsTitle(Static, can_focus=True):
    """The line that opens and closes `CollapsibleFields`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "toggle_fields", "Open or close", show=False),
        Binding("right", "toggle_fields(True)", "Open", show=False),
        Binding("left", "toggle_fields(False)", "Close", show=False),
        Binding("up", "app.focus_previous", "Previous field", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
    ]

    async def action_toggle_fields(self, is_open: bool | None = None) -> None:
        """Open or close the fields below."""
        assert isinstance(self.parent, CollapsibleFields)
        await self.parent.toggle(is_open)

    async def on_click(self) -> None:
        """Open or close the fields below."""
        await self.action_toggle_fields()
