"""The prompt for filters and commands, and its one-line input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.css.styles import RenderStyles
from textual.dom import DOMNode
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive, reactive
from textual.suggester import Suggester
from textual.widgets import Input, Label

from k8s.text.sanitize import sanitize
from tui.settings.keys import PROMPT, Key


class LineInput(Input):
    """Input that processes a burst of keys in order, as one packet over SSH brings it.

    Textual inserts a letter at once but sends `backspace` or `ctrl+u` up to the app first, so that a letter
    typed after them in the same packet would overtake them. The styles of its cursor, its placeholder and the
    like are read when they are drawn, not whenever its own are updated.
    """

    # Each blink would send a line of bytes over SSH, twice a second.
    cursor_blink = reactive(False, init=False)
    compact = reactive(True, init=False)
    # Its size does not follow the text, so that a letter needs no new layout of the screen.
    virtual_size = Reactive(Size(0, 0), layout=False)

    def __init__(
        self, value: str = "", *, placeholder: str = "", password: bool = False, id: str | None = None
    ) -> None:
        # A class that is set later, as of what is valid, would update its styles.
        classes = "-textual-compact"
        super().__init__(value, placeholder, password=password, validate_on=(), id=id, classes=classes)

    @classmethod
    @cache
    def _get_component_classes(cls) -> frozenset[str]:
        return frozenset()

    def get_component_styles(self, *names: str) -> RenderStyles:
        """Return the styles of its parts."""
        for name in names:
            if name not in self._component_styles:
                part = DOMNode(classes=name)
                part._attach(self)
                self.app.stylesheet.apply(part)
                self._component_styles[name] = part.styles
        return super().get_component_styles(*names)

    def notify_style_update(self) -> None:
        """Read the styles of its parts again."""
        self._component_styles.clear()
        super().notify_style_update()

    async def _on_key(self, event: events.Key) -> None:
        bindings = self._bindings.key_to_bindings.get(event.key)
        if bindings and not event.is_printable:
            event.stop()
            event.prevent_default()
            await self.run_action(bindings[0].action)


# Returns the completed text; empty if there is none.
Completer = Callable[[str], str]


class _Suggester(Suggester):
    def __init__(self, complete: Completer) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        completed = self._complete(value)
        return value + completed[len(value) :] if completed else None


class PromptField(LineInput):
    """Input of the prompt. Its keys take effect before the next key of the same packet."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self._prompt = prompt

    async def _on_key(self, event: events.Key) -> None:
        if self._prompt.press(event.key):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)


class Prompt(Horizontal):
    """Hidden until opened. `/` filters while typing, `:` waits for enter."""

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt.-open { display: block; }
    Prompt #mark { width: 2; padding-left: 1; }
    Prompt #problem { width: auto; max-width: 60%; height: 1; padding: 0 1; text-wrap: nowrap;
                      text-overflow: ellipsis; display: none; }
    Prompt #problem.-shown { display: block; }
    Prompt Input { height: 1; border: none; padding: 0; background: transparent; width: 1fr; }
    Prompt Input:focus { border: none; }
    """

    class Typed(Message):
        """The text was changed, or accepted with enter."""

        def __init__(self, mark: str, text: str, *, is_final: bool) -> None:
            super().__init__()
            self.mark = mark
            self.text = text
            self.is_final = is_final

    class Closed(Message):
        """Escape was pressed; the text is discarded."""

        def __init__(self, mark: str) -> None:
            super().__init__()
            self.mark = mark

    def __init__(self, keys: Sequence[Key] = PROMPT) -> None:
        super().__init__()
        self.mark = "/"
        """`/` for a filter, `:` for a command."""
        self.is_open = False
        self.problem = ""
        """Problem of the current or last filter; empty if there is none."""
        self._actions = {name.strip(): key.action for key in keys for name in key.keys.split(",")}
        self._history: Sequence[str] = ()
        self._back = 0

    def compose(self) -> ComposeResult:
        """Lay out the mark and the input."""
        yield Label("/", id="mark", markup=False)
        yield PromptField(self)
        yield Label("", id="problem", markup=False)

    def open(
        self, mark: str, text: str = "", *, complete: Completer | None = None, history: Sequence[str] = ()
    ) -> None:
        """Show and focus the prompt.

        Args:
            mark: `/` or `:`.
            text: Initial text.
            complete: Returns completions.
            history: Earlier texts, oldest first.
        """
        self.mark, self._history, self._back = mark, history, 0
        self.show_problem(self.problem if mark == "/" and text else "")
        self.query_one("#mark", Label).update(mark)
        field = self.query_one(PromptField)
        field.suggester = _Suggester(complete) if complete else None
        self._write(text)
        self.is_open = True
        self.add_class("-open")
        # At once, not at the next idle moment: what is typed right after the mark belongs here.
        self.screen.set_focus(field)

    def show_problem(self, problem: str) -> None:
        """Show a problem beside the input; empty hides it."""
        self.problem = problem
        label = self.query_one("#problem", Label)
        label.update(sanitize(f"! {problem}") if problem else "")
        label.set_class(bool(problem), "-shown")

    def close(self) -> None:
        """Hide the prompt."""
        self.is_open = False
        self.remove_class("-open")

    def press(self, key: str) -> bool:
        """Handle a key; return False if it has no meaning here."""
        action = self._actions.get(key, "")
        if action == "submit":
            text = self.query_one(PromptField).value
            self.close()
            self.post_message(self.Typed(self.mark, text, is_final=True))
        elif action == "close":
            self.close()
            self.post_message(self.Closed(self.mark))
        elif action == "accept":
            self.query_one(PromptField).action_cursor_right()
        elif action.startswith("older") and self._history:
            self._recall(-1 if "-" in action else 1)
        return bool(action)

    def _recall(self, steps: int) -> None:
        self._back = max(0, min(len(self._history), self._back + steps))
        text = self._history[-self._back] if self._back else ""
        self._write(text)
        if self.mark == "/":
            self.post_message(self.Typed(self.mark, text, is_final=False))

    def _write(self, text: str) -> None:
        field = self.query_one(PromptField)
        with field.prevent(Input.Changed):
            field.value = text
        field.cursor_position = len(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        event.stop()
        if self.is_open:
            self.post_message(self.Typed(self.mark, event.value, is_final=False))
