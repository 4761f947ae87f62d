"""Last losses of ended jobs, stored in the state folder for the next console."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from k8s.text.home import read_named_file
from tui.files.private_file import write_private_file

LOSSES_FILE = "losses.json"
# The oldest are dropped beyond this number.
MAX_JOBS = 2_000


class LastLosses:
    """Last losses by job UID; without a folder, they are only in memory."""

    def __init__(self, state_folder: Path | None = None) -> None:
        self._path = state_folder / LOSSES_FILE if state_folder is not None else None
        self._losses: dict[str, float | None] | None = None

    def __contains__(self, uid: str) -> bool:
        """Return True if the end of the job's log was read, even if it has no loss."""
        return uid in self._known()

    def find(self, uid: str) -> float | None:
        """Return the last loss of an ended job; None if it is unknown or the job has none."""
        return self._known().get(uid)

    def store(self, uid: str, loss: float | None) -> None:
        """Store the last loss of a job; None if it has none."""
        # Read again: another console may have stored losses since.
        losses = self._known() | self._read()
        losses.pop(uid, None)
        losses[uid] = loss
        self._losses = dict(list(losses.items())[-MAX_JOBS:])
        if self._path is not None:
            with suppress(OSError):
                write_private_file(self._path, json.dumps(self._losses))

    def _known(self) -> dict[str, float | None]:
        if self._losses is None:
            self._losses = self._read()
        return self._losses

    def _read(self) -> dict[str, float | None]:
        # An unreadable file counts as empty, and is replaced when a loss is stored.
        try:
            found = json.loads(read_named_file(self._path)) if self._path is not None else {}
        except (OSError, ValueError, RecursionError):
            found = {}
        pairs = found.items() if isinstance(found, dict) else ()
        return {
            uid: None if loss is None else float(loss)
            for uid, loss in pairs
            if loss is None or (isinstance(loss, int | float) and not isinstance(loss, bool))
        }
