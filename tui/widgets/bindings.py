"""Conversion of the key table to Textual bindings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from textual.binding import Binding, BindingType

from tui.settings.keys import Key


def bindings(keys: Iterable[Key], *, after_fields: Collection[str] | None = None) -> list[BindingType]:
    """Return one binding per key; the binding id is the key's id in keys.yaml.

    Args:
        keys: The keys.
        after_fields: In a form, ids of keys that a focused field handles first; the others have priority.
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
