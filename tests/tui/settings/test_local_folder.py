"""A folder as one archive: what is in it, what is not, and that it is always the same."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from tui.settings.local_folder import FolderError, pack_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    (made / "sub").mkdir(parents=True)
    (made / "train.py").write_text("print(1)\n")
    (made / "sub" / "model.py").write_text("x = 1\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    return made


def packed(path: Path | str) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(pack_folder(path).archive), mode="r:gz") as archive:
        return {member.name: member for member in archive.getmembers()}


def test_equal_folders_make_equal_archives(folder: Path, tmp_path: Path) -> None:
    first = pack_folder(folder)
    copy = tmp_path / "copy"
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            target.chmod(path.stat().st_mode)
            os.utime(target, (1, 1))
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "train.pyc").write_bytes(b"x")
    (copy / ".git").mkdir()
    (copy / ".git" / "HEAD").write_text("ref")
    assert pack_folder(copy) == first
    assert (first.files, first.size_bytes, first.left_out) == (3, 25, ())
    (copy / "train.py").write_text("print(2)\n")
    assert pack_folder(copy).archive != first.archive


def test_an_archive_omits_owner_and_mtime_and_keeps_the_executable_bit(folder: Path) -> None:
    members = packed(folder)
    assert list(members) == ["run.sh", "sub/model.py", "train.py"]
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members.values()} == {(0, 0, "", "")}
    assert {each.mtime for each in members.values()} == {315_532_800}
    assert time.gmtime(315_532_800)[:3] == (1980, 1, 1)
    assert (members["run.sh"].mode, members["train.py"].mode) == (0o755, 0o644)


def test_the_archive_is_unpacked_by_the_tar_command(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    archive = pack_folder(folder).archive
    subprocess.run(["tar", "xzf", "-", "-C", str(target)], input=archive, check=True)
    assert (target / "sub" / "model.py").read_text() == "x = 1\n"


def test_gitignored_files_are_excluded_at_every_depth(folder: Path) -> None:
    (folder / ".gitignore").write_text("*.log\n!keep.log\n/top\nbuild/\n")
    (folder / "sub" / ".gitignore").write_text("!special.log\nprivate\n")
    for name in ("a.log", "keep.log", "top", "sub/top", "sub/special.log", "sub/b.log", "sub/private"):
        (folder / name).write_text("x")
    (folder / "build").mkdir()
    (folder / "build" / "keep.log").write_text("x")
    found = {*packed(folder)} - {"train.py", "run.sh", "sub/model.py", ".gitignore", "sub/.gitignore"}
    assert found == {"keep.log", "sub/top", "sub/special.log"}


def test_gitignore_rules_of_the_repository_apply_in_a_subfolder(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("/sub/secret\n*.bin\n")
    (folder.parent / ".gitignore").write_text("model.py\n")
    for name in ("secret", "w.bin"):
        (folder / "sub" / name).write_text("x")
    assert list(packed(folder / "sub")) == ["model.py"]


def test_the_packed_files_equal_those_listed_by_git(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text("data*/**/x?.py\n\\#a\n**/deep\n!sub/deep\nspaced\\ \n")
    for name in ("data1/a/x1.py", "data1/xy.py", "#a", "sub/deep", "other/deep", "spaced "):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    words = ["git", "-C", str(folder), "ls-files", "-z", "-o", "--exclude-standard"]
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert sorted(packed(folder)) == sorted(filter(None, listed.split("\0")))


def test_symlinks_out_of_the_folder_are_reported_and_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.mkdir()
    (outside / "key").write_text("K")
    links = {
        "inside": "train.py",
        "sub/up": "../train.py",
        "sub/loop": ".",
        "dangling": "nowhere",
        "out": "../secret",
        "file-out": str(outside / "key"),
        "sub/far": "../../secret/key",
        "sub/through": "../out/key",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    assert pack_folder(folder).left_out == ("file-out", "out", "sub/far", "sub/through")
    members = packed(folder)
    kept = {name: each.linkname for name, each in members.items() if each.issym()}
    assert kept == {name: links[name] for name in ("inside", "sub/up", "sub/loop", "dangling")}
    assert b"K" not in pack_folder(folder).archive or "key" not in members


def test_a_fifo_is_excluded_without_blocking(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "pipe" not in packed(folder)


def test_a_missing_empty_or_oversized_folder_is_rejected_with_a_message(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / "sub").mkdir(parents=True)
    sentences: dict[str | Path, str] = {
        tmp_path / "none": f"There is no folder {tmp_path / 'none'}.",
        folder / "train.py": f"{folder / 'train.py'} is not a folder.",
        empty: f"{empty} has no files to send.",
        "~nobody-of-this-name/code": "There is no folder ~nobody-of-this-name/code.",
    }
    for path, sentence in sentences.items():
        with pytest.raises(FolderError) as caught:
            pack_folder(path)
        assert str(caught.value) == sentence
    (folder / "big").write_bytes(bytes(3 * 2**20))
    with pytest.raises(
        FolderError, match=r"has 3 MiB; at most 1 MiB are sent\. List files that are not code"
    ):
        pack_folder(folder, most_bytes=2**20)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "train.py").chmod(0)
    with pytest.raises(FolderError, match=r"Could not read .*train\.py: Permission denied\."):
        pack_folder(folder)


def test_a_folder_is_found_by_relative_and_home_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    assert packed("code").keys() == packed("~/code").keys() == packed(folder).keys()


@pytest.mark.parametrize("links", [{"loop": "loop"}, {"a": "b", "b": "a"}, {"in": "sub/../in"}])
def test_cyclic_symlinks_are_excluded_and_reported(tmp_path: Path, links: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "sub").mkdir()
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    packed = pack_folder(tmp_path)
    assert (packed.files, packed.left_out) == (1, tuple(sorted(links)))


def test_a_folder_that_is_a_cyclic_symlink_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FolderError, match="no folder"):
        pack_folder(tmp_path / "loop")
