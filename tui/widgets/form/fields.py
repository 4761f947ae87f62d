"""Form fields: a label, a control, and the error below it.

Everything typed or pasted is sanitized, and shown as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.segment import Segment
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.fuzzy import FuzzySearch
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Select, TextArea
from textual.widgets._select import NoSelection, SelectOverlay
from textual.widgets.text_area import Edit, EditResult

from k8s.text.sanitize import sanitize
from tui.draft.fields import FormField
from tui.text.cells import elide_end, pad, wrapped
from tui.widgets.painted import PaintedWidget
from tui.widgets.prompt import LineInput

MOST_SHOWN = 6
Option = tuple[str, str]


class Suggestions:
    """List of suggestions below a field; only a highlighted one is ever accepted."""

    def __init__(self, redraw: Callable[[], None]) -> None:
        """Start without suggestions, closed; `redraw` is called when its lines change."""
        self._redraw = redraw
        self.options: Sequence[Option] = ()
        self._matches: Sequence[Option] = ()
        self._index = -1
        self._search = FuzzySearch()

    @property
    def is_open(self) -> bool:
        """True if it is shown."""
        return bool(self._matches)

    def filter(self, text: str) -> None:
        """Show the matches, best first; none if the text is empty or equals one of them."""
        if not text:
            self.close()
            return
        scored = [(self._search.match(text, value)[0], (value, note)) for value, note in self.options]
        best_first = sorted(scored, key=lambda each: -each[0])
        found = [option for score, option in best_first if score > 0]
        self._show([] if text in (value for value, _ in found) else found)

    def show_all(self) -> bool:
        """Show every suggestion; return False if there are none."""
        self._show(self.options)
        return self.is_open

    def close(self) -> None:
        """Hide the list."""
        self._show(())

    def move(self, step: int) -> bool:
        """Highlight the next suggestion, or the previous one; return False above the first."""
        if step < 0 and self._index < 0:
            return False
        self._index = min(self._index + step, len(self._matches) - 1)
        self._redraw()
        return True

    @property
    def chosen(self) -> str | None:
        """The highlighted value; None if there is none."""
        return self._matches[self._index][0] if 0 <= self._index < len(self._matches) else None

    def _show(self, matches: Sequence[Option]) -> None:
        if matches or self._matches:
            self._matches, self._index = matches, -1
            self._redraw()

    def lines(self, width: int) -> list[tuple[str, str]]:
        """Return the visible lines with their looks."""
        first = max(0, min(self._index - MOST_SHOWN + 1, len(self._matches) - MOST_SHOWN))
        lines = []
        for number, (value, note) in enumerate(self._matches[first : first + MOST_SHOWN], first):
            text = elide_end(sanitize(f"{value}  {note}" if note else value), max(20, width - 4))
            is_chosen = number == self._index
            lines.append((f"▸ {text}", "field--chosen") if is_chosen else (f"  {text}", ""))
        if (left := len(self._matches) - first - MOST_SHOWN) > 0:
            lines.append((f"  … {left} more", "field--unit"))
        return lines


LONGEST_ERROR = 240
MOST_ERROR_LINES = 4
# Cells left of the control.
LABEL_CELLS = 21


class TextField(LineInput):
    """One line of text; up, down and enter move to the neighbouring fields."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Previous field", show=False),
        Binding("down,enter", "app.focus_next", "Next field", show=False),
    ]

    def validate_value(self, text: str) -> str:
        """Sanitize what is typed or pasted."""
        return sanitize(text)

    async def _on_key(self, event: events.Key) -> None:
        if not _is_of_suggestions(self, event):
            await super()._on_key(event)

    def _on_paste(self, event: events.Paste) -> None:
        # Input would drop all lines but the first; here the line ends are kept and shown.
        event.text = sanitize(event.text.strip("\r\n"))


class TextAreaField(TextArea):
    """Several lines of text; up in the first and down in the last move to the neighbouring fields."""

    async def _on_key(self, event: events.Key) -> None:
        if not _is_of_suggestions(self, event):
            await super()._on_key(event)

    def edit(self, edit: Edit) -> EditResult:
        """Insert text, sanitized."""
        edit.text = _sanitize_lines(edit.text)
        return super().edit(edit)

    def load_text(self, text: str) -> None:
        """Replace the whole text, sanitized."""
        super().load_text(_sanitize_lines(text))

    def action_cursor_up(self, select: bool = False) -> None:
        """Go up a line, or to the previous field."""
        if self.navigator.is_first_wrapped_line(self.cursor_location) and not select:
            self.screen.focus_previous()
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Go down a line, or to the next field."""
        if self.navigator.is_last_wrapped_line(self.cursor_location) and not select:
            self.screen.focus_next()
        else:
            super().action_cursor_down(select)


class ChoiceField(Select[str], inherit_bindings=False):
    """Select field: left and right change the value, enter or space lists all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Previous field", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
        Binding("left", "step(-1)", "Previous choice", show=False),
        Binding("right", "step(1)", "Next choice", show=False),
        Binding("enter,space", "list_choices", "All choices", show=False),
    ]

    def __init__(self, choices: Iterable[tuple[str, str]], value: str) -> None:
        """Show `choices`, pairs of value and label, and `value` even if it is not one of them."""
        self._choices = _with(choices, value)
        super().__init__(_options(self._choices), allow_blank=False, value=value, compact=True)

    def compose(self) -> ComposeResult:
        """Mount nothing: the value is drawn here, and the list is mounted when it is first opened."""
        return iter(())

    def render(self) -> Content:
        """Render the value, and an arrow at the end."""
        room = self.size.width - 4
        label = next(sanitize(label) for key, label in self._choices if key == self._value)
        arrow = "▲" if self.expanded else "▼"
        text = pad(elide_end(label, room), room)
        return Content.assemble(f" {text} ", (arrow, "$foreground 50%"), " ")

    def on_click(self, event: events.Click) -> None:
        """Open or close the list."""
        event.stop()
        if self.expanded:
            self.expanded = False
        else:
            self.call_next(self.action_list_choices)

    async def action_list_choices(self) -> None:
        """List all choices."""
        if not self.children:
            overlay = SelectOverlay()
            overlay.compact = True
            await self.mount(overlay)
            self._setup_options_renderables()
        self.expanded = True

    def _setup_options_renderables(self) -> None:
        if self.children:
            super()._setup_options_renderables()

    def _watch_value(self, value: str | NoSelection) -> None:
        self._value = value
        self.refresh()
        self.post_message(self.Changed(self, value))

    def _watch_expanded(self, expanded: bool) -> None:
        self.set_class(expanded, "-expanded")
        self.refresh()
        if expanded:
            overlay = self.query_one(SelectOverlay)
            overlay.focus(scroll_visible=False)
            overlay.select([key for key, _ in self._choices].index(str(self.value)))

    def set_choices(self, choices: Iterable[tuple[str, str]]) -> None:
        """Replace the choices; the value stays."""
        self._choices = _with(choices, str(self._value))
        self._setup_variables_for_options(_options(self._choices))
        self._setup_options_renderables()
        self.refresh()

    def set_value(self, value: str) -> None:
        """Select a value; one that is not a choice is added."""
        self.set_choices(_with(self._choices, value))
        self.value = value

    def action_step(self, step: int) -> None:
        """Select the next choice, or the previous one; does not wrap around."""
        keys = [key for key, _ in self._choices]
        index = keys.index(str(self.value)) + step
        if 0 <= index < len(keys):
            self.value = keys[index]


class Field(PaintedWidget):
    """The control of a value; its label and unit, the suggestions and the error are drawn around it."""

    DEFAULT_CSS = """
    Field { layout: vertical; height: auto; width: 100%; }
    Field TextField.-textual-compact { width: 1fr; padding: 0 1; }
    Field.-short TextField.-textual-compact { width: 14; }
    Field TextAreaField { width: 1fr; height: auto; min-height: 1; max-height: 6; padding: 0 1; }
    Field ChoiceField { width: 1fr; height: 1; }
    Field SelectOverlay { offset: 0 1; }
    """

    @dataclass
    class Changed(Message):
        """Posted when the user changed the value: see `field.value`."""

        field: Field

    @dataclass
    class Blurred(Message):
        """Posted when the focus left the field."""

        field: Field

    def __init__(self, definition: FormField, value: str) -> None:
        """Create the control of `definition`, with `value`."""
        super().__init__(id="field-" + re.sub(r"[._]", "-", definition.key), classes=f"-{definition.control}")
        self.definition = definition
        self._help = definition.help
        self.error, self.warning = "", ""
        self._control = self._make_control(value)
        self.suggestions = Suggestions(self._refresh_below)
        self._rows_below = 0
        # A select has its value only once it is mounted, and tells of it then: nobody chose that.
        self._posted_value = value if definition.control == "choice" else self.value
        self._accepted_value = self._posted_value

    def _make_control(self, value: str) -> TextField | ChoiceField | TextAreaField:
        kind, placeholder = self.definition.control, self.definition.placeholder
        if kind == "choice":
            return ChoiceField(self.definition.choices, value)
        control: TextField | TextAreaField
        if kind == "lines":
            control = TextAreaField(
                _sanitize_lines(value), compact=True, highlight_cursor_line=False, placeholder=placeholder
            )
        else:
            control = TextField(sanitize(value), placeholder=placeholder)
        control.cursor_blink = False
        return control

    def compose(self) -> ComposeResult:
        """Lay out the control."""
        unit = self.definition.unit
        right = len(unit) + 1 if unit and self.definition.control != "short" else 0
        self._control.styles.margin = (0, right, 0, LABEL_CELLS)
        yield self._control

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Add the lines below the control to its height."""
        self._rows_below = len(self._below(width))
        return super().get_content_height(container, viewport, width) + self._rows_below

    def _below(self, width: int) -> list[tuple[str, str]]:
        found = [(" " * (LABEL_CELLS - 1) + text, look) for text, look in self.suggestions.lines(width)]
        if text := self.error or self.warning:
            mark, look = ("✕", "field--error") if self.error else ("!", "field--warning")
            lines = wrapped(f"{mark} {elide_end(sanitize(text), LONGEST_ERROR)}", max(1, width - LABEL_CELLS))
            found += [(" " * LABEL_CELLS + line, look) for line in lines[:MOST_ERROR_LINES]]
        return found

    def render_line(self, y: int) -> Strip:
        """Render the label and the unit in the first line, and what is below the control."""
        width, unit, runs = self.size.width, self.definition.unit, list[tuple[str, str]]()
        below = y - self.size.height + self._rows_below
        if y == 0:
            mark, look = ("▸", "field--label-focused") if self.has_focus_within else (" ", "field--label")
            label = elide_end(f"{mark} {self.definition.label}", LABEL_CELLS - 2)
            runs.append((pad(f" {label}", LABEL_CELLS), look))
            if unit:
                runs += [(" " * (self._control.outer_size.width + 1), ""), (unit, "field--unit")]
        elif below >= 0:
            runs += self._below(width)[below : below + 1]
        base = self.rich_style
        segments = [Segment(text, base + self.look(look)) for text, look in runs]
        return Strip(segments).adjust_cell_length(width, base)

    def _refresh_below(self) -> None:
        self.refresh(layout=len(self._below(self.size.width)) != self._rows_below)

    @property
    def key(self) -> str:
        """The key of its value."""
        return self.definition.key

    @property
    def value(self) -> str:
        """The value in the control."""
        if isinstance(self._control, TextAreaField):
            return self._control.text
        return str(self._control.value)

    def set_value(self, value: str) -> None:
        """Set the value without posting `Changed`; does not overwrite input that is not processed yet."""
        if value == self.value:
            self._accepted_value = value
        if self.value != self._accepted_value or value == self.value:
            return
        self._posted_value = self._accepted_value = value
        if isinstance(self._control, TextAreaField):
            self._control.load_text(value)
        elif isinstance(self._control, ChoiceField):
            self._control.set_value(value)
        else:
            self._control.value = value

    def offer(self, options: Sequence[tuple[str, str]], help: str = "") -> None:
        """Suggest values, each with a description; `help` replaces the field's own."""
        self.suggestions.options = options
        own = f"{self._help}; space lists what there is" if options else self._help
        self.definition = replace(self.definition, help=help or own)

    def accepts_key(self, key: str) -> bool:
        """Offer a key to the list of suggestions; return True if it used the key."""
        suggestions = self.suggestions
        if not suggestions.is_open:
            return key == "space" and not self._typed and suggestions.show_all()
        if key in ("up", "down"):
            return suggestions.move(1 if key == "down" else -1)
        if key in ("enter", "tab") and (chosen := suggestions.chosen) is not None:
            self._take(chosen)
            suggestions.close()
            return key == "enter"
        if key == "escape":
            suggestions.close()
            return True
        return False

    @property
    def _typed(self) -> str:
        if isinstance(self._control, TextAreaField):
            return self._control.document.get_line(self._control.cursor_location[0])
        return str(self._control.value)

    def _take(self, value: str) -> None:
        if isinstance(self._control, TextAreaField):
            row = self._control.cursor_location[0]
            self._control.replace(value, (row, 0), (row, len(self._typed)))
            self._control.move_cursor((row, len(value)))
        elif isinstance(self._control, TextField):
            self._control.value = value
            self._control.cursor_position = len(value)

    def set_choices(self, choices: Sequence[tuple[str, str]]) -> None:
        """Replace the choices; the value stays."""
        self.definition = replace(self.definition, choices=tuple(choices))
        if isinstance(self._control, ChoiceField):
            self._control.set_choices(choices)

    def focus_control(self) -> None:
        """Put the focus on the control."""
        self._control.focus()

    def show_problem(self, error: str, warning: str = "") -> None:
        """Show the error, or else the warning; both are empty for none."""
        if (error, warning) != (self.error, self.warning):
            self.error, self.warning = error, warning
            self._refresh_below()
            if (error or warning) and self.has_focus_within:
                self.call_after_refresh(self.reveal)

    def reveal(self) -> None:
        """Scroll so that label, control and error are visible."""
        self.scroll_visible(animate=False)

    def on_descendant_focus(self) -> None:
        """Mark the label."""
        self.refresh(Region(0, 0, LABEL_CELLS, 1))
        self.call_after_refresh(self.reveal)

    def on_descendant_blur(self) -> None:
        """Clear the mark, hide the suggestions, and post `Blurred`."""
        self.suggestions.close()
        self.refresh(Region(0, 0, LABEL_CELLS, 1))
        self.post_message(self.Blurred(self))

    @on(Input.Changed)
    @on(Select.Changed)
    @on(TextArea.Changed)
    def _post_changed(self, event: Message) -> None:
        event.stop()
        if self.value != self._posted_value:
            self._posted_value = self.value
            if self.has_focus_within:
                self.suggestions.filter(self._typed)
            self.post_message(self.Changed(self))


def is_shown(widget: Widget) -> bool:
    """Return True if neither it nor an ancestor is hidden."""
    return all(each.display for each in widget.ancestors_with_self if isinstance(each, Widget))


def field_around(widget: Widget | None) -> Field | None:
    """Return the field that contains a widget; None if there is none."""
    ancestors = widget.ancestors if widget is not None else []
    return next((each for each in ancestors if isinstance(each, Field)), None)


def _is_of_suggestions(control: Widget, event: events.Key) -> bool:
    field = field_around(control)
    if field is None or not field.accepts_key(event.key):
        return False
    event.stop()
    event.prevent_default()
    return True


def _sanitize_lines(text: str) -> str:
    # A paste may bring lone carriage returns as line ends.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(map(sanitize, line.split("\t"))) for line in lines)


def _with(choices: Iterable[tuple[str, str]], value: str) -> list[tuple[str, str]]:
    known = list(choices)
    return known if value in (key for key, _ in known) else [*known, (value, value)]


def _options(choices: Iterable[tuple[str, str]]) -> list[tuple[Text, str]]:
    return [(Text(sanitize(label), no_wrap=True, overflow="ellipsis"), key) for key, label in choices]
