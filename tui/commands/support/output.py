"""Write results to stdout (tables, CSV, JSON, YAML) and the rest to stderr, and prompt.

Everything a command prints passes here, including text from files, folder names and the command
line, so that no control sequence reaches a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import getpass
import json
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from k8s.text.sanitize import sanitize, sanitize_lines
from k8s.text.yaml_writer import to_yaml
from tui.tables.column import Item, ListColumn, OutputColumn, View
from tui.text.cells import cell_len, pad

FORMATS = ("table", "wide", "json", "yaml")
GAP = "   "
NARROW_GAP = "  "
_NEAREST = str.maketrans({"–": "-", "—": "-", "…": "...", "•": "*", "·": ".", "×": "x", "→": "->", "≈": "~"})


class WrongUsage(Exception):
    """The command line is invalid; the message says what would be valid."""

    command = ""


def nearest_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that stdout cannot encode: the commands' codec error handler."""
    assert isinstance(error, UnicodeEncodeError)
    found = error.object[error.start : error.end].translate(_NEAREST)
    return found.encode("ascii", "replace").decode(), error.end


def write_stderr(text: str) -> None:
    """Print a notice on stderr."""
    sys.stderr.write(f"{sanitize_lines(text)}\n")


def write_progress(text: str, *, is_last: bool = False) -> None:
    """Print a line on stderr that the next one overwrites; nothing without a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{sanitize(text)}" + "\r\x1b[K" * is_last)
        sys.stderr.flush()


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add `-o`."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"output format: {', '.join(formats)} (default {formats[0]})",
    )


def write(text: str) -> None:
    """Print part of the result: unchanged to a pipe or file, sanitized to a terminal."""
    shown = sanitize_lines(text) if sys.stdout.isatty() else text
    sys.stdout.write(f"{shown}\n")


def write_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV, safe for spreadsheets, and sanitized on a terminal."""
    from tui.files.csv_export import escape_formula

    lines = csv.writer(sys.stdout, lineterminator="\n")
    clean = sanitize if sys.stdout.isatty() else str
    lines.writerows(
        [escape_formula(clean(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows
    )


def write_object(found: Any, form: str) -> None:
    """Print values as JSON or YAML in ASCII, with escapes for other characters."""
    if form == "yaml":
        write(to_yaml(found).removesuffix("\n"))
    else:
        write(json.dumps(found, indent=2))


def write_table(
    columns: Sequence[OutputColumn], rows: Iterable[Sequence[str]], *, is_wide: bool = False, indent: str = ""
) -> None:
    """Print rows below their titles; each row has a cell for every column, wide ones included.

    On a terminal, a table without wide columns is narrowed to its width as far as its columns allow.
    """
    shown = [index for index, column in enumerate(columns) if is_wide or not column.is_wide]
    lines = [[columns[index].title for index in shown]]
    lines += [[sanitize(row[index]) for index in shown] for row in rows]
    width = shutil.get_terminal_size().columns - len(indent)
    if sys.stdout.isatty() and not is_wide and _width(lines, GAP) > width:
        _write_lines(*_narrowed([columns[index] for index in shown], lines, width), indent, NARROW_GAP)
    else:
        _write_lines([columns[index] for index in shown], lines, indent, GAP)


def write_list(
    columns: Sequence[ListColumn[Item, View]], items: Iterable[Item], view: View, *, is_wide: bool
) -> None:
    """Print a list in its own columns."""
    rows = ([column.output_text(item, view) for column in columns] for item in items)
    write_table([column.output for column in columns], rows, is_wide=is_wide)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]


def _width(lines: Sequence[Sequence[str]], gap: str) -> int:
    return sum(_widths(lines)) + len(gap) * (len(lines[0]) - 1)


def _narrowed(
    columns: Sequence[OutputColumn], lines: Sequence[Sequence[str]], width: int
) -> tuple[Sequence[OutputColumn], Sequence[Sequence[str]]]:
    """Shorten titles and cells, then drop columns from the right, until the lines fit."""
    head = [each.narrow_title or each.title for each in columns]
    body = [[each.narrow_cell(cell) for each, cell in zip(columns, line, strict=True)] for line in lines[1:]]
    lines = [head, *body]
    for place in reversed(range(len(columns))):
        if columns[place].is_optional and _width(lines, NARROW_GAP) > width:
            columns = [*columns[:place], *columns[place + 1 :]]
            lines = [[*line[:place], *line[place + 1 :]] for line in lines]
    return columns, lines


def _write_lines(
    columns: Sequence[OutputColumn], lines: Sequence[Sequence[str]], indent: str, gap: str
) -> None:
    widths = _widths(lines)
    for line in lines:
        cells = [
            pad(cell, width, each.align) for cell, width, each in zip(line, widths, columns, strict=True)
        ]
        write((indent + gap.join(cells)).rstrip())


def write_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values below each other; empty values are left out."""
    filled = [(name, sanitize(value)) for name, value in fields if value]
    width = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        write(f"{name + ':':{width + 1}}  {value}")


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask a yes-or-no question on the terminal; end of input is a no."""
    answer = _answer(f"{sanitize(question)} {'[Y/n]' if default else '[y/N]'} ")
    if answer is None:
        return False
    word = answer.lower()
    return word in ("y", "yes") or (default and not word)


def confirm_by_word(question: str, word: str) -> bool:
    """Ask for confirmation by typing `word` in full."""
    return _answer(f'{sanitize(question)}\nType "{sanitize(word)}" to continue: ') == word


def prompt_password(prompt: str) -> str:
    """Read a password without echo; empty at end of input."""
    with _ended_by_ctrl_c(), suppress(EOFError):
        return getpass.getpass(sanitize(prompt), sys.stderr)
    return ""


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    # asyncio would only note ctrl+c, and go on waiting for the answer.
    noting = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _is_ctrl_c_recorded():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, noting)


def _is_ctrl_c_recorded() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # outside asyncio nothing is only noted
        return False
    return task is not None and task.cancelling() > 0


def _answer(prompt: str) -> str | None:
    """Return the line typed after a prompt; None at end of input."""
    with _ended_by_ctrl_c():
        sys.stderr.write(prompt)
        sys.stderr.flush()
        answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        return None
    return answer.strip()


def is_interactive() -> bool:
    """Return True if a person can be prompted: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()
