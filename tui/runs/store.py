"""Past runs in the journal, so that they can be compared after their jobs are gone."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from k8s.text.home import file_problem, read_named_file
from tui.runs.record import RunRecord

if TYPE_CHECKING:
    from tui.runs.journal.database import Journal
    from tui.settings.options import HistoryOptions

# The oldest are dropped beyond these.
MAX_RUNS = 2_000
# A run with more settings is stored without its variables.
MAX_RECORD_BYTES = 32 << 10
# Of earlier versions: a line of JSON for each run; moved into the journal.
OLD_FILE, OLD_BYTES = "runs.jsonl", 32 << 20
_PUT = "INSERT OR REPLACE INTO runs (uid, record, kept_s) VALUES (?, ?, ?)"
_DROP = "DELETE FROM runs WHERE seq IN (SELECT seq FROM runs ORDER BY seq DESC LIMIT -1 OFFSET ?)"


class RunStore:
    """Past runs by UID; without a folder, they are only in memory."""

    def __init__(self, state_folder: Path | None = None, history: HistoryOptions | None = None) -> None:
        self._folder, self._history = state_folder, history
        # Those that were asked for, or all, in order; None for one that is not stored.
        self._runs: dict[str, RunRecord | bytes | None] = {}
        self._has_all = self._has_moved = False
        self._version: object = None  # changes with the stored runs
        self._problems: list[str] = []

    @cached_property
    def journal(self) -> Journal:
        """The journal; slow to import, so it is opened on first use."""
        from tui.runs.journal.database import DEFAULT_HISTORY, Journal

        return Journal(self._folder, self._history or DEFAULT_HISTORY)

    @property
    def problems(self) -> Sequence[str]:
        """Return descriptions of what could not be read or stored."""
        return (*self.journal.problems, *self._problems)

    def __contains__(self, uid: str) -> bool:
        """Return True if the end of the run was recorded, even if it has no loss."""
        found = self.get(uid)
        return found is not None and found.has_ended

    def get(self, uid: str) -> RunRecord | None:
        """Return the record of a run; None if there is none, or it is damaged."""
        self._move_old()
        if uid not in self._runs and not self._has_all:
            rows = self.journal.rows("SELECT record FROM runs WHERE uid = ?", uid)
            self._runs[uid] = rows[0][0] if rows else None
        found = self._runs.get(uid)
        if isinstance(found, bytes):
            try:
                found = self._runs[uid] = msgspec.json.decode(found, type=RunRecord)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                self._problems.append(f"{self.journal.path}, run {uid}: {error}")
                found = self._runs[uid] = None
        return found

    def find(self, uid: str) -> float | None:
        """Return the last loss of a run; None if it is unknown or the run has none."""
        found = self.get(uid)
        return found.loss if found is not None and not found.is_partial else None

    def records(self) -> list[RunRecord]:
        """Return all records of jobs that ran, as they are now in the journal, the newest last."""
        self._move_old()
        version = self.journal.rows("SELECT max(seq), count(*) FROM runs")
        if not self._has_all or version != self._version:  # another console may have stored runs since
            self._runs = dict(self.journal.rows("SELECT uid, record FROM runs ORDER BY seq"))
            self._has_all, self._version = True, version
        found = map(self.get, list(self._runs))
        return [each for each in found if each is not None and each.has_run]

    def add(self, record: RunRecord) -> None:
        """Store a record in place of an earlier one of the run. An unwritable folder is no error."""
        record = msgspec.structs.replace(record, problem="", seen_s=record.seen_s or time.time())
        self._move_old()
        self.journal.keep((_PUT, record.uid, _encode(record), time.time()), (_DROP, MAX_RUNS))
        self._runs.pop(record.uid, None)
        self._runs[record.uid], self._version = record, None
        if len(self._runs) > MAX_RUNS:
            del self._runs[next(iter(self._runs))]

    def clear(self) -> int:
        """Delete the journal's entries and return how many runs there were.

        Raises:
            OSError: They could not be deleted.
        """
        count = len(self.records())
        if not self.journal.clear():
            raise OSError(0, self.journal.problems[-1])
        self._runs, self._problems, self._has_all = {}, [], False
        return count

    def _move_old(self) -> None:
        if self._has_moved:
            return
        self._has_moved = True
        path = self.journal.path.with_name(OLD_FILE) if self.journal.path is not None else None
        if path is None or not os.path.exists(path) or self.journal.history.is_off:
            return
        try:
            lines = read_named_file(path, OLD_BYTES).split(b"\n")
        except OSError as error:
            self._problems.append(f"{path}: {file_problem(error)}")
            return
        found: dict[str, RunRecord] = {}
        for number, line in enumerate(lines, 1):
            try:
                record = msgspec.json.decode(line, type=RunRecord) if line.strip() else None
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                self._problems.append(f"{path}, line {number}: {error}")
                continue
            if record is not None:
                found.pop(record.uid, None)
                found[record.uid] = record
        put, now_s = _PUT.replace("REPLACE", "IGNORE"), time.time()
        puts = [(put, uid, _encode(each), now_s) for uid, each in found.items()]
        if self.journal.write(*puts, (_DROP, MAX_RUNS)) and self.journal.is_on_disk:
            path.unlink(missing_ok=True)
            path.with_name("runs.lock").unlink(missing_ok=True)


def _encode(record: RunRecord) -> bytes:
    line = msgspec.json.encode(record)
    if len(line) > MAX_RECORD_BYTES:
        line = msgspec.json.encode(msgspec.structs.replace(record, env={}, hparams={}, labels={}))
    if len(line) > MAX_RECORD_BYTES:
        line = msgspec.json.encode(msgspec.structs.replace(record, env={}, hparams={}, labels={}, best=()))
    return line
