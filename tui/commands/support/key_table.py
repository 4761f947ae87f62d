"""Tables of all keys and their ids, for `gpuconsole info --keys`, keys.yaml and the manual."""

from __future__ import annotations

from collections.abc import Mapping

from tui.keys import remapped
from tui.screens import ACTIONS, key_table


def as_text(keymap: Mapping[str, str]) -> str:
    """Return the table as text, with the user's own keys."""
    lines = []
    for place, table in key_table().sections:
        lines.append(place)
        lines += [
            f"  {key.id:<24}  {key.all_shown:<12}  {key.help}".rstrip() for key in remapped(table, keymap)
        ]
        lines.append("")
    return "\n".join(lines)


def as_markdown() -> str:
    """Return the table as Markdown, for the manual."""
    lines = []
    for place, table in key_table().sections:
        lines += [f"**{place}**", "", "| key | does | id |", "|---|---|---|"]
        lines += [f"| {_code(key.all_shown)} | {key.help} | `{key.id}` |" for key in table]
        lines.append("")
    lines += ["**Commands**", "", "| after `:` | does |", "|---|---|"]
    lines += [f"| `{each.usage}` | {each.help} |" for each in ACTIONS.commands()]
    return "\n".join(lines) + "\n"


def _code(keys: str) -> str:
    return " ".join(f"`{key}`" if key != "`" else key for key in keys.replace("|", "\\|").split(" "))
