"""From the table of keys to Textual's bindings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from textual.binding import Binding, BindingType

from tui.keys import Key


def bindings(keys: Iterable[Key], *, after_fields: Collection[str] | None = None) -> list[BindingType]:
    """Return a binding for each key; its id is what a user's keys.yaml names.

    Args:
        keys: Which.
        after_fields: Of a form: the ids of those that a field may have first, the others come before it.
    """
    return [
        Binding(
            key.keys,
            key.action,
            key.help,
            show=False,
            priority=key.opens_prompt if after_fields is None else key.id not in after_fields,
            id=key.id,
        )
        for key in keys
    ]
