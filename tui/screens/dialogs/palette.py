"""The command palette: keys of the view and all commands, one line each."""

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
