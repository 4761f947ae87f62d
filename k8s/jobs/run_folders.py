"""Folders that packaged trainers write to, one per run, so that none finds another's checkpoints.

Volumes of a cluster cannot be listed from outside, so a folder is named after the job and its
time of creation. Volumes that are local folders can be listed.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

# Subfolders with event files and checkpoints.
LOGS, CHECKPOINTS = "logs", "checkpoints"
MOST_FOLDERS = 10_000

_STAMP = re.compile(r"-\d{8}-\d{6}-\d{3}$")
_CHECKPOINT = re.compile(r"step-(\d{1,18})\.pt")
_FOLDER_FLAGS = {"--log-dir": LOGS, "--checkpoint-dir": CHECKPOINTS}


class RunFolder(msgspec.Struct, frozen=True):
    """Folder on a volume with checkpoints."""

    name: str
    job: str
    step: int
    saved_s: float
    """Time of its newest checkpoint, in seconds since 1970."""


def run_stamp(now: datetime) -> str:
    """Return a suffix that separates runs of jobs with one name, e.g. `20261122-082033-417`."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}"


def run_name(job: str, stamp: str) -> str:
    """Return the name of a run's folder, e.g. `digits-20261122-082033-417`."""
    return f"{job}-{stamp}" if stamp else job


def job_of_run(folder: str) -> str:
    """Return the job that a folder was created for; earlier versions used just its name."""
    return _STAMP.sub("", folder)


def list_runs(volume: Path) -> list[RunFolder]:
    """Return the folders of a volume that contain checkpoints, the newest first."""
    return sorted(_runs(volume), key=lambda run: run.saved_s, reverse=True)


def _runs(volume: Path) -> Iterator[RunFolder]:
    with suppress(OSError), os.scandir(volume) as entries:
        for _, entry in zip(range(MOST_FOLDERS), entries, strict=False):
            newest = max(_checkpoints(volume / entry.name / CHECKPOINTS), default=None)
            if newest is not None:
                yield RunFolder(entry.name, job_of_run(entry.name), *newest)


def _checkpoints(folder: Path) -> Iterator[tuple[int, float]]:
    # Yields step and time.
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if found := _CHECKPOINT.fullmatch(entry.name):
                yield int(found[1]), entry.stat().st_mtime


def moved_to_run(words: Sequence[str], source: str, run: str) -> list[str]:
    """Return the command of the job `source` with the folders of a new run.

    `--resume must` is dropped, as the new folder has no checkpoint.
    """
    moved: list[str] = []
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        takes_next = not equals and bool(left) and flag in (*_FOLDER_FLAGS, "--resume")
        if takes_next:
            value = left.pop(0)
        if flag == "--resume" and value == "must":
            continue
        if flag in _FOLDER_FLAGS and value:
            value = moved_folder(value, source, run, _FOLDER_FLAGS[flag])
        elif not takes_next:
            value, flag, equals = _renamed(flag + equals + value, source, run), "", ""
        moved += [flag, value] if takes_next else [f"{flag}{equals}{value}"]
    return moved


def moved_folder(path: str, source: str, run: str, leaf: str) -> str:
    """Return the folder of a new run for one that the job `source` writes to.

    `/workspace/bert/logs` becomes `/workspace/RUN/logs`; a custom `/mnt/saved` becomes `/mnt/saved/RUN`.
    """
    above, name = posixpath.split(path.rstrip("/"))
    further, parent = posixpath.split(above)
    if parent == source or _STAMP.search(parent):
        return posixpath.join(further, run, leaf)
    return posixpath.join(above if _STAMP.search(name) else path, run)


def _renamed(word: str, source: str, run: str) -> str:
    if "/" not in word:
        return word
    flag, equals, path = word.rpartition("=")
    return (
        f"{flag}{equals}{'/'.join(run if job_of_run(each) == source else each for each in path.split('/'))}"
    )
