"""Files that only their owner can read, whole or absent; and tables kept as CSV."""

from __future__ import annotations

import csv
import io
import os
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.text.sanitize import sanitize
from tui.settings.csv_export import save_table, table_csv
from tui.settings.private_file import PrivateFile, write_private_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_private_file_and_its_new_folder_are_accessible_only_by_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "state" / "draft.json"
    previous = os.umask(0)
    try:
        write_private_file(path, "größer\n")
    finally:
        os.umask(previous)
    assert path.read_text(encoding="utf-8") == "größer\n"
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert list(path.parent.iterdir()) == [path]


def test_overwriting_makes_the_file_private_and_keeps_the_mode_of_an_existing_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path, other = tmp_path / "draft.json", tmp_path / "other"
    path.write_text("a much longer text that was there before")
    path.chmod(0o644)
    other.write_text("other")
    write_private_file(path, "new")
    assert (path.read_text(), mode(path)) == ("new", 0o600)
    assert (other.read_text(), mode(tmp_path)) == ("other", 0o755)


def test_leftover_temporary_files_do_not_prevent_writing(tmp_path: Path) -> None:
    left = [tmp_path / f".draft.json-{name}" for name in ("", "abcd1234", "tmp")]
    for path in left:
        path.write_text("half of")
    write_private_file(tmp_path / "draft.json", "whole")
    assert (tmp_path / "draft.json").read_text() == "whole"
    assert sorted(tmp_path.iterdir()) == sorted([*left, tmp_path / "draft.json"])


def test_writing_replaces_a_symlink_and_keeps_its_target_unchanged(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "draft.json"
    target.write_text("somebody's")
    link.symlink_to(target)
    write_private_file(link, "mine")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("somebody's", "mine", False)


def test_an_unfinished_write_keeps_the_previous_file_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("before")
    with pytest.raises(ValueError, match="halfway"), PrivateFile(path) as private:
        private.file.write(b"half of")
        raise ValueError("halfway")
    with PrivateFile(path) as private:
        private.file.write(b"never placed")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_can_be_placed_under_another_name(tmp_path: Path) -> None:
    with PrivateFile(tmp_path / "view.csv") as private:
        private.file.write(b"rows")
        path = private.replace(tmp_path / "view-2.csv")
    assert (path.name, path.read_bytes(), mode(path)) == ("view-2.csv", b"rows", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(OSError, match="exists"):
        write_private_file(tmp_path / "state" / "draft.json", "text")


def test_an_unencodable_surrogate_is_replaced_and_the_rest_is_written(tmp_path: Path) -> None:
    write_private_file(tmp_path / "draft.json", "a\ud800b")
    assert (tmp_path / "draft.json").read_text() == "a?b"


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
