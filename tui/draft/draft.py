"""Drafts of the new-job form and the last image, in one folder per context."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from uuid import uuid4

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.kinds.pod_code import strip_credentials
from k8s.text.sanitize import file_name
from tui.draft.fields import without_replaced
from tui.settings.private_file import make_private_folder, write_private_file

FOLDER = "contexts"
FILE = "new-job-draft.json"
# Files of an open form: its values, its draft, its lock; the id of the form follows.
_UNSAVED, _SAVED, _OPEN = "new-job-unsaved-", "new-job-saved-", "new-job-open-"
# On a file system without locks, a form unchanged for so long counts as closed.
_LEFT_S = 3600.0
IMAGE_FILE = "last-image"
LARGEST_BYTES = 4_000_000

_GIT_PASSWORD = re.compile(r"^\s*GIT_SYNC_PASSWORD=.*\n?", re.MULTILINE)


class DraftError(Exception):
    """A draft could not be saved or read; the message says what, where and why."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Values of a form that was closed."""

    values: Mapping[str, str]
    saved_s: float
    """Seconds since 1970."""
    path: Path


def context_folder(state_folder: Path, config: ClusterConfig) -> Path:
    """Return the folder of a context, for its draft and its last image.

    The port of a server on this machine changes, so only the name tells such contexts apart.
    """
    server = "" if config.is_local else config.host
    mark = hashlib.sha256(f"{config.context}\n{server}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = file_name(config.context.replace("_", "-"), 60)
    return state_folder / FOLDER / f"{name}-{mark}"


def without_git_password(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values without the password of the repository, which must not be stored."""
    without = {"env": lambda text: _GIT_PASSWORD.sub("", text), "sync_source": strip_credentials}
    return {key: without[key](text) if key in without else text for key, text in values.items()}


def read_draft(folder: Path) -> Draft | None:
    """Return the newest draft that no open form holds; None if there is none. An invalid one is renamed.

    Raises:
        DraftError: The draft cannot be read or is invalid.
    """
    drafts = (path for path in folder.glob("new-job-draft*.json") if ".broken-" not in path.name)
    try:
        path = max(drafts, key=lambda each: each.stat().st_mtime, default=folder / FILE)
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DraftError(f"Could not read the draft in {folder}: {error.strerror}.") from error
    try:
        return _decode(raw, path)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise DraftError(f"The draft {path} is not valid. {_set_aside(path)}") from error


class OpenForm:
    """Files of one open form: its autosaved values, and the draft that it saved or resumed.

    An open form holds a lock, which the kernel releases with the process, so that other consoles can tell it
    from one that crashed.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare the file names in the folder of a context; nothing is written yet."""
        self._folder = folder
        self._id = uuid4().hex
        self._unsaved, self._saved, self._lock_file = _files_of(folder, self._id)
        self._lock = Lock()
        self._is_over = False
        self._held: int | None = None

    def keep(self, values: Mapping[str, str]) -> None:
        """Autosave the values; blocks, so call it in a thread.

        Raises:
            DraftError: The folder is not writable.
        """
        self._write(self._unsaved, values)

    def save(self, values: Mapping[str, str]) -> None:
        """Save the values as the draft of this form.

        Raises:
            DraftError: The folder is not writable.
        """
        self._write(self._saved, values)

    def resume(self, draft: Draft) -> None:
        """Take over a draft, unless another console was faster."""
        with self._lock, suppress(OSError):
            self._hold()
            draft.path.replace(self._saved)

    def delete_draft(self) -> None:
        """Delete the draft of this form; failures are ignored."""
        with suppress(OSError):
            self._saved.unlink()

    def close(self) -> None:
        """Leave only the draft, for the next form."""
        with self._lock:
            self._is_over = True
            with suppress(OSError):
                self._unsaved.unlink(missing_ok=True)
                _leave(self._folder, self._id)
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def _write(self, path: Path, values: Mapping[str, str]) -> None:
        with self._lock:
            if not self._is_over:
                with suppress(OSError):  # a folder that cannot be written to is reported below
                    self._hold()
                _write_values(self._folder, path.name, values)

    def _hold(self) -> None:
        if self._held is None:
            make_private_folder(self._folder)
            self._held = os.open(self._lock_file, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def recover_draft(folder: Path) -> None:
    """Turn the values of forms whose console has died into drafts; failures are ignored."""
    with suppress(OSError):
        left = [path for mark in (_SAVED, _UNSAVED) for path in folder.glob(f"{mark}*.json")]
        for path in sorted(left, key=lambda each: each.stat().st_mtime):
            form = path.stem.removeprefix(_SAVED).removeprefix(_UNSAVED)
            with _files_of(folder, form)[-1].open("ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                except OSError:  # a file system without locks, such as some Lustre mounts
                    if time.time() - path.stat().st_mtime < _LEFT_S:
                        continue
                _leave(folder, form)


def _files_of(folder: Path, form: str) -> tuple[Path, Path, Path]:
    return folder / f"{_UNSAVED}{form}.json", folder / f"{_SAVED}{form}.json", folder / f"{_OPEN}{form}.lock"


def _leave(folder: Path, form: str) -> None:
    # The newest values of the form become a draft, beside those of other forms.
    unsaved, saved, lock = _files_of(folder, form)
    for path in (unsaved, saved):
        if path.exists():
            free = folder / FILE
            path.replace(free.with_stem(f"{free.stem}-{form}") if free.exists() else free)
            break
    for path in (saved, lock):
        path.unlink(missing_ok=True)


def discard_draft(draft: Draft) -> None:
    """Delete a draft that another one replaces; failures are ignored."""
    with suppress(OSError):
        draft.path.unlink()


def last_image(folder: Path) -> str:
    """Return the image of the last job; empty if unknown."""
    try:
        with (folder / IMAGE_FILE).open(encoding="utf-8") as file:
            return file.read(1000).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def save_last_image(folder: Path, image: str) -> None:
    """Save the image for the next form; failures are ignored."""
    with suppress(DraftError):
        _write(folder, IMAGE_FILE, image, "")


def _decode(raw: bytes, path: Path) -> Draft:
    if len(raw) > LARGEST_BYTES:
        raise ValueError("too large")
    body = json.loads(raw)
    values, saved_s = body["texts"], float(body["saved_s"])
    if not all(isinstance(value, str) for value in values.values()):
        raise ValueError("not texts")
    return Draft(without_replaced(values), saved_s, path)


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
