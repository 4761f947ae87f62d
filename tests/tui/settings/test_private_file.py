"""Files of the owner's alone: whole or not at all, in whatever state their folder is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

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
