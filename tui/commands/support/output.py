"""Writes answers to stdout (tables, CSV, JSON, YAML) and all else to stderr, and asks questions.

The one gate of the commands: every word that they print passes here, also those from files, folder
names and the command line, and none reaches a terminal that would obey it.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import getpass
import json
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from k8s.text.sanitize import sanitize, sanitize_lines
from k8s.text.yaml_writer import to_yaml
from tui.text.cells import cell_len, pad

FORMATS = ("table", "wide", "json", "yaml")
"""What `-o` of a list takes."""
GAP = "   "
"""Between two columns."""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of a printed table."""

    title: str
    align: Literal["left", "right"] = "left"
    is_wide: bool = False
    """Only with `-o wide`."""


class WrongUsage(Exception):
    """The command line itself is at fault; the message says what would be right."""

    command = ""
    """Whose help has more, where that is known."""


def write_stderr(text: str) -> None:
    """Print on stderr what is not part of the answer."""
    sys.stderr.write(f"{sanitize_lines(text)}\n")


def write_progress(text: str, *, is_last: bool = False) -> None:
    """Print on stderr a line that the next one takes the place of; nothing where no terminal is."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{sanitize(text)}" + "\r\x1b[K" * is_last)
        sys.stderr.flush()


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Let a command take `-o`."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"output format: {', '.join(formats)} (default {formats[0]})",
    )


def write(text: str) -> None:
    """Print part of the answer: as it is to a pipe or a file, harmless to a terminal."""
    shown = sanitize_lines(text) if sys.stdout.isatty() else text
    sys.stdout.write(f"{shown}\n")


def write_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV: as they are to a pipe or a file, harmless to a terminal."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    if sys.stdout.isatty():
        rows = ([sanitize(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    lines.writerows(rows)


def write_object(found: Any, form: str) -> None:
    """Print values as JSON or YAML, in ASCII: everything else is written as an escape."""
    if form == "yaml":
        write(to_yaml(found).removesuffix("\n"))
    else:
        write(json.dumps(found, indent=2))


def write_table(
    columns: Sequence[OutputColumn], rows: Iterable[Sequence[str]], *, is_wide: bool = False, indent: str = ""
) -> None:
    """Print rows below their titles; each row has a cell for every column, wide ones too."""
    shown = [index for index, column in enumerate(columns) if is_wide or not column.is_wide]
    lines = [[columns[index].title for index in shown]]
    lines += [[sanitize(row[index]) for index in shown] for row in rows]
    widths = [max(cell_len(line[place]) for line in lines) for place in range(len(shown))]
    for line in lines:
        cells = [
            pad(cell, width, columns[index].align)
            for cell, width, index in zip(line, widths, shown, strict=True)
        ]
        write((indent + GAP.join(cells)).rstrip())


def write_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values one below the other; a value that is empty is left out."""
    filled = [(name, sanitize(value)) for name, value in fields if value]
    width = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        write(f"{name + ':':{width + 1}}  {value}")


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask a yes-or-no question on the terminal; no answer at all is a no."""
    answer = _answer(f"{sanitize(question)} {'[Y/n]' if default else '[y/N]'} ")
    if answer is None:
        return False
    word = answer.lower()
    return word in ("y", "yes") or (default and not word)


def confirm_by_word(question: str, word: str) -> bool:
    """Ask a question on the terminal that only `word`, typed in full, says yes to."""
    return _answer(f'{sanitize(question)}\nType "{sanitize(word)}" to continue: ') == word


def ask_password(prompt: str) -> str:
    """Return what is typed unseen on the terminal after a prompt; nothing for no answer at all."""
    with _ended_by_ctrl_c(), suppress(EOFError):
        return getpass.getpass(sanitize(prompt), sys.stderr)
    return ""


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    # asyncio would only note ctrl+c, and go on waiting for the answer.
    noting = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _is_ctrl_c_noted():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, noting)


def _is_ctrl_c_noted() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # outside asyncio nothing is only noted
        return False
    return task is not None and task.cancelling() > 0


def _answer(prompt: str) -> str | None:
    """Return what is typed on the terminal after a prompt; None for no answer at all."""
    with _ended_by_ctrl_c():
        sys.stderr.write(prompt)
        sys.stderr.flush()
        answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        return None
    return answer.strip()


def is_interactive() -> bool:
    """Tell whether somebody sits there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
