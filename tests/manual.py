"""Generate the tables of the manual: keys, fields of a job, commands. Run as `python -m tests.manual`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import JOB_FIELDS, JobField
from k8s.kinds.job_spec.field_types import Switch
from tests import ROOT
from tui.commands import COMMANDS
from tui.commands.support.submit_flags import metavar_of
from tui.screens import ACTIONS, key_table
from tui.text.kind_words import words_of

README = ROOT / "README.md"
MANUAL = ROOT / "tui" / "settings" / "manual"


def keys_as_markdown() -> str:
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


def flags_as_markdown() -> str:
    """Return the fields of a job, section by section."""
    lines: list[str] = []
    section = ""
    for field in JOB_FIELDS.values():
        if field.section != section:
            section = field.section
            lines += [*([""] if lines else []), f"**{section.capitalize()}**", ""]
            lines += [
                "| flag | template key | value | default | what it is | kinds |",
                "|---|---|---|---|---|---|",
            ]
        cells = (
            _flags(field),
            f"`{field.name}`",
            _value(field),
            _default(field),
            field.help,
            kinds_with(field),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def kinds_with(field: JobField) -> str:
    """Return the kinds that have a field: `all`, a list of their words, or `none`."""
    words = dict.fromkeys(words_of(kind)[0] for kind in CREATABLE)
    having = [
        word
        for word in words
        if any(field.name not in kind.lacks for kind in CREATABLE if words_of(kind)[0] == word)
    ]
    return "all" if len(having) == len(words) else ", ".join(having) or "none"


def _flags(field: JobField) -> str:
    if field.name in ("namespace", "command", "user"):
        shown = {"namespace": ("-n",), "command": ("COMMAND",), "user": ()}[field.name]
        return " ".join(f"`{flag}`" for flag in shown)
    return " ".join(f"`{flag}`" for flag in field.flags)


def _value(field: JobField) -> str:
    if isinstance(field.type, Switch):
        return "true or false"
    return f"`{metavar_of(field)}`".replace("|", "\\|")


def _default(field: JobField) -> str:
    return f"`{field.default_text}`" if field.default_text else ""


def commands_as_markdown() -> str:
    lines = ["| command | does |", "|---|---|"]
    for command in COMMANDS:
        names = ", ".join(f"`{name}`" for name in (command.name, *command.aliases))
        lines.append(f"| {names} | {command.words} |")
    return "\n".join(lines) + "\n"


PARTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "keys": ("keys", keys_as_markdown),
    "flags": ("jobs", flags_as_markdown),
    "commands": ("scripts", commands_as_markdown),
}
"""Generated tables, by the name in the markers around them: their chapter, and what writes them."""


def chapter(name: str) -> Path:
    return MANUAL / f"{name}.md"


def part_of(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->\n")[0]


def with_part(text: str, name: str, part: str) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    return f"{text.split(begin)[0]}{begin}{part}{end}{text.split(end)[1]}"


if __name__ == "__main__":
    for name, (topic, make) in PARTS.items():
        path = chapter(topic)
        path.write_text(with_part(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")
