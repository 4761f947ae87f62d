"""Fields of a form: a label, a control of one line or more, and below it what is wrong.

Everything typed or pasted is made harmless on its way in, and shown as plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Label, Select, Static, TextArea
from textual.widgets.text_area import Edit, EditResult

from k8s.text.sanitize import sanitize
from tui.jobs.new_job.fields import FormField
from tui.text.format import elide_end
from tui.widgets.form.line_input import LineInput

LONGEST_PROBLEM = 240
"""Characters of what is wrong that are shown: it may quote what was typed."""


class TextField(LineInput):
    """One line of text; up, down and enter go to the neighbours."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Field before", show=False),
        Binding("down,enter", "app.focus_next", "Next field", show=False),
    ]

    def validate_value(self, text: str) -> str:
        """Make what is typed or pasted harmless."""
        return sanitize(text)

    def _on_paste(self, event: events.Paste) -> None:
        # Input would drop all lines but the first; here the line ends stay, and can be seen.
        event.text = sanitize(event.text.strip("\r\n"))


class TextAreaField(TextArea):
    """Some lines of text; up in the first and down in the last go to the neighbours."""

    def edit(self, edit: Edit) -> EditResult:
        """Put in a text, made harmless."""
        edit.text = _harmless_lines(edit.text)
        return super().edit(edit)

    def load_text(self, text: str) -> None:
        """Replace the whole text."""
        super().load_text(_harmless_lines(text))

    def action_cursor_up(self, select: bool = False) -> None:
        """Go up a line, or to the field before."""
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
    """One of several answers: left and right change it, enter or space shows them all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", "Field before", show=False),
        Binding("down", "app.focus_next", "Next field", show=False),
        Binding("left", "step(-1)", "Answer before", show=False),
        Binding("right", "step(1)", "Next answer", show=False),
        Binding("enter,space", "show_overlay", "All answers", show=False),
    ]

    def __init__(self, choices: Iterable[tuple[str, str]], value: str) -> None:
        """Offer `choices`, each an answer and its words; `value` is offered even if it is none of them."""
        self._answers = _with(choices, value)
        super().__init__(_options(self._answers), allow_blank=False, value=value, compact=True)

    def offer(self, choices: Iterable[tuple[str, str]]) -> None:
        """Offer other choices; the answer stays."""
        value = str(self.value)
        self._answers = _with(choices, value)
        with self.prevent(Select.Changed):
            self.set_options(_options(self._answers))
            self.value = value

    def answer(self, value: str) -> None:
        """Take an answer, be it offered or not."""
        if value not in (key for key, _ in self._answers):
            self._answers = _with(self._answers, value)
            self.set_options(_options(self._answers))
        self.value = value

    def action_step(self, step: int) -> None:
        """Take the next answer, or the one before; the ends do not meet."""
        keys = [key for key, _ in self._answers]
        index = keys.index(str(self.value)) + step
        if 0 <= index < len(keys):
            self.value = keys[index]


class Field(Vertical):
    """A question, the control to answer it, and what is wrong with the answer."""

    DEFAULT_CSS = """
    Field { height: auto; width: 100%; }
    Field > Horizontal { height: auto; width: 100%; }
    Field .field--label { width: 18; height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Field .field--unit { width: auto; height: 1; padding-left: 1; }
    Field TextField.-textual-compact { width: 1fr; padding: 0 1; }
    Field.-short TextField.-textual-compact { width: 14; }
    Field TextAreaField { width: 1fr; height: auto; min-height: 1; max-height: 6; padding: 0 1; }
    Field ChoiceField { width: 1fr; }
    Field ChoiceField.-textual-compact > SelectCurrent { padding: 0 1; }
    Field SelectCurrent Static#label { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Field .field--problem { display: none; width: 100%; height: auto; max-height: 4; padding-left: 18; }
    Field.-problem .field--problem { display: block; }
    """

    problem: reactive[str] = reactive("", init=False)
    """What is wrong, shown below the control; empty hides it."""

    class FieldMessage(Message):
        """What a field tells the form; the base of its messages."""

        def __init__(self, field: Field) -> None:
            super().__init__()
            self.field = field
            """The field it happened in."""

        @property
        def control(self) -> Field:
            """The field it happened in."""
            return self.field

    class Changed(FieldMessage):
        """There is another answer; read it from `field.value`."""

    class Left(FieldMessage):
        """The focus went."""

    def __init__(self, question: FormField, value: str) -> None:
        """Ask `question`; the answer is `value` until somebody gives another."""
        super().__init__(id=_id_of(question.key), classes=f"-{question.shape}")
        self.question = question
        """What is asked."""
        self._control = self._make_control(value)
        self._given = self.value

    def _make_control(self, value: str) -> TextField | ChoiceField | TextAreaField:
        question = self.question
        control: TextField | ChoiceField | TextAreaField
        if question.shape == "choice":
            control = ChoiceField(question.choices, value)
        elif question.shape == "lines":
            control = TextAreaField(
                _harmless_lines(value),
                compact=True,
                highlight_cursor_line=False,
                placeholder=question.hint,
            )
            control.cursor_blink = False
        else:
            control = TextField(sanitize(value), placeholder=question.hint, compact=True)
            control.cursor_blink = False
        return control

    def compose(self) -> ComposeResult:
        """Lay out label, control and unit, and the problem below."""
        with Horizontal():
            yield Label(f"  {self.question.label}", classes="field--label", markup=False)
            yield self._control
            if self.question.unit:
                yield Label(self.question.unit, classes="field--unit", markup=False)
        yield Label("", classes="field--problem", markup=False)

    @property
    def key(self) -> str:
        """The key of its question."""
        return self.question.key

    @property
    def value(self) -> str:
        """The answer as it stands in the control."""
        if isinstance(self._control, TextAreaField):
            return self._control.text
        return str(self._control.value)

    def set_value(self, value: str) -> None:
        """Put an answer into the control, as if it had stood there from the start.

        What somebody has typed there meanwhile, and is on its way to be told, stays.
        """
        if value == self.value or self.value != self._given:
            return
        self._given = value
        if isinstance(self._control, TextAreaField):
            self._control.load_text(value)
        elif isinstance(self._control, ChoiceField):
            self._control.answer(value)
        else:
            self._control.value = value

    async def ask(self, question: FormField) -> None:
        """Ask something else in this place; the answer stays."""
        if self.question.shape == question.shape == "choice" and isinstance(self._control, ChoiceField):
            self.question = question
            self._control.offer(question.choices)
            return
        had_focus = self.has_focus_within
        value = self.value
        self.remove_class(f"-{self.question.shape}")
        self.add_class(f"-{question.shape}")
        self.question = question
        before, self._control = self._control, self._make_control(value)
        await before.parent.mount(self._control, after=before) if isinstance(before.parent, Widget) else None
        await before.remove()
        if had_focus:
            self._control.focus()

    @property
    def is_shown(self) -> bool:
        """Whether it belongs to a part of the form that is shown."""
        return all(widget.display for widget in self.ancestors_with_self if isinstance(widget, Widget))

    def focus_control(self) -> None:
        """Put the focus on the control."""
        self._control.focus()

    def watch_problem(self, problem: str) -> None:
        """Say what is wrong."""
        self.set_class(bool(problem), "-problem")
        words = elide_end(sanitize(problem), LONGEST_PROBLEM)
        self.query_one(".field--problem", Label).update(f"✕ {words}" if problem else "")
        if problem and self.has_focus_within:
            self.call_after_refresh(self.reveal)

    def reveal(self) -> None:
        """Scroll so that label, control and problem are seen."""
        self.scroll_visible(animate=False)

    def on_descendant_focus(self) -> None:
        """Point at the label."""
        self._point("▸")
        self.call_after_refresh(self.reveal)

    def on_descendant_blur(self) -> None:
        """Point no more."""
        self._point(" ")
        self.post_message(self.Left(self))

    def _point(self, mark: str) -> None:
        label = self.query_one(".field--label", Label)
        label.update(f"{mark} {self.question.label}", layout=False)
        label.set_class(mark != " ", "-bright")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the form."""
        event.stop()
        self._tell()

    def on_select_changed(self, event: Select.Changed) -> None:
        """Tell the form."""
        event.stop()
        self._tell()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Tell the form."""
        event.stop()
        self._tell()

    def _tell(self) -> None:
        if self.value != self._given:
            self._given = self.value
            self.post_message(self.Changed(self))


class Fold(Vertical):
    """A line that opens fields which few people need; they are made when it is first opened."""

    DEFAULT_CSS = """
    Fold { height: auto; width: 100%; }
    Fold > Vertical { height: auto; width: 100%; display: none; }
    Fold.-open > Vertical { display: block; }
    Fold > StaticField { width: 100%; height: 1; padding: 0 2; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    class Opening(Message):
        """It opens for the first time: mount the fields of its questions with `fill`."""

        def __init__(self, fold: Fold) -> None:
            super().__init__()
            self.fold = fold
            """The fold that opens."""

    class StaticField(Static, can_focus=True):
        """The line to press."""

        BINDINGS: ClassVar[list[BindingType]] = [
            Binding("enter,space", "turn", "Open or close", show=False),
            Binding("right", "turn(True)", "Open", show=False),
            Binding("left", "turn(False)", "Close", show=False),
            Binding("up", "app.focus_previous", "Field before", show=False),
            Binding("down", "app.focus_next", "Next field", show=False),
        ]

        async def action_turn(self, is_open: bool | None = None) -> None:
            """Open or close the fold."""
            assert isinstance(self.parent, Fold)
            await self.parent.turn(is_open)

        async def on_click(self) -> None:
            """Open or close the fold."""
            await self.action_turn()

    def __init__(self, title: str, questions: Sequence[FormField], *, id: str | None = None) -> None:
        """Make a closed fold around the fields of `questions`."""
        super().__init__(id=id)
        self.questions = questions
        """What is asked inside."""
        self._title = title
        self.is_filled = False
        """Whether its fields exist."""

    def compose(self) -> ComposeResult:
        """Lay out the line; there are no fields yet."""
        yield self.StaticField("", markup=False)
        yield Vertical()

    def on_mount(self) -> None:
        """Write the line."""
        self._write()

    async def turn(self, is_open: bool | None = None) -> None:
        """Open or close; None means the other way round."""
        wanted = not self.has_class("-open") if is_open is None else is_open
        self.set_class(wanted, "-open")
        self._write()
        if wanted and not self.is_filled:
            self.post_message(self.Opening(self))

    async def fill(self, fields: Iterable[Field]) -> None:
        """Mount the fields."""
        self.is_filled = True
        await self.query_one(Vertical).mount_all(fields)

    @property
    def is_shown(self) -> bool:
        """Whether it belongs to a part of the form that is shown."""
        return all(widget.display for widget in self.ancestors_with_self if isinstance(widget, Widget))

    def _write(self) -> None:
        mark = "▾" if self.has_class("-open") else "▸"
        names = ", ".join(question.label for question in self.questions)
        words = f"{mark} {self._title}" + ("" if self.has_class("-open") else f": {names}")
        self.query_one(self.StaticField).update(words)


def _id_of(key: str) -> str:
    return "field-" + key.replace(".", "-").replace("_", "-")


def _harmless_lines(text: str) -> str:
    """Make every line harmless; line ends and tabs stay what they are."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(sanitize, line.split("\t"))) for line in lines)


def _with(choices: Iterable[tuple[str, str]], value: str) -> list[tuple[str, str]]:
    known = list(choices)
    return known if value in (key for key, _ in known) else [*known, (value, value)]


def _options(answers: Iterable[tuple[str, str]]) -> list[tuple[Text, str]]:
    return [(Text(sanitize(words), no_wrap=True, overflow="ellipsis"), key) for key, words in answers]
