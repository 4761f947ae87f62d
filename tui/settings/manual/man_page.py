"""Man page, generated from the grammar of the command line and the manual."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from typing import Any

from tui.settings.manual import TOPICS, read_chapter

_ABOUT = (
    "Terminal console for people who train models on GPU clusters: which GPUs are free and who holds the "
    "others, which jobs run and why the rest do not, logs by rank, loss curves, and new jobs. Without a "
    "command it opens the console; with one it prints and exits."
)
_FILES = (
    ("~/.config/gpuconsole/", "config.yaml, keys.yaml, plugins.yaml, causes.yaml, themes and templates"),
    ("~/.local/state/gpuconsole/", "log, drafts, and what was streamed of finished logs"),
    ("~/.local/share/gpuconsole/sandbox/", "objects, volumes and logs of the sandbox"),
)


def man_page(parser: argparse.ArgumentParser) -> str:
    """Return gpuconsole(1) as roff; `parser` is that of the whole command line.

    Source: man-pages(7), groff_man(7).
    """
    lines = [
        f'.TH GPUCONSOLE 1 "{date.today():%Y-%m-%d}" "gpuconsole {version("gpuconsole")}" "User Commands"',
        *_section("NAME", r"gpuconsole \- console for training jobs on GPU clusters"),
        *_section("SYNOPSIS", r"\fBgpuconsole\fR [\fIOPTION\fR]... [\fICOMMAND\fR [\fIARGUMENT\fR]...]"),
        *_section("DESCRIPTION", _escaped(_ABOUT)),
        ".SH COMMANDS",
        *_commands(parser, ""),
        ".SH GLOBAL OPTIONS",
        *_options(parser),
        *_section("EXIT STATUS", _escaped(_exit_status())),
        ".SH FILES",
    ]
    for path, words in _FILES:
        lines += [".TP", rf"\fI{_escaped(path)}\fR", _escaped(words)]
    topics = ", ".join(rf"\fBgpuconsole help {topic}\fR" for topic in TOPICS)
    return "\n".join([*lines, *_section("SEE ALSO", f"{topics}, \\fBkubectl\\fR(1)")]) + "\n"


def _section(title: str, text: str) -> list[str]:
    return [f".SH {title}", text]


def _commands(parser: argparse.ArgumentParser, path: str) -> Iterator[str]:
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {each.dest.split(" ")[0]: str(each.help or "") for each in action._choices_actions}
        for name, child in action.choices.items():
            if name not in helps:  # an alias
                continue
            _fill(child)
            yield from (
                ".SS",
                _escaped(f"{path}{name}{_arguments(child)}"),
                _escaped(helps[name].rstrip(".")) + ".",
            )
            yield from _options(child, is_global=False)
            yield from _commands(child, f"{path}{name} ")


def _fill(parser: Any) -> None:
    # Commands add their arguments when they are used.
    if hasattr(parser, "fill"):
        parser.fill()


def _arguments(parser: argparse.ArgumentParser) -> str:
    words = [
        str(action.metavar or action.dest) + ("..." if action.nargs in ("+", "*") else "")
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    return "".join(f" {word}" for word in words)


def _options(parser: argparse.ArgumentParser, *, is_global: bool = True) -> Iterator[str]:
    _fill(parser)
    groups = [each for each in parser._action_groups if (each.title == "global options") is is_global]
    for action in (action for group in groups for action in group._group_actions):
        if not action.option_strings or action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        choices = "|".join(map(str, action.choices)) if action.choices is not None else ""
        value = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
        names = ", ".join(rf"\fB{_escaped(name)}\fR" for name in action.option_strings)
        yield from (".TP", names + (rf" \fI{_escaped(value)}\fR" if value else ""))
        yield _escaped(str(action.help or ""))


def _exit_status() -> str:
    found = re.search(r"^Exit status: (.+?)\n\n", read_chapter("scripts"), re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def _escaped(text: str) -> str:
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("`", "")
    escaped = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
