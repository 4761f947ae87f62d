"""Single-line input that processes keys in the order in which they were typed."""

from __future__ import annotations

from textual import events
from textual.reactive import reactive
from textual.widgets import Input


class LineInput(Input):
    """Input that processes a burst of keys in order, as one packet over SSH brings it.

    Textual inserts a letter at once but sends `backspace` or `ctrl+u` up to the app first, so that a letter
    typed after them in the same packet would overtake them.
    """

    # Each blink would send a line of bytes over SSH, twice a second.
    cursor_blink = reactive(False, init=False)

    async def _on_key(self, event: events.Key) -> None:
        bindings = self._bindings.key_to_bindings.get(event.key)
        if bindings and not event.is_printable:
            event.stop()
            event.prevent_default()
            await self.run_action(bindings[0].action)
