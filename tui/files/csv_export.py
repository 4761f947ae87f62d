"""Keeps what a table shows as a CSV file: all its columns, as they stand, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from k8s.text.sanitize import sanitize
from tui.files.private_file import PrivateFile, make_private_folder

FOLDER = "saved"
"""Name of the folder in the state folder."""
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a cell begins that a spreadsheet would run. Source: OWASP, "CSV Injection"."""
_HARMLESS = re.compile(r"-|[-+]?[0-9]+(\.[0-9]+)?%?")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")

Cell = str | int | float | datetime | None
"""What a cell may hold; nothing is an empty cell."""


def table_csv(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table as RFC 4180 has it: CRLF, quotes where needed, a line of titles first.

    Times are written as ISO 8601 in UTC; a cell that would be a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([_cell(title) for title in columns])
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def save_table(
    state_folder: Path, view: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], now: datetime
) -> Path:
    """Write a table to a new file `saved/<view>-<time>.csv` that only its owner can read, and return it.

    Raises:
        OSError: It could not be written; nothing is left of it then.
    """
    folder = state_folder / FOLDER
    make_private_folder(folder)
    stem = f"{_UNFIT.sub('-', view).strip('-.')[:80] or 'view'}-{now:%Y%m%d-%H%M%S}"
    with PrivateFile(folder / f"{stem}.csv") as private:
        private.file.write(table_csv(columns, rows).encode(errors="replace"))
        return private.replace(_free_path(folder, stem))


def _free_path(folder: Path, stem: str) -> Path:
    """Take a name that is free, by an empty file: two views may be saved in one second."""
    number = 1
    while True:
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}.csv"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            number += 1
        else:
            return path


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not isinstance(value, str):
        return str(value)
    text = "\n".join(sanitize(line) for line in value.split("\n"))
    is_formula = text.lstrip().startswith(_FORMULA) and not _HARMLESS.fullmatch(text)
    return f"'{text}" if is_formula else text
