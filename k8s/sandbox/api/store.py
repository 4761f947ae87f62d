"""Object store of the sandbox: decoded in memory to answer from, in SQLite to survive a restart.

Every write gets the next version and is one `Change`. The last changes of each kind are
retained; they are the only buffer of watches, so a watch that falls behind must list again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from k8s.text.errors import Expired, KubeError

# A Kubernetes object as decoded JSON; never changed once it is stored.
Object = dict[str, Any]

# Goes up when an older program could not read the database.
FORMAT = 1
CHANGES_KEPT = 10_000

SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (kind, namespace, name));
CREATE TABLE IF NOT EXISTS counter (version INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
"""
# More than the 1,000 pages of 4 KiB after which the write-ahead log is reused.
RESERVE_BYTES = 5 << 20
_RESERVE = f"""
CREATE TABLE IF NOT EXISTS reserve (body BLOB);
INSERT INTO reserve VALUES (zeroblob({RESERVE_BYTES}));
DROP TABLE reserve;
"""


class StoreError(KubeError):
    """The database cannot be opened, read or written."""


class Record:
    """One version of one object."""

    __slots__ = ("_obj", "json", "name", "namespace", "version")

    def __init__(self, obj: Object, json: bytes, version: int) -> None:
        meta = obj["metadata"]
        self.namespace: str = meta.get("namespace", "")
        self.name: str = meta["name"]
        self.json = json
        self.version = version
        self._obj: Object | None = obj

    @property
    def obj(self) -> Object:
        """Return the object, which must not be changed; after `retire` it is decoded on each access."""
        return self._obj if self._obj is not None else msgspec.json.decode(self.json)

    def retire(self) -> None:
        """Drop the decoded object: its bytes alone take a fifth of the memory."""
        self._obj = None


@dataclass(frozen=True, slots=True)
class Change:
    """One write; `old` is None if the object was created, `new` is None if it was removed."""

    version: int
    old: Record | None
    new: Record | None


class Store:
    """All objects of one sandbox; open in one process at a time."""

    def __init__(self, path: Path, *, changes_kept: int = CHANGES_KEPT) -> None:
        """Open the database and load it.

        Raises:
            StoreError: The database is damaged, from a newer version, in use, or cannot be written.
        """
        self.path = path
        self.version = 0
        self._stored_changes = changes_kept
        self._records: dict[str, dict[tuple[str, str], Record]] = defaultdict(dict)
        self._changes: dict[str, list[Change]] = defaultdict(list)
        self._forgotten: dict[str, int] = {}
        self._listeners: dict[str, set[asyncio.Event]] = defaultdict(set)
        with self._translated(f"open the sandbox's database {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=1.0)
            try:
                self._load()
            except BaseException:
                self._database.close()
                raise
        self._version_at_start = self.version

    def close(self) -> None:
        """Close the database; every write is already committed."""
        self._database.close()

    def get(self, kind: str, namespace: str, name: str) -> Record | None:
        """Return the record of an object, or None."""
        return self._records[kind].get((namespace, name))

    def records(self, kind: str, namespace: str = "") -> list[Record]:
        """Return the objects of a kind sorted by namespace and name."""
        records = self._records[kind]
        return [records[key] for key in sorted(records) if not namespace or key[0] == namespace]

    def put(self, kind: str, obj: Object) -> Record:
        """Write an object under the next version; the store owns it from then on.

        Raises:
            StoreError: It could not be written; nothing has changed.
        """
        version = self.version + 1
        obj["metadata"]["resourceVersion"] = str(version)
        record = Record(obj, msgspec.json.encode(obj), version)
        self._write(
            version,
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)",
            (kind, record.namespace, record.name, record.json),
        )
        key = (record.namespace, record.name)
        old = self._records[kind].get(key)
        self._records[kind][key] = record
        self._remember(kind, Change(version, old, record))
        return record

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object; the removal gets a version too."""
        version = self.version + 1
        self._write(
            version,
            "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
            (kind, namespace, name),
        )
        self._remember(kind, Change(version, self._records[kind].pop((namespace, name)), None))

    def changes_after(self, kind: str, version: int) -> list[Change]:
        """Return the changes of a kind since a version.

        Raises:
            Expired: Some of them are no longer stored.
        """
        oldest = self._forgotten.get(kind, self._version_at_start)
        if version < oldest:
            raise Expired(
                f"Could not resume the watch of {kind}.", f"too old resource version: {version} ({oldest})"
            )
        changes = self._changes[kind]
        if not changes or changes[-1].version <= version:
            return []
        return changes[bisect_right(changes, version, key=lambda change: change.version) :]

    @contextmanager
    def listening(self, kind: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the kind changes, and by `wake_all`."""
        changed = asyncio.Event()
        self._listeners[kind].add(changed)
        try:
            yield changed
        finally:
            self._listeners[kind].discard(changed)

    def wake_all(self) -> None:
        """Set the event of every listener, to make each check whether it should end."""
        for changed in set().union(*self._listeners.values()):
            changed.set()

    def _remember(self, kind: str, change: Change) -> None:
        self.version = change.version
        if change.old is not None:
            change.old.retire()
        changes = self._changes[kind]
        changes.append(change)
        if len(changes) >= 2 * self._stored_changes:
            extra = len(changes) - self._stored_changes
            self._forgotten[kind] = changes[extra - 1].version
            del changes[:extra]
        for changed in self._listeners[kind]:
            changed.set()

    def _write(self, version: int, statement: str, values: tuple[Any, ...]) -> None:
        with self._translated("save to the sandbox's database"):
            self._database.execute("BEGIN")
            try:
                self._database.execute(statement, values)
                self._database.execute("UPDATE counter SET version = ?", (version,))
                self._database.execute("COMMIT")
            except sqlite3.Error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _load(self) -> None:
        database = self._database
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        if database.execute("PRAGMA user_version").fetchone()[0] > FORMAT:
            raise StoreError(
                f"Could not open the sandbox's database {self.path}.",
                "It was written by a newer gpuconsole.",
                "Upgrade gpuconsole, or start over: gpuconsole sandbox reset",
            )
        database.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
        # Free pages in the database and a log of full length, which SQLite both reuses: on a full disk, the
        # job that has filled it can be deleted.
        database.executescript(_RESERVE)
        self.version = database.execute("SELECT version FROM counter").fetchone()[0]
        for kind, namespace, name, body in database.execute(
            "SELECT kind, namespace, name, body FROM objects"
        ):
            obj = msgspec.json.decode(body)
            version = int(obj["metadata"]["resourceVersion"])
            self._records[kind][namespace, name] = Record(obj, body, version)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            in_use = "locked" in str(error)
            why = "Another sandbox is using it." if in_use else f"SQLite says: {error}."
            hint = "Stop the other sandbox first." if in_use else "Free some space, or make it writable."
            raise StoreError(f"Could not {doing}.", why, hint) from error
        except (sqlite3.DatabaseError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"Could not {doing}.",
                f"It is damaged: {error}.",
                "Start over with an empty one: gpuconsole sandbox reset",
            ) from error
        except OSError as error:
            raise StoreError(f"Could not {doing}.", str(error), "Make the folder writable.") from error
