"""Search everything that can be done here: the keys of the view, and all commands; one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from tui.screens.base.request import ActionRequest
from tui.screens.base.view import INTERRUPT, View
from tui.text.cells import cell_len

_NOT_HERE = ("app.palette", INTERRUPT)
_KEY_CELLS = 12
"""What keys and commands take at the left."""


class ActionProvider(Provider):
    """What the view behind the palette can do, and what can be typed after `:`."""

    async def discover(self) -> Hits:
        """Show all of it while nothing is typed."""
        for words, how, act in self._all():
            yield DiscoveryHit(_line(how, Content(words)), act, words)

    async def search(self, query: str) -> Hits:
        """Show what matches, the best first."""
        matcher = self.matcher(query)
        for words, how, act in self._all():
            score = matcher.match(f"{words} {how}")
            if score > 0:
                yield Hit(score, _line(how, matcher.highlight(words)), act, words)

    def _all(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        """Yield words, how it is done without the palette, and what does it."""
        view = cast(View, self.screen)
        context = view.context
        for key in (*view.keys, *context.everywhere_keys):
            if key.id not in _NOT_HERE and not view.refused.get(key.id):
                yield key.help, key.all_shown, self._press(view, key.action)
        for action in context.actions.commands(is_read_only=context.is_read_only):
            if not action.argument:
                yield action.help, f":{action.commands[0]}", self._request(view, action.name)

    def _press(self, view: View, action: str) -> Callable[[], object]:
        return lambda: view.run_action(action)

    def _request(self, view: View, name: str) -> Callable[[], object]:
        return lambda: view.post_message(ActionRequest(name))


def _line(how: str, words: Content) -> Content:
    return Content.assemble((how + " " * max(1, _KEY_CELLS - cell_len(how)), "$accent"), words)
