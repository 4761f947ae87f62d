"""All keys and commands, generated from the table behind the bindings: the help, and the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import ClassVar, Literal, cast

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import Container
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from k8s.text.sanitize import sanitize
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import INTERRUPT, View
from tui.screens.base.view_context import ViewContext
from tui.screens.dialogs.detail import ScrollPane
from tui.settings.keys import HELP, PROMPT, TABLE, Key
from tui.text.cells import cell_len
from tui.text.filter_query import FILTERS
from tui.widgets.bindings import bindings
from tui.widgets.painted import palette_of

# Keys or command, description, and style.
Line = tuple[str, str, Literal["heading", "key", "refused"]]
# Longer keys get a line of their own.
KEY_CELLS = 11


class HelpColumn(Static):
    """Text that is laid out again for each width."""

    def __init__(self, text_for: Callable[[int], Text]) -> None:
        """Start empty; `text_for` returns the text for a width in cells."""
        super().__init__(markup=False)
        self._text_for = text_for
        self._width = 0

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again if the width changed; the text determines the height."""
        if event.size.width != self._width:
            self._width = event.size.width
            self.call_after_refresh(self._write)

    def _write(self) -> None:
        self.update(self._text_for(self._width))


class HelpScreen(ModalScreen[None]):
    """The keys of the view behind it, global keys, filters and commands."""

    CSS_PATH = "help.tcss"
    AUTO_FOCUS: ClassVar[str] = "ScrollPane"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = bindings(HELP)

    def __init__(
        self, view: str, keys: Sequence[Key], context: ViewContext, refused: Mapping[str, str]
    ) -> None:
        """Show the `keys` of the view first.

        Args:
            view: Title of the view.
            keys: Its part of the key table.
            context: Provides the user's keys and the read-only flag.
            refused: Ids of keys that would be refused, with reasons.
        """
        super().__init__()
        self._view = view
        self._keys = keys
        self._view_context = context
        self._refused = refused

    def compose(self) -> ComposeResult:
        """Lay out two columns, stacked if the screen is narrow."""
        here = [*self._section(self._view, self._keys), *self._section("In tables", TABLE)]
        everywhere = [
            *self._section("Everywhere", self._view_context.everywhere_keys),
            *self._section("While typing", PROMPT),
            *_filters(),
            *self._commands(),
        ]
        with ScrollPane(), Container(id="columns"):
            yield HelpColumn(lambda width: self._text(here, width))
            yield HelpColumn(lambda width: self._text(everywhere, width))

    def _section(self, title: str, keys: Sequence[Key]) -> Iterator[Line]:
        if not keys:
            return
        yield title, "", "heading"
        for key in self._view_context.keys(keys):
            why = sanitize(self._refused.get(key.id, ""))
            yield key.all_shown, f"{key.help}. {why}" if why else key.help, "refused" if why else "key"
        yield "", "", "key"

    def _commands(self) -> Iterator[Line]:
        yield "Commands, after :", "", "heading"
        context = self._view_context
        for action in context.actions.commands(is_read_only=context.is_read_only):
            yield action.usage, action.help, "key"

    def _text(self, lines: Sequence[Line], width: int) -> Text:
        text = Text()
        for key, words, look in lines:
            style = palette_of(self.app).look(f"help--{look}")[0]
            text.append(f"{'' if look == 'heading' else '  '}{key}", style)
            if words:
                room = KEY_CELLS - len(key)
                text.append(" " * room if room > 1 else "\n" + " " * (KEY_CELLS + 2))
                edge = "\n" + " " * (KEY_CELLS + 2)
                words_style = style if look == "refused" else ""
                text.append(edge.join(wrap(words, max(20, width - KEY_CELLS - 2))), words_style)
            text.append("\n")
        return text

    def action_close(self) -> None:
        """Go back to the view."""
        self.dismiss(None)


def _filters() -> Iterator[Line]:
    yield "Filters, after /", "", "heading"
    for typed, words in FILTERS:
        yield typed, words, "key"
    yield "", "", "key"


_NOT_HERE = ("app.palette", INTERRUPT)
_KEY_CELLS = 12


class ActionProvider(Provider):
    """Actions of the view behind the palette, and `:` commands."""

    async def discover(self) -> Hits:
        """Yield all actions while nothing is typed."""
        for label, shortcut, act in self._all():
            yield DiscoveryHit(_line(shortcut, Content(label)), act, label)

    async def search(self, query: str) -> Hits:
        """Yield the matches, best first."""
        matcher = self.matcher(query)
        for label, shortcut, act in self._all():
            score = matcher.match(f"{label} {shortcut}")
            if score > 0:
                yield Hit(score, _line(shortcut, matcher.highlight(label)), act, label)

    def _all(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        view = cast(View, self.screen)
        context = view.context
        for key in (*view.keys, *context.everywhere_keys):
            if key.id not in _NOT_HERE and not view.refused.get(key.id):
                yield key.help, key.all_shown, self._press(view, key.action)
        for action in context.actions.commands(is_read_only=context.is_read_only):
            if action.argument in ("", "filter", "topic"):  # these do something alone
                yield action.help, f":{action.commands[0]}", self._request(view, action.name)

    def _press(self, view: View, action: str) -> Callable[[], object]:
        return lambda: view.run_action(action)

    def _request(self, view: View, name: str) -> Callable[[], object]:
        return lambda: view.post_message(ActionRequest(name))


def _line(shortcut: str, label: Content) -> Content:
    return Content.assemble((shortcut + " " * max(1, _KEY_CELLS - cell_len(shortcut)), "$accent"), label)
