"""Reproducible archive of a local code folder: equal contents give equal bytes.

Excluded are `.git` and everything that .gitignore files name, in the folder and above it up to the
repository's root. Links are stored as links; those that lead out of the folder are excluded and reported.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec
from pathspec import GitIgnoreSpec

from k8s.text.home import expand_home, read_named_file

LARGEST_FOLDER_BYTES = 256 * 2**20
"""Limit of the unpacked size."""
_NEVER = frozenset({".git", "__pycache__"})
# 1980-01-01 as every file's time, so that a fresh clone gives the same archive.
_EPOCH_S = 315_532_800


class FolderError(ValueError):
    """A folder that cannot be packed; the message is a full sentence."""


class PackedFolder(msgspec.Struct, frozen=True):
    """A packed folder."""

    archive: bytes
    """A gzipped tar without a leading folder."""
    files: int
    size_bytes: int
    left_out: tuple[str, ...]
    """Excluded links: those that lead out of the folder, or in a circle."""


class _Rules(msgspec.Struct, frozen=True):
    """A .gitignore and its folder."""

    folder: Path
    spec: GitIgnoreSpec


def pack_folder(path: str | Path, *, most_bytes: int = LARGEST_FOLDER_BYTES) -> PackedFolder:
    """Pack a folder.

    Raises:
        FolderError: The folder is missing, empty or too large, or a file in it cannot be read.
    """
    root = expand_home(path)
    try:
        if not root.is_dir():
            raise FolderError(f"{path} is not a folder." if root.exists() else f"There is no folder {path}.")
        root = root.resolve()
        entries = list(_walk(root, root, _rules_above(root)))
        left_out = tuple(
            _name(root, each) for each in entries if each.is_symlink() and _leads_out(root, each)
        )
        included = [each for each in entries if _name(root, each) not in left_out]
        size_bytes = sum(each.lstat().st_size for each in included if not each.is_symlink())
        if size_bytes > most_bytes:
            raise FolderError(
                f"{path} has {size_bytes / 2**20:,.0f} MiB; at most {most_bytes / 2**20:,.0f} MiB are sent. "
                "List files that are not code in .gitignore, and put data into a volume."
            )
        if not included:
            raise FolderError(f"{path} has no files to send.")
        return PackedFolder(_packed(root, included), len(included), size_bytes, left_out)
    except OSError as error:
        raise FolderError(f"Could not read {error.filename or path}: {error.strerror}.") from error


def _walk(root: Path, folder: Path, rules: tuple[_Rules, ...]) -> Iterator[Path]:
    # Sorted, so that the archive is reproducible.
    rules = (*rules, *_rules_in(folder))
    for each in sorted(folder.iterdir()):
        mode = each.lstat().st_mode
        if each.name in _NEVER or _is_ignored(each, stat.S_ISDIR(mode), rules):
            continue
        if stat.S_ISDIR(mode):
            yield from _walk(root, each, rules)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield each


def _rules_above(root: Path) -> tuple[_Rules, ...]:
    # Rules of the enclosing repository, the outermost first.
    above = [] if (root / ".git").exists() else [*root.parents]
    repository = next((each for each in above if (each / ".git").exists()), None)
    if repository is None:
        return ()
    between = [each for each in reversed(above) if each.is_relative_to(repository)]
    return tuple(rules for folder in between for rules in _rules_in(folder))


def _rules_in(folder: Path) -> tuple[_Rules, ...]:
    file = folder / ".gitignore"
    if not file.is_file():
        return ()
    lines = read_named_file(file).decode(errors="replace").splitlines()
    return (_Rules(folder, GitIgnoreSpec.from_lines(lines)),)


def _is_ignored(path: Path, is_folder: bool, rules: tuple[_Rules, ...]) -> bool:
    # The nearest .gitignore with a matching rule decides.
    for each in reversed(rules):
        inside = path.relative_to(each.folder).as_posix() + ("/" if is_folder else "")
        verdict = each.spec.check_file(inside).include
        if verdict is not None:
            return verdict
    return False


def _leads_out(root: Path, link: Path) -> bool:
    # Also true for links that lead out through other links, and for circular links.
    target = Path(os.readlink(link))
    if target.is_absolute() or not Path(os.path.normpath(link.parent / target)).is_relative_to(root):
        return True
    try:
        return not link.resolve().is_relative_to(root)
    except RuntimeError:  # Python 3.11 and 3.12 raise it for links that lead to themselves
        return True


def _name(root: Path, path: Path) -> str:
    return PurePosixPath(path.relative_to(root)).as_posix()


def _packed(root: Path, paths: list[Path]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=_EPOCH_S, filename="") as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in paths:
            member = tarfile.TarInfo(_name(root, path))
            member.mtime = _EPOCH_S
            if path.is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
                archive.addfile(member)
                continue
            content = read_named_file(path, LARGEST_FOLDER_BYTES)
            member.size = len(content)
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
