"""From the table of keys to Textual's bindings."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import Binding, BindingType

from tui.keys import Key


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """Return a binding for each key; its id is what a user's keys.yaml names."""
    return [
        Binding(key.keys, key.action, key.help, show=False, priority=key.opens_prompt, id=key.id)
        for key in keys
    ]
