"""The folders that packaged trainers write to: one for each job, so that none finds another's checkpoints.

Nobody can look into a cluster's volume from outside, so a folder is named after the job and
the moment it was made. Volumes that are folders of this machine can be looked into.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LOGS, CHECKPOINTS = "logs", "checkpoints"
"""What lies in a run's folder: event files, and checkpoints."""
MOST_FOLDERS = 10_000
"""Entries of a volume that are looked at."""

_STAMP = re.compile(r"-\d{8}-\d{6}-\d{3}$")
_CHECKPOINT = re.compile(r"step-(\d{1,18})\.pt")
_FOLDER_FLAGS = {"--log-dir": LOGS, "--checkpoint-dir": CHECKPOINTS}


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder on a volume that holds checkpoints."""

    name: str
    """Of the folder."""
    job: str
    """Name of the job that it was made for."""
    step: int
    """Of its newest checkpoint."""
    saved_s: float
    """When that was written, in seconds since 1970."""


def run_stamp(now: datetime) -> str:
    """Return what tells apart the runs of jobs that have one name: `20261122-082033-417`."""
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}"


def run_name(job: str, stamp: str) -> str:
    """Return the name of a job's own folder: `digits-20261122-082033-417`."""
    return f"{job}-{stamp}" if stamp else job


def job_of_run(folder: str) -> str:
    """Return the job that a folder was made for; folders of earlier versions bear just its name."""
    return _STAMP.sub("", folder)


def list_runs(volume: Path) -> list[RunFolder]:
    """Return the folders of a volume that hold checkpoints, the one written last first."""
    return sorted(_runs(volume), key=lambda run: run.saved_s, reverse=True)


def _runs(volume: Path) -> Iterator[RunFolder]:
    with suppress(OSError), os.scandir(volume) as entries:
        for _, entry in zip(range(MOST_FOLDERS), entries, strict=False):
            newest = max(_checkpoints(volume / entry.name / CHECKPOINTS), default=None)
            if newest is not None:
                yield RunFolder(entry.name, job_of_run(entry.name), *newest)


def _checkpoints(folder: Path) -> Iterator[tuple[int, float]]:
    """Yield step and time of each checkpoint in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if found := _CHECKPOINT.fullmatch(entry.name):
                yield int(found[1]), entry.stat().st_mtime


def moved_to_run(words: Sequence[str], like: str, run: str) -> list[str]:
    """Return the words of a trainer's command so that it writes to folders of a run of its own.

    `--resume must` goes: in an empty folder there is nothing to go on from.

    Args:
        words: Of the command of the job `like`.
        like: Its name.
        run: Name of the new run's folder.
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
            value = moved_folder(value, like, run, _FOLDER_FLAGS[flag])
        elif not takes_next:
            value, flag, equals = _renamed(flag + equals + value, like, run), "", ""
        moved += [flag, value] if takes_next else [f"{flag}{equals}{value}"]
    return moved


def moved_folder(path: str, like: str, run: str, leaf: str) -> str:
    """Return the folder of a new run in place of one that the job `like` writes to.

    `/workspace/bert/logs` becomes `/workspace/RUN/logs`; where `/mnt/saved` was chosen, `/mnt/saved/RUN`.
    """
    above, name = posixpath.split(path.rstrip("/"))
    further, parent = posixpath.split(above)
    if parent == like or _STAMP.search(parent):
        return posixpath.join(further, run, leaf)
    return posixpath.join(above if _STAMP.search(name) else path, run)


def _renamed(word: str, like: str, run: str) -> str:
    """Return a path with the folder of the job `like` replaced."""
    if "/" not in word:
        return word
    flag, equals, path = word.rpartition("=")
    return f"{flag}{equals}{'/'.join(run if job_of_run(each) == like else each for each in path.split('/'))}"
