"""The user's journal: runs and logs that outlive their jobs, in one SQLite database in the state folder.

Several consoles may have it open. What cannot be read or written is left out, and `problems` says why.
"""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from k8s.text.home import file_problem
from tui.settings.options import HistoryOptions
from tui.settings.private_file import make_private_folder

Found = TypeVar("Found")
JOURNAL_FILE = "journal.db"
NOT_KEPT = "; what happens now is not kept"
DEFAULT_HISTORY = HistoryOptions()
# Seconds between two checks of the bounds, and pages that are freed at a time.
PRUNE_EVERY_S, FREED_PAGES = 300.0, 256
# Another console writes for milliseconds.
LOCK_S = 0.5
# Transactions to hold while the disk is full.
MAX_UNWRITTEN = 256
# Names of file systems that machines share, where SQLite's WAL does not work.
SHARED = ("nfs", "lustre", "gpfs", "beegfs", "cifs", "smb", "ceph", "fuse.", "9p", "afs", "wekafs")
# From each version of the schema to the next.
MIGRATIONS = (
    (
        "CREATE TABLE runs (seq INTEGER PRIMARY KEY AUTOINCREMENT,"
        " uid TEXT NOT NULL UNIQUE, record BLOB NOT NULL)",
        "CREATE TABLE logs (uid TEXT NOT NULL, pod TEXT NOT NULL, container TEXT NOT NULL,"
        " target BLOB NOT NULL, kept_s REAL NOT NULL, is_partial INTEGER NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (uid, pod, container))",
        "CREATE INDEX logs_by_age ON logs (kept_s)",
    ),
    (
        # Times are in seconds since 1970, UIDs are those of jobs.
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, context TEXT NOT NULL, uid TEXT NOT NULL,"
        " namespace TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, api_version TEXT NOT NULL,"
        " user TEXT NOT NULL, created_s REAL, is_mine INTEGER NOT NULL, last_change INTEGER NOT NULL,"
        " UNIQUE (context, uid))",
        # Happened at `at_s`; if that is not known exactly, after `after_s`.
        "CREATE TABLE changes (id INTEGER PRIMARY KEY, job INTEGER NOT NULL, at_s REAL NOT NULL,"
        " after_s REAL, status TEXT NOT NULL, reason TEXT NOT NULL, cause TEXT NOT NULL DEFAULT '',"
        " alerts TEXT NOT NULL, restarts INTEGER NOT NULL, gpus_held INTEGER NOT NULL,"
        " gpus_waiting INTEGER NOT NULL, nodes TEXT NOT NULL)",
        "CREATE INDEX changes_by_job ON changes (job)",
        "CREATE INDEX changes_by_age ON changes (at_s)",
        # Namespace is empty for all; observer is `console` or `record`, and the process.
        "CREATE TABLE observed (id INTEGER PRIMARY KEY, context TEXT NOT NULL, namespace TEXT NOT NULL,"
        " observer TEXT NOT NULL, from_s REAL NOT NULL, to_s REAL NOT NULL)",
        "CREATE INDEX observed_by_age ON observed (to_s)",
        "ALTER TABLE runs ADD COLUMN kept_s REAL NOT NULL DEFAULT 0",
        "UPDATE runs SET kept_s = strftime('%s', 'now')",
        "CREATE INDEX runs_by_age ON runs (kept_s)",
        # GPU-seconds for which telemetry was read, and those without use, by hour and observer.
        "CREATE TABLE idle (job INTEGER NOT NULL, hour_s INTEGER NOT NULL, observer TEXT NOT NULL,"
        " seen_gpu_s REAL NOT NULL, idle_gpu_s REAL NOT NULL, PRIMARY KEY (job, hour_s, observer))",
        "CREATE INDEX idle_by_age ON idle (hour_s)",
        "CREATE TABLE events (event_uid TEXT PRIMARY KEY, uid TEXT NOT NULL, last_s REAL NOT NULL,"
        " body BLOB NOT NULL)",
        "CREATE INDEX events_by_job ON events (uid, last_s)",
        "CREATE INDEX events_by_age ON events (last_s)",
        "CREATE TABLE curves (uid TEXT NOT NULL, tag TEXT NOT NULL, kept_s REAL NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (uid, tag))",
        "CREATE INDEX curves_by_age ON curves (kept_s)",
        "CREATE TABLE notices (context TEXT NOT NULL, key TEXT NOT NULL, at_s REAL NOT NULL,"
        " body BLOB NOT NULL, PRIMARY KEY (context, key))",
        "CREATE TABLE choices (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    ),
)
# Of a job that has not ended, the newest change is its state.
_IS_OLD = (
    " AND (status IN ('Succeeded', 'Failed', 'Deleted') OR EXISTS (SELECT 1 FROM changes AS later"
    " WHERE later.job = found.job AND later.id > found.id))"
)
_IS_UNUSED = "".join(
    f" AND NOT EXISTS (SELECT 1 FROM {table} WHERE job = found.id)" for table in ("changes", "idle")
)
# Table, time of its rows, rows to delete at a time, and a further condition, in the order in which they go.
_BOUNDED = (
    ("logs", "kept_s", 16, ""),
    ("curves", "kept_s", 64, ""),
    ("events", "last_s", 1_000, ""),
    ("notices", "at_s", 1_000, ""),
    ("idle", "hour_s", 1_000, ""),
    ("changes", "at_s", 1_000, _IS_OLD),
    ("jobs", "ifnull(created_s, 0)", 1_000, _IS_UNUSED),
    ("observed", "to_s", 1_000, ""),
    ("runs", "kept_s", 64, ""),
)
_DELETE_OLDEST = tuple(
    f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} AS found WHERE {time_s} < ?{condition}"
    f" ORDER BY {time_s} LIMIT {count})"
    for table, time_s, count, condition in _BOUNDED
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MAY_PASS = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY),
    sqlite3.SQLITE_CANTOPEN,
)


def observer_name(observer: str) -> str:
    """Return the name of this process as an observer: `console 4711@login-1`."""
    return f"{observer} {os.getpid()}@{socket.gethostname()}"


class _OutOfReach(sqlite3.OperationalError):
    sqlite_errorcode = sqlite3.SQLITE_CANTOPEN


class Journal:
    """One connection to the journal, for any thread; without a folder it is in memory."""

    def __init__(self, state_folder: Path | None = None, history: HistoryOptions = DEFAULT_HISTORY) -> None:
        """Open nothing until the first use. If the history is off, all but the choices are in memory."""
        self.path = state_folder / JOURNAL_FILE if state_folder is not None else None
        self.history = history
        self.problems: list[str] = []
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._was_on_disk = False
        self._pruned_s = 0.0
        self._error = 0  # code of the last one
        self._passing = set[str]()  # problems until the next write
        self._unwritten: deque[tuple[tuple[object, ...], ...]] = deque(maxlen=MAX_UNWRITTEN)
        self._lock, self._keep_lock = RLock(), RLock()

    def reopened(self) -> Journal:
        """Return another connection to it, for long transactions; in memory, one to a new journal."""
        found = Journal(self.path.parent if self.path is not None else None, self.history)
        found.problems = self.problems
        found._unwritten, found._keep_lock = self._unwritten, self._keep_lock
        found._was_on_disk = self._was_on_disk
        return found

    @property
    def size_bytes(self) -> int:
        """Return the size of the database and what is not merged into it yet; 0 if there is none."""
        found = 0
        for path in _files(self.path) if self.path is not None else ():
            with suppress(OSError):
                found += path.stat().st_size
        return found

    @property
    def version(self) -> int:
        """Return a number that changes when another connection has written."""
        return self._pragma("data_version")

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows that a query finds; none if the journal cannot be read."""
        return self._run(lambda found: found.execute(query, values).fetchall(), [])

    def write(self, *statements: tuple[object, ...]) -> bool:
        """Execute statements, each followed by its values, in one transaction; False if that failed."""

        def execute(connection: sqlite3.Connection) -> bool:
            for statement, *values in statements:
                connection.execute(str(statement), values)
            return True

        return self.transact(execute) is not None

    def keep(self, *statements: tuple[object, ...]) -> None:
        """Write statements that may be repeated; on a full disk, at a later call, also of `reopened` ones."""
        with self._keep_lock:
            self._unwritten.extend([statements] if statements else [])
            while self._unwritten and (self.write(*self._unwritten[0]) or self._error not in _MAY_PASS):
                self._unwritten.popleft()

    def transact(self, use: Callable[[sqlite3.Connection], Found]) -> Found | None:
        """Call `use` in a transaction; return its result, or None if that failed."""

        def execute(connection: sqlite3.Connection) -> Found | None:
            with _transaction(connection):
                return use(connection)

        if (found := self._run(execute, None)) is not None:
            self.problems[:] = [each for each in self.problems if each not in self._passing]
            self._passing.clear()
        return found

    @property
    def is_begun(self) -> bool:
        """Return True if it is open or its file exists: until then nothing is there to be read."""
        return self._connection is not None or self.path is None or self._inode_now() > 0

    @property
    def is_on_disk(self) -> bool:
        """Return True if the journal is a file, and not in memory because it could not be opened."""
        return bool(self.rows("SELECT 1") and self._inode)

    def prune(self, now_s: float | None = None) -> None:
        """Delete the oldest rows until age and size are within their bounds; slow.

        Call it after each write of something large: within `PRUNE_EVERY_S` seconds, it does nothing.
        """
        now_s = time.time() if now_s is None else now_s
        if abs(now_s - self._pruned_s) < PRUNE_EVERY_S:
            return
        self._pruned_s = now_s
        bounds = DEFAULT_HISTORY if self.history.is_off else self.history
        for oldest in _DELETE_OLDEST:
            while self._delete(oldest, now_s - bounds.days * 86_400):
                pass
        for oldest in _DELETE_OLDEST:
            while self._used_bytes() > bounds.size_mib * (1 << 20) and self._delete(oldest, float("inf")):
                pass
        self._shrink()

    def clear(self) -> bool:
        """Delete all but the choices; False if that failed. The file stays: other consoles have it open."""
        is_done = self.write(*((f"DELETE FROM {table}",) for table, *_ in _BOUNDED))
        self._shrink()
        return is_done and (self.path is None or self.is_on_disk)

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _delete(self, statement: str, before_s: float) -> bool:
        # In steps, as other consoles wait for the lock no longer than `LOCK_S`.
        return self._run(lambda found: found.execute(statement, (before_s,)).rowcount > 0, default=False)

    def _shrink(self) -> None:
        # `execute` would free a single page.
        free = f"PRAGMA incremental_vacuum({FREED_PAGES})"
        for _ in range(0, self._pragma("main.freelist_count"), FREED_PAGES):
            self._run(lambda connection: connection.executescript(free), None)
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _used_bytes(self) -> int:
        place = "temp" if self.history.is_off else "main"
        pages = self._pragma(f"{place}.page_count") - self._pragma(f"{place}.freelist_count")
        return pages * self._pragma(f"{place}.page_size")

    def _pragma(self, name: str) -> int:
        return int(next(iter(self.rows(f"PRAGMA {name}")), (0,))[0])

    def _run(self, use: Callable[[sqlite3.Connection], Found], default: Found) -> Found:
        with self._lock:
            for is_last in (self.path is None, True):
                try:
                    return use(self._open())
                except sqlite3.Error as error:
                    self._error = getattr(error, "sqlite_errorcode", 0) & 0xFF
                    if self._error in _DAMAGED and not is_last:
                        self._set_aside(str(error))
                        continue
                    problem = self._report(f"{error}{NOT_KEPT * (self._error == sqlite3.SQLITE_READONLY)}")
                    self._passing |= {problem} if self._error in _MAY_PASS else set()
                    break
            return default

    def _open(self) -> sqlite3.Connection:
        if self._inode and self._inode != self._inode_now():  # another console has set it aside
            self.close()
        if self._connection is None:
            try:
                self._connection = _connected(self.path)
                if self.history.is_off:
                    _hide_tables(self._connection)
                self._inode = self._inode_now()
                self._was_on_disk = bool(self._inode)
            except (sqlite3.OperationalError, OSError) as error:
                text = file_problem(error) if isinstance(error, OSError) else str(error)
                if self._was_on_disk:  # it may be in reach again, and writers hold what they have until then
                    raise _OutOfReach(text) from error
                self._report(f"{text}{NOT_KEPT}")
                self._connection, self._inode = _connected(None), 0
        return self._connection

    def _inode_now(self) -> int:
        with suppress(OSError):
            return self.path.stat().st_ino if self.path is not None else 0
        return 0

    def _report(self, problem: str) -> str:
        text = f"{self.path or 'the journal'}: {problem}"
        if text not in self.problems:
            self.problems.append(text)
        return text

    def _set_aside(self, why: str) -> None:
        assert self.path is not None
        self.close()
        # No other file of the folder has its inode, not even one that was set aside in the same second.
        aside = self.path.with_name(
            f"journal-damaged-{time.strftime('%Y%m%d-%H%M%S')}-{self._inode_now()}.db"
        )
        database, *others = _files(self.path)
        with suppress(OSError):
            os.replace(database, aside)
            for path in others:  # they belong to the damaged one
                path.unlink(missing_ok=True)
            self._report(f"{why}; it was moved to {aside.name}, and a new one was begun")


def _files(path: Path) -> tuple[Path, ...]:
    return (path, *(path.with_name(f"{path.name}-{end}") for end in ("wal", "shm", "journal")))


def _connected(path: Path | None) -> sqlite3.Connection:
    place = str(path or ":memory:")
    if path is not None:
        make_private_folder(path.parent)
        with suppress(FileExistsError):  # further files get the mode of this one
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        # It is not opened again only to look: closing it would drop the locks of this process's other
        # connections, and the next process to leave would delete their write-ahead log.
        # Source: SQLite, "How To Corrupt An SQLite Database File", 2.2.
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError(errno.EINVAL, "a directory, a link or no regular file")
        if not os.access(path.parent, os.W_OK) and not any(each.exists() for each in _files(path)[1:]):
            # Nobody has it open, and what SQLite needs to open it otherwise cannot be created.
            place = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(
        place, timeout=LOCK_S, isolation_level=None, check_same_thread=False, uri=place.startswith("file:")
    )
    try:
        if path is not None:
            if connection.execute("PRAGMA auto_vacuum").fetchone() == (0,):  # to set it again would write
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if _is_shared(path) else 'WAL'}")
            connection.execute("PRAGMA synchronous = NORMAL")
        ((version,),) = connection.execute("PRAGMA user_version")
        if version > len(MIGRATIONS):
            raise sqlite3.OperationalError("it was written by a newer gpuconsole")
        if version < len(MIGRATIONS):
            _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        ((version,),) = connection.execute("PRAGMA user_version")  # another console may have been faster
        for number, statements in enumerate(MIGRATIONS[version:], version + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")


def _hide_tables(connection: sqlite3.Connection) -> None:
    """Put empty tables in memory before those of the file, except the choices."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in (each for statements in MIGRATIONS for each in statements):
        if not statement.startswith("CREATE TABLE choices"):
            connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_shared(path: Path) -> bool:
    """Return True if the file is on a file system that several machines mount."""
    best = ("", "")
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
            _, point, kind, *_ = line.split(" ")
            if len(point) >= len(best[0]) and path.resolve().is_relative_to(point.replace("\\040", " ")):
                best = (point, kind)
    return best[1].startswith(SHARED)
