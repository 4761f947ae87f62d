"""The new-job form's draft and the last image, in a folder of the context that they are for."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.kinds.pod_code import without_login
from tui.files.private_file import write_private_file

FOLDER = "contexts"
"""Of the state folder: holds a folder for each context."""
FILE = "new-job-draft.json"
"""Name of the draft in a context's folder."""
_UNSAVED = "new-job-unsaved-"
"""How the file of an open form begins; its machine and the id of its process follow."""
_LEFT_S = 3600.0
"""So long without a change, the form of another machine with this home folder counts as left."""
IMAGE_FILE = "last-image"
"""Name of the file with the image of the last job there."""
LARGEST_BYTES = 4_000_000
"""Far more than any draft; a larger file is not ours."""

_GIT_PASSWORD = re.compile(r"^\s*GIT_SYNC_PASSWORD=.*\n?", re.MULTILINE)


class DraftError(Exception):
    """A draft could not be saved or read; the message says what, where and why."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A form as it was left."""

    values: Mapping[str, str]
    """The form's values, by key."""
    saved_s: float
    """When, in seconds since 1970."""


def context_folder(state_folder: Path, config: ClusterConfig) -> Path:
    """Return where a context has its draft and its last image.

    A server on this machine has another port each time, so there the name alone tells contexts apart.
    """
    server = "" if config.is_local else config.host
    mark = hashlib.sha256(f"{config.context}\n{server}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", config.context)[:60]
    return state_folder / FOLDER / f"{name}-{mark}"


def without_git_password(values: Mapping[str, str]) -> dict[str, str]:
    """Return values without the password of the repository, which is in no file of ours."""
    without = {"env": lambda text: _GIT_PASSWORD.sub("", text), "sync_source": without_login}
    return {key: without[key](text) if key in without else text for key, text in values.items()}


def save_draft(folder: Path, values: Mapping[str, str]) -> None:
    """Write the draft, readable by its owner only; the previous one is replaced whole or not at all.

    Raises:
        DraftError: The folder cannot be written to.
    """
    _write_values(folder, FILE, values)


def read_draft(folder: Path) -> Draft | None:
    """Return the draft, if there is one. A file that is no draft is renamed, not lost.

    Raises:
        DraftError: It cannot be read, or is no draft.
    """
    path = folder / FILE
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DraftError(f"Could not read the draft {path}: {error.strerror}.") from error
    try:
        return _decode(raw)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise DraftError(f"The draft {path} is not valid. {_set_aside(path)}") from error


class UnsavedValues:
    """What an open form holds, on the disk: the next form finds it where this process ends badly."""

    def __init__(self, folder: Path) -> None:
        """Keep it in the folder of a context."""
        self._folder = folder
        self._name = f"{_UNSAVED}{_machine()}-{os.getpid()}.json"
        self._lock = Lock()
        self._is_over = False

    def keep(self, values: Mapping[str, str]) -> None:
        """Write the values, unless the form is closed; to be called in a thread.

        Raises:
            DraftError: The folder cannot be written to.
        """
        with self._lock:
            if not self._is_over:
                _write_values(self._folder, self._name, values)

    def forget(self) -> None:
        """Remove them: the form was closed, and what was to be saved is."""
        with self._lock:
            self._is_over = True
            with suppress(OSError):
                (self._folder / self._name).unlink()


def recover_draft(folder: Path) -> None:
    """Make a draft of what a form held whose process is gone, if there is such; a failure is ignored."""
    with suppress(OSError):
        left = [path for path in folder.glob(f"{_UNSAVED}*.json") if not _is_alive(path)]
        for path in sorted(left, key=lambda each: each.stat().st_mtime):
            path.replace(folder / FILE)


def _is_alive(unsaved: Path) -> bool:
    machine, _, number = unsaved.stem.removeprefix(_UNSAVED).rpartition("-")
    if machine != _machine():  # whose processes are not seen from here
        return time.time() - unsaved.stat().st_mtime < _LEFT_S
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _machine() -> str:
    """Return this machine's name, as part of a file's: login nodes may share the home folder."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", socket.gethostname())


def delete_draft(folder: Path) -> None:
    """Delete the draft; a failure is ignored."""
    with suppress(OSError):
        (folder / FILE).unlink()


def last_image(folder: Path) -> str:
    """Return the image of the last job; empty where none is known."""
    try:
        with (folder / IMAGE_FILE).open(encoding="utf-8") as file:
            return file.read(1000).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def save_last_image(folder: Path, image: str) -> None:
    """Save the image for the next form; a failure is ignored."""
    with suppress(DraftError):
        _write(folder, IMAGE_FILE, image, "")


def _decode(raw: bytes) -> Draft:
    if len(raw) > LARGEST_BYTES:
        raise ValueError("too large")
    body = json.loads(raw)
    values, saved_s = body["texts"], float(body["saved_s"])
    if not all(isinstance(value, str) for value in values.values()):
        raise ValueError("not texts")
    return Draft(dict(values), saved_s)


def _set_aside(path: Path) -> str:
    for number in range(1, 100):
        aside = path.with_name(f"{path.stem}.broken-{number}{path.suffix}")
        if not aside.exists():
            try:
                path.rename(aside)
            except OSError as error:
                return f"It could not be renamed: {error.strerror}."
            return f"It was renamed to {aside.name}."
    return "It was left in place."


def _write_values(folder: Path, name: str, values: Mapping[str, str]) -> None:
    texts = without_git_password(values)
    body = json.dumps({"version": 1, "saved_s": time.time(), "texts": texts}, indent=1)
    _write(folder, name, body, "Could not save the draft")


def _write(folder: Path, name: str, body: str, what: str) -> None:
    try:
        write_private_file(folder / name, body)
    except OSError as error:
        raise DraftError(f"{what} in {folder}: {error.strerror}.") from error
