"""Parts of the new-job form: its fields, the preflight, the notice above and the bar below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, ScrollableContainer, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Label, Static

from k8s.reasons.cause import Cause, Severity
from k8s.text.sanitize import sanitize, sanitize_lines
from trainer.catalogue import TRAINERS
from tui.draft.fields import COMMAND, COMMAND_FIELDS, RUN, SECTIONS, FormField, trainer_fields
from tui.draft.preflight import MARKS, line_text
from tui.text.format import plural
from tui.widgets.form.fields import Field, field_around, is_shown

_STYLES: Mapping[Severity, str] = {
    "ok": "$status-running",
    "info": "$quiet",
    "warning": "bold $status-pending",
    "error": "bold $status-failed",
}
NONE: Mapping[str, str] = MappingProxyType({})
_INDENT = 3


class JobFields(ScrollableContainer, can_focus=False):
    """Form fields with values and errors; input is posted as `Field.Changed`."""

    DEFAULT_CSS = """
    JobFields { overflow-x: hidden; scrollbar-gutter: stable; }
    JobFields Vertical { height: auto; width: 100%; }
    JobFields .section { margin-bottom: 1; }
    JobFields .heading { width: 100%; height: 1; padding: 0 2; }
    """

    def __init__(self, values: Mapping[str, str], *, id: str | None = None) -> None:
        """Show `values`, by the key of their field."""
        super().__init__(id=id)
        self._values = values
        self._hidden: Collection[str] = ()
        self._errors: Mapping[str, str] = NONE
        self._warnings: Mapping[str, str] = NONE
        self._by_key: dict[str, Field] = {}
        self._collapsible: list[CollapsibleFields] = []
        self._runs: dict[str, Vertical] = {}
        """Fields of each run that was chosen so far."""
        self._offers: dict[str, tuple[Sequence[tuple[str, str]], str]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the sections with their headings; rarely used fields are collapsed."""
        for section in SECTIONS:
            with Vertical(classes="section"):
                if section.fields:
                    yield Label(section.title, classes="heading", markup=False)
                yield from self._fields(section.fields)
                if RUN in section.fields:
                    run = self._values.get(RUN.key, COMMAND)
                    self._runs[run] = self._run_group(run)
                    yield self._runs[run]
                if section.more:
                    yield self._make_collapsible("More" if section.fields else section.title, section.more)

    def _run_group(self, run: str) -> Vertical:
        if run == COMMAND:
            return Vertical(*self._fields(COMMAND_FIELDS), classes="run")
        main, rest = trainer_fields(next(each for each in TRAINERS if each.name == run))
        return Vertical(*self._fields(main), self._make_collapsible("More arguments", rest), classes="run")

    def _make_collapsible(self, title: str, definitions: Sequence[FormField]) -> CollapsibleFields:
        self._collapsible.append(CollapsibleFields(title, definitions, self._fields))
        return self._collapsible[-1]

    def _fields(self, definitions: Iterable[FormField]) -> list[Field]:
        return [self._make_field(each) for each in definitions]

    def _make_field(self, definition: FormField) -> Field:
        key = definition.key
        field = self._by_key[key] = Field(definition, self._values.get(key, ""))
        if offer := self._offers.get(key):
            field.offer(*offer)
        field.error, field.warning = self._errors.get(key, ""), self._warnings.get(key, "")
        field.display = key not in self._hidden
        return field

    def on_resize(self) -> None:
        """Keep the focused field visible when the preflight below grows."""
        if (field := field_around(self.screen.focused)) is not None:
            self.call_after_refresh(field.reveal)

    def field(self, key: str) -> Field | None:
        """Return a field by its key; None while it is not mounted."""
        return self._by_key.get(key)

    def show_values(self, values: Mapping[str, str], hidden: Collection[str]) -> None:
        """Show values, without the fields that have no effect or belong to another run."""
        self._values, self._hidden = values, hidden
        for key, field in self._by_key.items():
            if key in values:
                field.set_value(values[key])
        self._show_run(values.get(RUN.key, ""))
        self._hide_fields()

    def _show_run(self, run: str) -> None:
        if (
            run not in self._runs
            and (field := self._by_key.get(RUN.key))
            and isinstance(field.parent, Widget)
        ):
            self._runs[run] = self._run_group(run)
            field.parent.mount(self._runs[run], after=field)
        for name, group in self._runs.items():
            if group.display != (name == run):
                group.display = name == run

    def _hide_fields(self) -> None:
        for collapsible in self._collapsible:
            collapsible.set_hidden(self._hidden)
        for key, field in self._by_key.items():
            if field.display == (key in self._hidden):
                field.display = not field.display

    def show_errors(self, errors: Mapping[str, str], warnings: Mapping[str, str] = NONE) -> None:
        """Show errors and warnings by key, and clear those of all other fields."""
        self._errors, self._warnings = errors, warnings
        for key, field in self._by_key.items():
            field.show_problem(errors.get(key, ""), warnings.get(key, ""))

    async def focus_first(self, keys: Collection[str]) -> None:
        """Focus the first visible field of these keys; collapsed ones are opened."""
        for collapsible in self._collapsible:
            if any(each.key in keys for each in collapsible.definitions) and is_shown(collapsible):
                await collapsible.toggle(True)
        self.show_errors(self._errors, self._warnings)
        for field in self.query(Field):
            if field.key in keys and is_shown(field):
                field.focus_control()
                return

    def set_choices(self, key: str, choices: Sequence[tuple[str, str]]) -> None:
        """Replace the choices of a field; its value stays."""
        if (field := self.field(key)) is not None:
            field.set_choices(choices)

    def offer(self, key: str, options: Sequence[tuple[str, str]], help: str = "") -> None:
        """Suggest values in a field, each with a description; `help` replaces the field's own.

        Stored for a field that is not mounted yet.
        """
        self._offers[key] = (options, help)
        if (field := self.field(key)) is not None:
            field.offer(options, help)

    def focus_section(self, step: int) -> bool:
        """Focus the first field some sections away; return False if there is no such section."""
        sections = list(self.query(".section"))
        current = next((index for index, each in enumerate(sections) if each.has_focus_within), None)
        index = (len(sections) if step < 0 else -1) if current is None else current
        index += step
        if not 0 <= index < len(sections):
            return False
        next(widget for widget in sections[index].query("*") if widget.focusable).focus()
        return True


class PreflightView(Static):
    """Preflight lines, each with its mark; where they do not all fit, the last line counts the others."""

    def __init__(self, *, id: str | None = None) -> None:
        """Start empty."""
        super().__init__("", id=id, markup=False)
        self._lines: Sequence[Cause] = ()
        self._rows_shown = 0

    def show(self, lines: Sequence[Cause]) -> None:
        """Replace the lines; equal ones are not redrawn."""
        if lines == self._lines:
            return
        self._lines = lines
        self._draw()

    def on_resize(self) -> None:
        """Wrap the lines for the new width."""
        self._draw()

    def _draw(self) -> None:
        rows = [row for line in self._lines for row in self._rows(line)]
        limit = self.styles.max_height
        room = int(limit.value) - 1 if limit is not None else len(rows)  # less the rule above
        if len(rows) > room:
            rows[room - 1 :] = [Content.styled(f"   … {len(rows) - room + 1} more lines", "$quiet")]
        self.update(Content("\n").join(rows), layout=len(rows) != self._rows_shown)
        self._rows_shown = len(rows)

    def _rows(self, line: Cause) -> list[Content]:
        first, *rest = wrap(sanitize(line_text(line)), max(20, self.size.width - _INDENT - 1)) or [""]
        mark = Content.assemble((f" {MARKS[line.severity]} ", _STYLES[line.severity]), first)
        return [mark, *(Content(" " * _INDENT + each) for each in rest)]


class Notice(Static):
    """Error or remark above the form, as plain text; hidden while empty."""

    def __init__(self, *, id: str | None = None) -> None:
        """Start hidden."""
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, text: str, *, is_error: bool = True) -> None:
        """Show `text` as an error or a remark; an empty text hides the notice."""
        mark = "✕ " if is_error else ""
        self.update(mark + sanitize_lines(text))
        self.display = bool(text)
        self.set_class(is_error, "-error")

    def clear_error(self) -> None:
        """Hide an error; a remark stays."""
        if self.has_class("-error"):
            self.show("")


class CreateBar(Horizontal):
    """Create button, and the form's state beside it."""

    def __init__(self) -> None:
        """Start with no request in progress."""
        self._button = Button("Create", id="create", compact=True)
        self._state = Label("", id="state", markup=False)
        super().__init__(self._button, self._state)

    def show(self, busy: str, errors: int, progress: str = "") -> None:
        """Show the request in progress, empty for none, or the number of fields with errors."""
        self._button.label = Text(busy or "Create")
        self._button.set_class(bool(busy or errors), "-busy")
        text = "after a dry run on the server"
        if busy:
            text = progress or "nothing you typed is lost"
        elif errors:
            text = f"{plural(errors, 'field')} {'needs' if errors == 1 else 'need'} attention"
        if self._state.content != text:
            self._state.update(text, layout=False)


class CollapsibleFields(Vertical):
    """Fields below a title that toggles them; they are mounted when first opened."""

    DEFAULT_CSS = """
    CollapsibleFields { height: auto; width: 100%; }
    CollapsibleFields > Vertical { height: auto; width: 100%; display: none; }
    CollapsibleFields.-open > Vertical { display: block; }
    CollapsibleFields > FieldsTitle {
        width: 100%; height: 1; padding: 0 2; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(
        self,
        title: str,
        definitions: Sequence[FormField],
        make_fields: Callable[[Sequence[FormField]], Iterable[Field]],
    ) -> None:
        """Start closed, without fields."""
        self._line = FieldsTitle("", markup=False)
        super().__init__(self._line)
        self.definitions = definitions
        self._make_fields = make_fields
        self._title = title
        self._hidden: Collection[str] = ()
        self._has_fields = False
        self._write_title()

    async def toggle(self, is_open: bool | None = None) -> None:
        """Open or close; None toggles."""
        is_open = not self.has_class("-open") if is_open is None else is_open
        self.set_class(is_open, "-open")
        self._write_title()
        if is_open and not self._has_fields:
            self._has_fields = True
            await self.mount(Vertical(*self._make_fields(self.definitions)))

    def set_hidden(self, hidden: Collection[str]) -> None:
        """Leave these keys out of the title; hide the title if no other field is left."""
        if hidden != self._hidden:
            self._hidden = hidden
            self.display = any(each.key not in hidden for each in self.definitions)
            self._write_title()

    def _write_title(self) -> None:
        is_open = self.has_class("-open")
        labels = ", ".join(each.label for each in self.definitions if each.key not in self._hidden)
        self._line.update(f"▾ {self._title}" if is_open else f"▸ {self._title}: {labels}")


class FieldsTitle(Static, can_focus=True):
    """Title line that toggles `CollapsibleFields`."""

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
