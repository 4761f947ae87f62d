"""Keeps what was typed into the new-job form, so that a lost connection costs nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tui.files.private_file import write_private_file

FILE = "new-job-draft.json"
"""Name of the draft in the state folder."""
IMAGE_FILE = "last-image"
"""Name of the file with the image that was used last."""
LARGEST_BYTES = 4_000_000
"""A draft never comes near this; a larger file is not ours."""


class DraftProblem(Exception):
    """A draft could not be kept or read; the message says what, where and why."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A form as it was left."""

    texts: Mapping[str, str]
    """The answers, by the key of their question."""
    saved_s: float
    """When, in seconds since 1970."""


def keep_draft(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the draft, readable by its owner only; the one before it is replaced whole or not at all.

    Raises:
        DraftProblem: The folder cannot be written to.
    """
    body = json.dumps({"version": 1, "saved_s": time.time(), "texts": dict(texts)}, indent=1)
    _write(folder, FILE, body, "The draft could not be kept")


def read_draft(folder: Path) -> Draft | None:
    """Return the draft that was kept, if there is one.

    A file that is no draft is renamed, so that it is in nobody's way and not lost.

    Raises:
        DraftProblem: It cannot be read, or is no draft.
    """
    path = folder / FILE
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DraftProblem(f"The draft {path} could not be read: {error.strerror}.") from error
    try:
        return _decode(raw)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise DraftProblem(f"The draft {path} makes no sense. {_set_aside(path)}") from error


def drop_draft(folder: Path) -> None:
    """Remove the draft, if there is one and it can be removed."""
    with suppress(OSError):
        (folder / FILE).unlink()


def remembered_image(folder: Path) -> str:
    """Return the image that was used last, or nothing."""
    try:
        with (folder / IMAGE_FILE).open(encoding="utf-8") as file:
            return file.read(1000).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def remember_image(folder: Path, image: str) -> None:
    """Write down the image for the next form; without a place for it, it is forgotten."""
    with suppress(DraftProblem):
        _write(folder, IMAGE_FILE, image, "")


def _decode(raw: bytes) -> Draft:
    if len(raw) > LARGEST_BYTES:
        raise ValueError("too large")
    found = json.loads(raw)
    texts, saved_s = found["texts"], float(found["saved_s"])
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("not texts")
    return Draft(dict(texts), saved_s)


def _set_aside(path: Path) -> str:
    for number in range(1, 100):
        aside = path.with_name(f"{path.stem}.broken-{number}{path.suffix}")
        if not aside.exists():
            try:
                path.rename(aside)
            except OSError as error:
                return f"It could not be set aside: {error.strerror}."
            return f"It was set aside as {aside.name}."
    return "It is left where it is."


def _write(folder: Path, name: str, body: str, what: str) -> None:
    try:
        write_private_file(folder / name, body)
    except OSError as error:
        raise DraftProblem(f"{what} in {folder}: {error.strerror}.") from error
