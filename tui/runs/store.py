"""Past runs, stored in the state folder so that they can be compared after their jobs are gone.

One line of JSON for each run, appended; of several lines of one run the last counts. Lines that cannot be
read are skipped and named. Several consoles may write at once.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from k8s.text.home import file_problem, read_named_file
from tui.runs.record import RunRecord
from tui.settings.private_file import make_private_folder, write_private_file

RUNS_FILE, LOCK_FILE = "runs.jsonl", "runs.lock"
# The oldest are dropped beyond these; the file is rewritten when it exceeds them by a quarter.
MAX_RUNS, MAX_BYTES = 2_000, 8 << 20
# A run with more settings is stored without its variables.
MAX_RECORD_BYTES = 32 << 10
# Another console holds the lock for milliseconds, unless it is stopped while it does.
LOCK_TRIES, LOCK_S = 50, 0.01
_Stamp = tuple[int, int, int]


class RunStore:
    """Past runs by UID; without a folder, they are only in memory."""

    def __init__(self, state_folder: Path | None = None) -> None:
        self._path = state_folder / RUNS_FILE if state_folder is not None else None
        self._runs: dict[str, RunRecord] | None = None
        self._stamp: _Stamp | None = None
        self.problems: Sequence[str] = ()
        """Descriptions of the records that could not be read."""

    def __contains__(self, uid: str) -> bool:
        """Return True if the end of the run was recorded, even if it has no loss."""
        found = self.get(uid)
        return found is not None and found.has_ended

    def get(self, uid: str) -> RunRecord | None:
        """Return the record of a run; None if there is none."""
        return self._known().get(uid)

    def find(self, uid: str) -> float | None:
        """Return the last loss of a run; None if it is unknown or the run has none."""
        found = self.get(uid)
        return found.loss if found is not None and not found.is_partial else None

    def records(self) -> list[RunRecord]:
        """Return all records of jobs that ran, as they are now in the file, the newest last."""
        self._refresh()
        return [each for each in self._known().values() if each.has_run]

    @property
    def size_bytes(self) -> int:
        """Return the size of the file; 0 if there is none."""
        with suppress(OSError):
            return self._path.stat().st_size if self._path is not None else 0
        return 0

    def add(self, record: RunRecord) -> None:
        """Store a record in place of an earlier one of the run. An unwritable folder is no error."""
        record = msgspec.structs.replace(record, problem="", seen_s=record.seen_s or time.time())
        if self._path is None:
            self._put(record)
            return
        with suppress(OSError):
            make_private_folder(self._path.parent)
            with self._locked():
                self._refresh()
                self._append(record)
                self._put(record)
                if self.size_bytes > MAX_BYTES * 1.25 or len(self._known()) > MAX_RUNS * 1.25:
                    self._rewrite()
                self._stamp = self._stamp_now()
                return
        self._put(record)

    def clear(self) -> int:
        """Delete all records and return how many there were.

        Raises:
            OSError: The file could not be deleted.
        """
        count = len(self.records())
        if self._path is not None:
            with self._locked():
                self._path.unlink(missing_ok=True)
        self._runs, self._stamp, self.problems = {}, None, ()
        return count

    def _put(self, record: RunRecord) -> None:
        runs = self._known()
        runs.pop(record.uid, None)
        runs[record.uid] = record
        if self._path is None and len(runs) > MAX_RUNS:
            del runs[next(iter(runs))]

    def _known(self) -> dict[str, RunRecord]:
        if self._runs is None:
            self._refresh()
        return self._runs if self._runs is not None else {}

    def _refresh(self) -> None:
        # Another console may have stored runs since.
        stamp = self._stamp_now()
        if self._runs is None or stamp != self._stamp:
            self._stamp = stamp
            self._runs, self.problems = _read(self._path) if self._path is not None else ({}, ())

    def _stamp_now(self) -> _Stamp | None:
        with suppress(OSError):
            found = self._path.stat() if self._path is not None else None
            return (found.st_ino, found.st_size, found.st_mtime_ns) if found is not None else None
        return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        assert self._path is not None
        held = os.open(self._path.with_name(LOCK_FILE), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(LOCK_TRIES):
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(LOCK_S)
                except OSError:  # a file system without locks, such as some Lustre mounts
                    break
                else:
                    break
            yield
        finally:
            os.close(held)

    def _append(self, record: RunRecord) -> None:
        assert self._path is not None
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(self._path, flags, 0o600), "rb+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            # The machine may have stopped in the middle of the last line.
            is_whole = not size or (file.seek(size - 1), file.read(1))[1] == b"\n"
            file.write((b"" if is_whole else b"\n") + _encode(record))

    def _rewrite(self) -> None:
        assert self._path is not None
        lines: list[bytes] = []
        left_bytes = MAX_BYTES
        for record in reversed(list(self._known().values())[-MAX_RUNS:]):
            line = _encode(record)
            left_bytes -= len(line)
            if left_bytes < 0:
                break
            lines.append(line)
        write_private_file(self._path, b"".join(reversed(lines)).decode())
        self._runs, self.problems = _read(self._path)


def _encode(record: RunRecord) -> bytes:
    line = msgspec.json.encode(record)
    if len(line) > MAX_RECORD_BYTES:
        line = msgspec.json.encode(msgspec.structs.replace(record, env={}, hparams={}, labels={}))
    if len(line) > MAX_RECORD_BYTES:
        line = msgspec.json.encode(msgspec.structs.replace(record, env={}, hparams={}, labels={}, best=()))
    return line + b"\n"


def _read(path: Path) -> tuple[dict[str, RunRecord], Sequence[str]]:
    try:
        lines = read_named_file(path, 4 * MAX_BYTES).split(b"\n")
    except FileNotFoundError:
        return {}, ()
    except OSError as error:
        return {}, (f"{path}: {file_problem(error)}",)
    runs: dict[str, RunRecord] = {}
    problems = []
    decoder = msgspec.json.Decoder(RunRecord)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problems.append(f"{path}, line {number}: {error}")
            continue
        runs.pop(record.uid, None)
        runs[record.uid] = record
    return runs, problems
