"""CSV export of tables."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from k8s.text.sanitize import file_name, sanitize
from tui.settings.private_file import PrivateFile, make_private_folder

FOLDER = "saved"
# A spreadsheet runs such cells as formulas. Source: OWASP, "CSV Injection".
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_HARMLESS = re.compile(r"-|[-+]?[0-9]+(\.[0-9]+)?%?")

Cell = str | int | float | datetime | None
"""None is an empty cell."""


def table_csv(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Format a table as in RFC 4180: CRLF, quotes where needed, a header line.

    Times are ISO 8601 in UTC; a cell that would be a formula gets a leading apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([_cell(title) for title in columns])
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def save_table(
    state_folder: Path, view: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], now: datetime
) -> Path:
    """Write a table to a new private file `saved/<view>-<time>.csv`, and return its path.

    Raises:
        OSError: The file could not be written; no partial file remains.
    """
    folder = state_folder / FOLDER
    make_private_folder(folder)
    stem = f"{file_name(view)}-{now:%Y%m%d-%H%M%S}"
    with PrivateFile(folder / f"{stem}.csv") as private:
        private.file.write(table_csv(columns, rows).encode(errors="replace"))
        return private.replace(_free_path(folder, stem))


def _free_path(folder: Path, stem: str) -> Path:
    # Reserves the name with an empty file: two views may be saved within one second.
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
    return escape_formula("\n".join(sanitize(line) for line in value.split("\n")))


def escape_formula(text: str) -> str:
    """Prefix a cell with an apostrophe if a spreadsheet would run it as a formula."""
    is_formula = text.lstrip().startswith(_FORMULA) and not _HARMLESS.fullmatch(text)
    return f"'{text}" if is_formula else text
