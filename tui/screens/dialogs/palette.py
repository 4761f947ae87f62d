"""Search everything that can be done here, by its words: the keys of the view, and all commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui.keys import COMMANDS, EVERYWHERE, Key
from tui.screens.base.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

_NOT_HERE = ("app.palette", "app.interrupt")


class ActionProvider(Provider):
    """What the view behind the palette can do, and what can be typed after `:`."""

    async def discover(self) -> Hits:
        """Show all of it while nothing is typed."""
        for words, how, act in self._all():
            yield DiscoveryHit(words, act, help=how)

    async def search(self, query: str) -> Hits:
        """Show what matches, the best first."""
        matcher = self.matcher(query)
        for words, how, act in self._all():
            score = matcher.match(f"{words} {how}")
            if score > 0:
                yield Hit(score, matcher.highlight(words), act, help=how)

    def _all(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        """Yield words, how it is done without the palette, and what does it."""
        view = cast(View, self.screen)
        for key in view.context.keys((*view.KEYS, *EVERYWHERE)):
            if key.id not in _NOT_HERE and not view.refused.get(key.id):
                yield key.words, f"key {key.all_shown}", self._press(view, key)
        for command in COMMANDS:
            if not command.takes and not (view.context.is_read_only and command.changes):
                yield command.words, f":{command.name}", self._wish(view, command.name)

    def _press(self, view: View, key: Key) -> Callable[[], object]:
        return lambda: view.run_action(key.action)

    def _wish(self, view: View, name: str) -> Callable[[], object]:
        return lambda: view.post_message(View.Go(name))
