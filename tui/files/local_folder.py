"""A local folder with code as one archive: the same bytes whenever the folder holds the same.

Left out is what .gitignore names, at every depth and above the folder up to the repository's root, and
.git itself. A link is sent as a link if it stays inside the folder; one that leads out is left out and named.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from k8s.text.home import expand_home

LARGEST_FOLDER_BYTES = 256 * 2**20
"""Files of a folder that may be sent, before they are packed."""
_NEVER = frozenset({".git", "__pycache__"})
_EPOCH_S = 315_532_800
"""1980-01-01, of every file: what a clone or a copy changes alone is no change."""


class FolderError(ValueError):
    """A folder that cannot be sent, in a sentence."""


@dataclass(frozen=True, slots=True)
class PackedFolder:
    """A folder as it is sent."""

    archive: bytes
    """A gzipped tar without a leading folder."""
    files: int
    """How many files and links it has."""
    size_bytes: int
    """Their contents."""
    left_out: tuple[str, ...]
    """Links that lead out of the folder."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """A .gitignore, and the folder whose paths it speaks of."""

    folder: Path
    spec: GitIgnoreSpec


def pack_folder(path: str | Path, *, most_bytes: int = LARGEST_FOLDER_BYTES) -> PackedFolder:
    """Pack a folder.

    Raises:
        FolderError: There is none, it is empty or too large, or a file in it cannot be read.
    """
    root = expand_home(path)
    try:
        if not root.is_dir():
            raise FolderError(f"{path} is no folder." if root.exists() else f"There is no folder {path}.")
        root = root.resolve()
        entries = list(_walk(root, root, _rules_above(root)))
        left_out = tuple(
            _name(root, each) for each in entries if each.is_symlink() and _leads_out(root, each)
        )
        kept = [each for each in entries if _name(root, each) not in left_out]
        size_bytes = sum(each.lstat().st_size for each in kept if not each.is_symlink())
        if size_bytes > most_bytes:
            raise FolderError(
                f"{path} has {size_bytes / 2**20:,.0f} MiB; at most {most_bytes / 2**20:,.0f} MiB are sent. "
                "Name what is no code in .gitignore, and put data into a volume."
            )
        if not kept:
            raise FolderError(f"{path} has no files to send.")
        return PackedFolder(_packed(root, kept), len(kept), size_bytes, left_out)
    except OSError as error:
        raise FolderError(f"Could not read {error.filename or path}: {error.strerror}.") from error


def _walk(root: Path, folder: Path, rules: tuple[_Rules, ...]) -> Iterator[Path]:
    """Yield the files and links to send below a folder, in an order that is always the same."""
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
    """Return the rules of the repository that a folder is in, the outermost first."""
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
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return (_Rules(folder, GitIgnoreSpec.from_lines(lines)),)


def _is_ignored(path: Path, is_folder: bool, rules: tuple[_Rules, ...]) -> bool:
    """Tell what the nearest .gitignore with an opinion says."""
    for each in reversed(rules):
        inside = path.relative_to(each.folder).as_posix() + ("/" if is_folder else "")
        verdict = each.spec.check_file(inside).include
        if verdict is not None:
            return verdict
    return False


def _leads_out(root: Path, link: Path) -> bool:
    """Tell whether a link names something outside, on whichever way."""
    target = Path(os.readlink(link))
    if target.is_absolute():
        return True
    return not Path(os.path.normpath(link.parent / target)).is_relative_to(root) or not (
        link.resolve().is_relative_to(root)
    )


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
            content = path.read_bytes()
            member.size = len(content)
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
