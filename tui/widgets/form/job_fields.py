"""The parts of the new-job form: its fields, the preflight, the notice on top and the bar below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from types import MappingProxyType

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, ScrollableContainer, Vertical
from textual.content import Content
from textual.widgets import Button, Label, Static

from k8s.text.sanitize import sanitize, sanitize_lines
from trainer.catalogue import TRAINERS
from tui.jobs.new_job.fields import (
    COMMAND,
    COMMAND_FIELDS,
    RUN,
    SECTIONS,
    FormField,
    default_values,
    trainer_fields,
)
from tui.jobs.new_job.hidden_fields import hidden_fields
from tui.jobs.new_job.preflight import MARKS, PreflightLine, Severity
from tui.text.format import plural
from tui.widgets.form.collapsible import CollapsibleFields
from tui.widgets.form.fields import Field

_STYLES: Mapping[Severity, str] = {
    "ok": "$status-running",
    "info": "$quiet",
    "warning": "bold $status-pending",
    "error": "bold $status-failed",
}
"""How the mark of a preflight line looks."""
NONE: Mapping[str, str] = MappingProxyType({})
"""For fields of which nothing is to be said."""
_INDENT = 3
"""Cells of that mark with a space on each side."""


class JobFields(ScrollableContainer, can_focus=False):
    """Shows values and their errors; what is typed is posted as `Field.Changed`."""

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
        self._errors: Mapping[str, str] = NONE
        self._warnings: Mapping[str, str] = NONE
        self._offers: dict[str, tuple[Sequence[tuple[str, str]], str]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the sections, each with its heading; what few people change is collapsed."""
        for section in SECTIONS:
            with Vertical(classes="section"):
                if section.fields:
                    yield Label(section.title, classes="heading", markup=False)
                yield from self._fields(section.fields)
                if RUN in section.fields:
                    yield from self._compose_run()
                if section.more:
                    yield CollapsibleFields("More" if section.fields else section.title, section.more)

    def _compose_run(self) -> ComposeResult:
        yield Vertical(*self._fields(COMMAND_FIELDS), id=f"run-{COMMAND}", classes="run")
        for trainer in TRAINERS:
            main, rest = trainer_fields(trainer)
            more = CollapsibleFields("More arguments", rest)
            yield Vertical(*self._fields(main), more, id=f"run-{trainer.name}", classes="run")

    def _fields(self, definitions: Iterable[FormField]) -> list[Field]:
        return [Field(each, self._values.get(each.key, "")) for each in definitions]

    def on_resize(self) -> None:
        """Keep the field with the focus in sight when the summary below grows."""
        for field in self.query(Field):
            if field.has_focus_within:
                self.call_after_refresh(field.reveal)

    def field(self, key: str) -> Field | None:
        """Return a field by its key; None while it is not mounted."""
        return next((field for field in self.query(Field) if field.key == key), None)

    def show_values(self, values: Mapping[str, str]) -> None:
        """Show values, and the fields that belong to what is run."""
        self._values = values
        for field in self.query(Field):
            if field.key in values:
                field.set_value(values[field.key])
        for group in self.query(".run"):
            is_run = group.id == f"run-{values.get('run', '')}"
            if group.display != is_run:
                group.display = is_run
        self._hide_fields()

    def _hide_fields(self) -> None:
        """Show only the fields whose values change something."""
        hidden = hidden_fields({**default_values(), **self._values})
        for collapsible in self.query(CollapsibleFields):
            collapsible.set_hidden(hidden)
        for field in self.query(Field):
            if field.display == (field.key in hidden):
                field.display = not field.display

    def show_errors(self, errors: Mapping[str, str], warnings: Mapping[str, str] = NONE) -> None:
        """Show errors and warnings by the key of their field, and clear those of all other fields."""
        self._errors, self._warnings = errors, warnings
        for field in self.query(Field):
            field.error = errors.get(field.key, "")
            field.warning = warnings.get(field.key, "")

    async def focus_first(self, keys: Collection[str]) -> None:
        """Focus the first shown field of these; collapsed ones are opened."""
        for collapsible in self.query(CollapsibleFields):
            if any(each.key in keys for each in collapsible.definitions) and collapsible.is_shown:
                await self._mount_fields(collapsible)
                await collapsible.toggle(True)
        self.show_errors(self._errors, self._warnings)
        for field in self.query(Field):
            if field.key in keys and field.is_shown:
                field.focus_control()
                return

    async def set_choices(self, key: str, choices: Sequence[tuple[str, str]]) -> None:
        """Let one of these be chosen in a field; its value stays."""
        if (field := self.field(key)) is not None:
            await field.redefine(replace(field.definition, choices=tuple(choices), control="choice"))

    def offer(self, key: str, options: Sequence[tuple[str, str]], help: str = "") -> None:
        """Suggest values in a field, each with what is known of it; `help` replaces the field's own.

        Kept for a field that is not mounted yet.
        """
        self._offers[key] = (options, help)
        if (field := self.field(key)) is not None:
            field.offer(options, help)

    def focus_section(self, step: int) -> bool:
        """Focus the first field some sections away; tell whether there is such a section."""
        sections = list(self.query(".section"))
        current = next((index for index, each in enumerate(sections) if each.has_focus_within), None)
        index = (len(sections) if step < 0 else -1) if current is None else current
        index += step
        if not 0 <= index < len(sections):
            return False
        next(widget for widget in sections[index].query("*") if widget.focusable).focus()
        return True

    async def on_collapsible_fields_opened(self, event: CollapsibleFields.Opened) -> None:
        """Mount the fields inside."""
        event.stop()
        await self._mount_fields(event.collapsible)

    async def _mount_fields(self, collapsible: CollapsibleFields) -> None:
        if not collapsible.has_fields:
            await collapsible.mount_fields(self._fields(collapsible.definitions))
            for definition in collapsible.definitions:
                if (offer := self._offers.get(definition.key)) and (field := self.field(definition.key)):
                    field.offer(*offer)
            self._hide_fields()
            self.show_errors(self._errors, self._warnings)


class PreflightView(Static):
    """The lines of the preflight, each with its mark."""

    def __init__(self, *, id: str | None = None) -> None:
        """Start empty."""
        super().__init__("", id=id, markup=False)
        self._lines: Sequence[PreflightLine] = ()

    def show(self, lines: Sequence[PreflightLine]) -> None:
        """Replace the lines; equal ones are not drawn again."""
        if lines == self._lines:
            return
        self._lines = lines
        self._draw()

    def on_resize(self) -> None:
        """Wrap the lines anew."""
        self._draw()

    def _draw(self) -> None:
        self.update(Content("\n").join(self._content(line) for line in self._lines))

    def _content(self, line: PreflightLine) -> Content:
        width = max(20, self.size.width - _INDENT - 1)
        text = f"\n{' ' * _INDENT}".join(wrap(sanitize(line.text), width))
        return Content.assemble((f" {MARKS[line.severity]} ", _STYLES[line.severity]), text)


class Notice(Static):
    """An error or a remark above the form, as plain text; hidden while there is none."""

    def __init__(self, *, id: str | None = None) -> None:
        """Start hidden."""
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, text: str, *, is_error: bool = True) -> None:
        """Show `text`, as an error or as a remark; an empty one hides the notice."""
        mark = "✕ " if is_error else ""
        self.update(mark + sanitize_lines(text))
        self.display = bool(text)
        self.set_class(is_error, "-error")


class CreateBar(Horizontal):
    """The Create button, and beside it what the form waits for."""

    def compose(self) -> ComposeResult:
        """Lay out the button and the text."""
        yield Button("Create", id="create", compact=True)
        yield Label("", id="state", markup=False)

    def show(self, busy: str, errors: int, progress: str = "") -> None:
        """Show the request under way, empty for none, and how far it is, or how many fields have errors."""
        for button in self.query(Button):
            button.label = Text(busy or "Create")
            button.set_class(bool(busy), "-busy")
        text = "after a dry run on the server"
        if busy:
            text = progress or "nothing you typed is lost"
        elif errors:
            text = f"{plural(errors, 'field')} {'needs' if errors == 1 else 'need'} attention"
        for label in self.query(Label):
            label.update(text, layout=False)
