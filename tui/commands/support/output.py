"""Write results to stdout (tables, CSV, JSON, YAML) and the rest to stderr, and prompt.

Everything a command prints passes here, including text from files, folder names and the command
line, so that no control sequence reaches a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from k8s.text.sanitize import sanitize, sanitize_lines
from tui.text.cells import cell_len, pad
from tui.text.format import in_namespace

if TYPE_CHECKING:
    from k8s.snapshot import ClusterSnapshot, Missing
    from tui.tables.column import Item, ListColumn, OutputColumn, Values, View


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
    """Print part of the result, sanitized: what a pipe or file holds may reach a terminal later."""
    sys.stdout.write(f"{_clean(text)}\n")


def _clean(text: str) -> str:
    # Programs that read a pipe may need the tabs.
    return sanitize_lines(text) if sys.stdout.isatty() else "\t".join(map(sanitize_lines, text.split("\t")))


def write_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV, safe for spreadsheets and terminals."""
    import csv  # slow to import, and few ask for it

    from tui.settings.csv_export import escape_formula

    lines = csv.writer(sys.stdout, lineterminator="\n")
    clean = sanitize if sys.stdout.isatty() else _clean
    lines.writerows(
        [escape_formula(clean(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows
    )


def write_object(found: Any, form: str) -> None:
    """Print values as JSON or YAML in ASCII, with escapes for other characters."""
    if form == "yaml":
        from k8s.text.yaml_writer import to_yaml  # slow to import

        write(to_yaml(found).removesuffix("\n"))
    else:
        sys.stdout.write(f"{json.dumps(found, indent=2)}\n")  # ASCII, and often long


def write_table(
    columns: Sequence[OutputColumn], rows: Iterable[Sequence[str]], *, is_wide: bool = False, indent: str = ""
) -> None:
    """Print rows below their titles; each row has a cell for every column, wide ones included.

    On a terminal, a table without wide columns is narrowed to its width as far as its columns allow.
    """
    GrowingTable(columns, is_wide=is_wide, indent=indent).write(rows)


class GrowingTable:
    """A table whose rows may come one by one: later rows keep the widths of the first ones."""

    def __init__(self, columns: Sequence[OutputColumn], *, is_wide: bool = False, indent: str = "") -> None:
        self._columns, self._is_wide, self._indent = columns, is_wide, indent
        self._shown: list[int] = []
        """Indexes of the columns that are printed; empty before the first rows."""
        self._widths: list[int] = []
        self._is_narrow = False

    def write(self, rows: Iterable[Sequence[str]], *, has_titles: bool = True) -> None:
        """Print rows, below the titles if wanted."""
        cells = [[sanitize(cell) for cell in row] for row in rows]
        if not self._shown:
            self._lay_out(cells, has_titles=has_titles)
        lines = [self.line([column.title for column in self._columns], is_head=True)] if has_titles else []
        for line in (*lines, *map(self.line, cells)):
            widths = (max(known, cell_len(cell)) for known, cell in zip(self._widths, line, strict=True))
            gap = NARROW_GAP if self._is_narrow else GAP
            aligned = (
                pad(cell, width, self._columns[index].align)
                for cell, width, index in zip(line, widths, self._shown, strict=True)
            )
            write((self._indent + gap.join(aligned)).rstrip())

    def line(self, cells: Sequence[str], *, is_head: bool = False) -> list[str]:
        """Return the cells that are printed of a row, or of the titles."""
        columns = [self._columns[index] for index in self._shown]
        if not self._is_narrow:
            return [cells[index] for index in self._shown]
        if is_head:
            return [each.narrow_title or each.title for each in columns]
        return [each.narrow_cell(cells[index]) for each, index in zip(columns, self._shown, strict=True)]

    def _lay_out(self, cells: Sequence[Sequence[str]], *, has_titles: bool) -> None:
        """Choose columns and widths: shorten titles and cells, then drop columns, until the lines fit."""
        self._shown = [
            index for index, column in enumerate(self._columns) if self._is_wide or not column.is_wide
        ]
        width = shutil.get_terminal_size().columns - len(self._indent)

        def measure() -> int:
            head = [self.line([each.title for each in self._columns], is_head=True)] if has_titles else []
            lines = [*head, *map(self.line, cells)]
            self._widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
            gap = NARROW_GAP if self._is_narrow else GAP
            return sum(self._widths) + len(gap) * (len(self._widths) - 1)

        if measure() <= width or self._is_wide or not sys.stdout.isatty():
            return
        self._is_narrow = True
        for index in reversed(self._shown):
            if measure() > width and self._columns[index].is_optional:
                self._shown.remove(index)
        measure()


def write_list(
    columns: Sequence[ListColumn[Item, View]], items: Iterable[Item], view: View, *, is_wide: bool
) -> None:
    """Print a list in its own columns."""
    rows = ([column.output_text(item, view) for column in columns] for item in items)
    write_table([column.output for column in columns], rows, is_wide=is_wide)


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


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add `--yes`."""
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation; required in scripts"
    )


def check_can_confirm(flags: argparse.Namespace, verb: str) -> None:
    """Require `--yes` or a terminal.

    Raises:
        WrongUsage: There is neither.
    """
    if not flags.yes and not is_interactive():
        raise WrongUsage(f"Cannot ask for confirmation without a terminal: pass --yes to {verb}.")


def is_confirmed(flags: argparse.Namespace, question: str, word: str = "") -> bool:
    """Ask for confirmation unless `--yes` was given; with `word`, that word must be typed."""
    if flags.yes:
        return True
    return confirm_by_word(question, word) if word else confirm(question)


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


def write_items(items: Sequence[Values], missing: Sequence[Missing], form: str, **more: object) -> None:
    """Print a list as JSON or YAML; `partial` names the resources that are incomplete."""
    partial = {"partial": list(dict.fromkeys(resources_of(missing)))} if missing else {}
    write_object({"items": items, **more, **partial}, form)


def write_missing(missing: Sequence[Missing]) -> None:
    """Print the incomplete resources on stderr in one line; nothing if there are none."""
    if missing:
        write_stderr(missing_line(missing))


def no_jobs(snapshot: ClusterSnapshot, job_type: str = "") -> str:
    """Return the text for an empty list of jobs, or of jobs of one kind."""
    where = in_namespace(snapshot.namespace)
    return f"No jobs of type {job_type}{where}." if job_type else f"No jobs{where}."


def missing_line(missing: Sequence[Missing]) -> str:
    """Return the incomplete resources, and where the user may not list them."""
    names = dict(zip(missing, resources_of(missing), strict=True))
    sentences = [sanitize(each.words) for each in missing if each.verb == "read"]
    if hidden := [each for each in missing if not each.shown and each.verb != "read"]:
        namespaces = {each.namespace for each in hidden}
        where = in_namespace(namespaces.pop() if len(namespaces) == 1 else "")
        sentences.append(f"Not shown: {_joined(names, hidden)}; you may not list them{where}.")
    for namespace in dict.fromkeys(each.shown for each in missing if each.shown):
        narrowed = [each for each in missing if each.shown == namespace]
        sentences.append(
            f"Only in namespace {namespace}: {_joined(names, narrowed)}; you may not list them elsewhere."
        )
    return " ".join(sentences)


def resources_of(missing: Sequence[Missing]) -> list[str]:
    """Return resources by plural, with the group where two share one."""
    plurals = [each.resource.partition(".")[0] for each in missing]
    counts = Counter(plurals)
    return [
        each.resource if counts[plural] > 1 else plural for each, plural in zip(missing, plurals, strict=True)
    ]


def _joined(names: Mapping[Missing, str], missing: Sequence[Missing]) -> str:
    return ", ".join(names[each] for each in missing)
