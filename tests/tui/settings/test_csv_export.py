"""Tables kept as CSV: every cell is found again, and none is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.text.sanitize import sanitize
from tui.settings.csv_export import save_table, table_csv

NOW = datetime(2026, 11, 21, 20, 0, 5)
TITLES = ("NAME", "GPUS")


def test_a_table_is_written_as_rfc_4180_csv() -> None:
    rows = [("bert", 8), ('a "b", c', None), ("two\nlines", 1.5)]
    text = table_csv(TITLES, rows)
    assert text == 'NAME,GPUS\r\nbert,8\r\n"a ""b"", c",\r\n"two\nlines",1.5\r\n'


def test_times_are_written_so_that_every_program_reads_them() -> None:
    at = datetime(2026, 11, 21, 22, 0, tzinfo=timezone(timedelta(hours=2)))
    assert table_csv(("AT",), [(at,)]) == "AT\r\n2026-11-21T20:00:00Z\r\n"


def test_formula_cells_are_escaped_in_csv() -> None:
    for cell in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", " =1", "\ufe0f=1", "\uff1d1"]:
        assert next(csv.reader(io.StringIO(table_csv((cell,), []))))[0].startswith("'")


def test_a_number_is_no_formula() -> None:
    for cell in ["-1.5", "+3", "-20%", "bert-base", "–", "-"]:
        assert next(csv.reader(io.StringIO(table_csv((cell,), [])))) == [cell]


@given(rows=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=5))
def test_any_cells_form_valid_csv_without_formulas_or_control_characters(rows: list[tuple[str, str]]) -> None:
    text = table_csv(TITLES, rows)
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert [len(row) for row in found] == [2] * (len(rows) + 1)
    for row in found[1:]:
        for cell in row:
            assert not cell.lstrip().startswith(("=", "@"))
            assert all(sanitize(line) == line for line in cell.split("\n"))


def test_a_table_is_saved_to_a_private_file_named_by_view_and_time(tmp_path: Path) -> None:
    path = save_table(tmp_path / "state", "jobs /../all: mine", TITLES, [("a", 1)], NOW)
    assert path == tmp_path / "state/saved/jobs-..-all-mine-20261121-200005.csv"
    assert path.read_bytes() == b"NAME,GPUS\r\na,1\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_tables_saved_in_the_same_second_get_different_file_names(tmp_path: Path) -> None:
    first = save_table(tmp_path, "jobs", TITLES, [("a", 1)], NOW)
    second = save_table(tmp_path, "jobs", TITLES, [("b", 2)], NOW)
    assert (first.name, second.name) == ("jobs-20261121-200005.csv", "jobs-20261121-200005-2.csv")
    assert sorted(each.name for each in first.parent.iterdir()) == [second.name, first.name]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> object:
        yield ("a", 1)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        save_table(tmp_path, "jobs", TITLES, broken(), NOW)  # type: ignore[arg-type]
    assert list((tmp_path / "saved").iterdir()) == []
