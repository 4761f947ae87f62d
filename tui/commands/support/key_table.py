"""Every key with its id, for `gpuconsole info --keys`, for whoever writes a keys.yaml, and for the README."""

from __future__ import annotations

from collections.abc import Mapping

from tui.keys import ACTIONS, key_sections, remapped


def as_text(keymap: Mapping[str, str]) -> str:
    """Return the table as the terminal shows it, with the user's own keys."""
    lines = []
    for place, table in key_sections():
        lines.append(place)
        lines += [
            f"  {key.id:<24}  {key.all_shown:<12}  {key.help}".rstrip() for key in remapped(table, keymap)
        ]
        lines.append("")
    return "\n".join(lines)


def as_markdown() -> str:
    """Return the table as README shows it."""
    lines = []
    for place, table in key_sections():
        lines += [f"**{place}**", "", "| key | does | id |", "|---|---|---|"]
        lines += [f"| {_code(key.all_shown)} | {key.help} | `{key.id}` |" for key in table]
        lines.append("")
    lines += ["**Commands**", "", "| after `:` | does |", "|---|---|"]
    lines += [f"| `{each.usage}` | {each.help} |" for each in ACTIONS.commands()]
    return "\n".join(lines) + "\n"


def _code(keys: str) -> str:
    return " ".join(f"`{key}`" if key != "`" else key for key in keys.replace("|", "\\|").split(" "))
