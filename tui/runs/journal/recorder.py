"""Recorder of the changes of jobs, and of the times of observation.

Several observers may record the same cluster; each change is written once.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from k8s.cluster.cluster_mirror import LONGEST_IDLE_S, ClusterMirror
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Job, LifeSigns
from k8s.status import NOT_YET_STARTED, Status
from tui.runs.journal.database import Journal, observer_name
from tui.runs.journal.history import DELETED, OVER
from tui.settings.options import NoticeEvent

# Interval between two comparisons, and longest one between two writes while nothing changes.
COMPARE_S, WRITE_S = 1.0, 15.0
# A longer interval means that the machine slept.
ASLEEP_S = 60.0
PRUNE_S = 600.0
# An observer whose news differ from those of another may only be late, by as much as snapshots may be: it
# writes them after this time.
SETTLE_S = LONGEST_IDLE_S + 5.0
# Changes of one transaction, so that other writers get their turn.
BATCH = 512
# Changes to hold while they cannot be written.
MAX_PENDING = 50_000
# Names of nodes to store of one job.
MAX_NODES = 256


class JobState(NamedTuple):
    """State of a job between two changes."""

    status: str
    alerts: str = ""
    """Values of `NoticeEvent` that its output shows, separated by spaces."""
    restarts: int = 0
    gpus_held: int = 0
    gpus_waiting: int = 0
    nodes: str = ""
    """Names of its nodes, separated by commas."""


_STATE = ", ".join(JobState._fields)
_PUT_JOB = (
    "INSERT INTO jobs"
    " (context, uid, namespace, name, kind, api_version, user, created_s, is_mine, last_change)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
)
_PUT_CHANGE = (
    f"INSERT INTO changes (job, at_s, after_s, reason, cause, {_STATE})"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PUT_OBSERVED = "INSERT INTO observed (context, namespace, observer, from_s, to_s) VALUES (?, ?, ?, ?, ?)"
_FIND_CHANGES = f"SELECT id, at_s, reason, cause, {_STATE} FROM changes WHERE job = ? AND id >= ? ORDER BY id"
_UNENDED = (
    "SELECT jobs.uid, namespace, name, kind, api_version FROM jobs JOIN changes ON changes.id = last_change"
    " WHERE context = ? AND status NOT IN (?, ?, ?)"
)


class _Change(NamedTuple):
    uid: str
    job: Job | None  # None if it is gone
    state: JobState
    reason: str
    cause: str
    is_mine: bool
    now_s: float
    is_late: bool  # it was not seen as it happened
    after_s: float | None  # end of the last observation before; None if there was none


class JobRecorder:
    """One observer of a cluster, which writes to the journal while `run` runs."""

    def __init__(
        self,
        journal: Journal,
        mirror: ClusterMirror,
        observer: str,
        *,
        own_names: Callable[[str], Collection[str]],
        cause_of: Callable[[str], str] = lambda uid: "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is written before `run`.

        Args:
            journal: A connection of its own, because threads use it for long; closed when `run` ends.
            mirror: The cluster, with all jobs that are read.
            observer: `console` or `record`.
            own_names: Returns the user's names, by the one that the cluster knows.
            cause_of: Returns the known cause of a job's failure, by UID; empty if there is none.
            clock: Returns the seconds since 1970 by this machine's clock.
        """
        self._clock = clock
        self.journal = journal
        self.caught_up = asyncio.Event()
        """Set once earlier changes are written."""
        self._mirror = mirror
        self._context = mirror.client.config.context
        self.observer = observer_name(observer)
        self._own_names = own_names
        self._cause_of = cause_of
        self._snapshot = ClusterSnapshot()
        self._compared: ClusterSnapshot | None = None
        self._seen: dict[str, _Seen] = {}
        self._known: dict[str, tuple[int, int]] = {}  # by UID: id of the job and of its last known change
        self._pending: list[_Change] = []
        self._contested_s: dict[str, float] = {}  # by UID: since when others have written other news
        self._covered = ""
        self._from_s: float | None = None  # of the current observation; None while there is none
        self._to_s = self._ended_s = 0.0
        self._row: int | None = None
        self._written_s = 0.0

    def update(self, snapshot: ClusterSnapshot) -> None:
        """Accept the newest snapshot; `run` compares it with the last one within a second."""
        self._snapshot = snapshot

    async def run(self) -> None:
        """Record until cancelled."""
        pruned_s = time.monotonic()
        try:
            while True:
                await self.record()
                if time.monotonic() > pruned_s + PRUNE_S:
                    pruned_s = time.monotonic()
                    await asyncio.to_thread(self.journal.prune)
                await asyncio.sleep(COMPARE_S)
        finally:
            self._write()
            self.journal.close()

    async def record(self) -> None:
        """Write the changes since the last call."""
        found, covered = self._snapshot, self._mirror.covered_namespace
        now_s = self._clock() + found.clock_offset_s
        if self._from_s is not None and (abs(now_s - self._to_s) > ASLEEP_S or covered != self._covered):
            await self._pause()
        if not found.is_synced or found.stale:
            if self._from_s is not None:
                silent_s = asyncio.get_running_loop().time() - found.stale_since_s
                await self._pause(now_s - silent_s if found.stale_since_s else now_s)
            return
        unended, is_late = {}, self._from_s is None
        if is_late:
            self._from_s, self._to_s, self._covered = now_s, now_s, covered
            self._ended_s = self._ended_s or await asyncio.to_thread(self._last_observed_s)
            unended = await asyncio.to_thread(self._unended)
        self._to_s = max(self._to_s, now_s)
        if found is not self._compared or is_late or self._contested_s:
            self._compare(found, self._mirror.all_jobs, now_s, unended, is_late=is_late)
            self._compared = found
        if self._pending or now_s > self._written_s + WRITE_S:
            await asyncio.to_thread(self._write)
        self.caught_up.set()

    async def _pause(self, last_seen_s: float = math.inf) -> None:
        assert self._from_s is not None
        self._to_s = max(self._from_s, min(self._to_s, last_seen_s))
        if self._to_s > self._from_s:  # else the server had not been heard since the last pause
            self._ended_s = self._to_s
        await asyncio.to_thread(self._write)
        self._from_s = self._row = None

    def _last_observed_s(self) -> float:
        rows = self.journal.rows("SELECT max(to_s) FROM observed WHERE context = ?", self._context)
        return (rows[0][0] or 0.0) if rows else 0.0

    def _unended(self) -> dict[str, JobRef]:
        return {uid: JobRef(*ref) for uid, *ref in self.journal.rows(_UNENDED, self._context, *OVER)}

    def _compare(
        self,
        found: ClusterSnapshot,
        jobs: Sequence[Job],
        now_s: float,
        unended: Mapping[str, JobRef],
        *,
        is_late: bool,
    ) -> None:
        names, life, seen = self._own_names(found.user), found.life, self._seen
        contested = self._contested_s
        when = now_s, is_late, self._ended_s or None if is_late else None
        after: dict[str, _Seen] = {}
        for job in jobs:
            uid = job.uid
            old, alerts = seen.get(uid), _alerts(life[uid]) if uid in life else ""
            if old is not None and old.job is job and old.state.alerts == alerts and uid not in contested:
                after[uid] = old
                continue
            is_mine = job.user in names
            if old is None and not is_mine and job.status.is_final and uid not in unended:
                continue  # of others, only what holds GPUs or waits for them counts
            cause = self._cause_of(uid) if job.status.has_failed else ""
            new = after[uid] = _Seen(job, _state_of(job, alerts), cause)
            is_explained = is_mine and old is not None and (old.job.reason, old.cause) != (job.reason, cause)
            if old is None or old.state != new.state or is_explained or uid in contested:
                self._pending.append(_Change(uid, job, new.state, job.reason, cause, is_mine, *when))
        gone = {uid: ref for uid, ref in unended.items() if uid not in after}
        gone |= {
            uid: seen[uid].job.ref for uid in seen.keys() - after.keys() if seen[uid].state.status not in OVER
        }
        for uid, ref in gone.items():
            if self._covered in ("", ref.namespace) and self._mirror.is_current(ref):
                self._pending.append(_Change(uid, None, JobState(DELETED), "", "", False, *when))
        self._seen = after
        self._contested_s = {uid: at_s for uid, at_s in contested.items() if uid in after}

    def _write(self) -> None:
        while self._pending or self._from_s is not None:
            batch = self._pending[:BATCH]
            found = self.journal.transact(partial(self._put, batch=batch))
            if found is None:
                del self._pending[:-MAX_PENDING]
                self._written_s = self._to_s
                return
            self._known.update(found)
            self._contested_s = {uid: at_s for uid, at_s in self._contested_s.items() if uid not in found}
            del self._pending[: len(batch)]
            self._written_s = self._to_s
            if not self._pending:
                self.journal.keep()
                return

    def _put(self, connection: sqlite3.Connection, batch: Sequence[_Change]) -> dict[str, tuple[int, int]]:
        known: dict[str, tuple[int, int]] = {}
        for change in batch:
            number, last = known.get(change.uid) or self._known.get(change.uid) or (0, 0)
            if (found := self._put_change(connection, change, number, last)) is not None:
                known[change.uid] = found
        if self._from_s is not None:
            times = self._from_s, self._to_s
            update = "UPDATE observed SET from_s = ?, to_s = ? WHERE id = ?"
            if not self._row or not connection.execute(update, (*times, self._row)).rowcount:
                place = self._context, self._covered, self.observer
                self._row = connection.execute(_PUT_OBSERVED, (*place, *times)).lastrowid
        return known

    def _put_change(
        self, connection: sqlite3.Connection, change: _Change, number: int, last: int
    ) -> tuple[int, int] | None:
        # Returns the ids of the job and of its change; None if it is not written, or not yet.
        job, state = change.job, change.state
        rows = connection.execute(_FIND_CHANGES, (number, last)).fetchall() if number else []
        if not rows:  # also if it was deleted meanwhile
            find = "SELECT id, last_change FROM jobs WHERE context = ? AND uid = ?"
            number, last = connection.execute(find, (self._context, change.uid)).fetchone() or (0, 0)
            last = last if change.is_late else 0
            rows = connection.execute(_FIND_CHANGES, (number, last)).fetchall() if number else []
        # Another observer may have written it already, and what followed.
        same = [each for each in rows if _is_same(JobState._make(each[4:]), state)]
        if same:
            row, _, *texts = min(same, key=lambda each: (each[0] == last, each[0]))[:4]
            if change.reason and texts != [change.reason, change.cause]:
                update = "UPDATE changes SET reason = ?, cause = ? WHERE id = ?"
                connection.execute(update, (change.reason, change.cause or texts[1], row))
            return number, row
        now_s = change.now_s
        if any(each[0] > last for each in rows) and job is not None:
            now_s = self._contested_s.setdefault(change.uid, now_s)
            if change.now_s - now_s < SETTLE_S:
                return None
        was, was_at_s = (rows[-1][4], rows[-1][1]) if rows else ("", 0.0)
        if job is None and not number:
            return None
        if job is not None and not number:
            about = *msgspec.structs.astuple(job.ref), job.user, _seconds(job.created), change.is_mine
            number = connection.execute(_PUT_JOB, (self._context, job.uid, *about)).lastrowid or 0
        at_s = _moment(job, was, state) if job is not None else None
        is_exact = at_s is not None and was_at_s < at_s <= change.now_s
        at_s = at_s if is_exact and at_s is not None else max(now_s, was_at_s)
        for step_s, step in _steps(job, was, state) if job is not None and change.is_mine else ():
            if was_at_s < step_s < at_s:
                connection.execute(_PUT_CHANGE, (number, step_s, None, "", "", *step))
        values = number, at_s, None if is_exact else change.after_s, change.reason, change.cause, *state
        last = connection.execute(_PUT_CHANGE, values).lastrowid or 0
        connection.execute("UPDATE jobs SET last_change = ? WHERE id = ?", (last, number))
        return number, last


class _Seen(NamedTuple):
    job: Job
    state: JobState
    cause: str


def _state_of(job: Job, alerts: str) -> JobState:
    nodes = ",".join(job.nodes[:MAX_NODES])
    return JobState(str(job.status), alerts, job.restarts_total, job.gpus_allocated, job.gpus_waiting, nodes)


def _is_same(one: JobState, other: JobState) -> bool:
    # Observers read logs at different times, which no longer matters at the end.
    is_over = other.status in OVER
    return (one._replace(alerts=other.alerts, nodes=other.nodes) if is_over else one) == other


def _alerts(signs: LifeSigns) -> str:
    silent = [NoticeEvent.SILENT] if signs.silence is not None else []
    return " ".join([*silent, *(NoticeEvent(each.rule) for each in signs.alerts)])


def _moment(job: Job, was: str, state: JobState) -> float | None:
    """Return the time of a change of status as far as the job's object tells it; None if it does not."""
    if job.status.is_final:
        return _seconds(job.finished or job.last_exit)
    if job.status is Status.RUNNING and was in ("", *NOT_YET_STARTED):
        return _seconds(job.started)
    if not was and job.status in NOT_YET_STARTED:
        return _seconds(job.created)
    return _seconds(job.last_exit) if state.restarts and was else None


def _steps(job: Job, was: str, state: JobState) -> Iterator[tuple[float, JobState]]:
    """Yield earlier changes that the job's object proves."""
    gpus = job.gpus_requested
    if not was and job.created is not None and job.status not in NOT_YET_STARTED:
        yield job.created.timestamp(), JobState(Status.PENDING, gpus_waiting=gpus)
    is_started = job.started is not None and job.status is not Status.RUNNING
    if is_started and job.started is not None and was in ("", *NOT_YET_STARTED):
        yield job.started.timestamp(), JobState(Status.RUNNING, gpus_held=gpus, nodes=state.nodes)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
