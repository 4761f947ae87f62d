"""The ledger: GPU time that jobs held, waited for and left idle, from the journal.

The state of a job lasts until its next change. Only observed seconds count, once each, however many
consoles observed them; a gap counts nothing, whatever came before and after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from k8s.gpus.gpu_warnings import uses_of
from k8s.gpus.readings import GpuKey, GpuReading
from k8s.snapshot import Job

if TYPE_CHECKING:
    from tui.runs.journal.database import Journal

HOUR_S = 3_600
# Longest interval between two readings of a GPU that counts, and shortest one between two writes.
CLOSE_S, WRITE_S = 90.0, 60.0


class GpuTime(NamedTuple):
    """GPU time of a job in a window, or of several jobs."""

    held_gpu_s: float = 0.0
    waited_s: float = 0.0
    """Time with any GPUs waited for, summed over jobs."""
    waited_gpu_s: float = 0.0
    seen_gpu_s: float = 0.0
    """Held time for which telemetry was read."""
    idle_gpu_s: float = 0.0
    """Part of `seen_gpu_s`."""
    observed_share: float = 0.0
    """Observed share of the window; the least one of several jobs."""

    @classmethod
    def total(cls, times: Iterable[GpuTime]) -> GpuTime:
        """Add up the time of several jobs."""
        *amounts, shares = zip(*times, strict=True)
        return cls(*map(sum, amounts))._replace(observed_share=min(shares))


class LedgerEntry(msgspec.Struct, frozen=True):
    """A job in the ledger. Jobs of the same name differ in their UID."""

    uid: str
    user: str
    namespace: str
    name: str
    kind: str
    time: GpuTime


class Coverage:
    """The observed seconds of a window."""

    def __init__(self, spans: Iterable[tuple[float, float]], from_s: float, to_s: float) -> None:
        """Merge the spans of all observers, in any order."""
        # Spans that do not overlap: start, duration, and the sum of those before.
        self._starts: list[float] = []
        self._spans: list[tuple[float, float, float]] = []
        self.seconds = 0.0
        last_s = from_s
        for start_s, end_s in sorted(spans):
            start_s, end_s = max(start_s, last_s), min(end_s, to_s)
            if end_s > start_s:
                self._starts.append(start_s)
                self._spans.append((start_s, end_s - start_s, self.seconds))
                self.seconds += end_s - start_s
                last_s = end_s
        self.share = self.seconds / (to_s - from_s) if to_s > from_s else 0.0

    def seconds_until(self, at_s: float) -> float:
        """Return the number of seconds observed before a time."""
        place = bisect_right(self._starts, at_s) - 1
        if place < 0:
            return 0.0
        start_s, duration_s, before_s = self._spans[place]
        return before_s + min(at_s - start_s, duration_s)


def time_of(
    changes: Iterable[tuple[float, ...]], coverage: Coverage, seen_gpu_s: float = 0.0, idle_gpu_s: float = 0.0
) -> GpuTime:
    """Return the GPU time of a job, given times, GPUs held and waited for of its changes, the last first."""
    held = waited = waited_gpus = 0.0
    until_s, next_s = coverage.seconds, float("inf")
    for at_s, gpus_held, gpus_waiting, _ in changes:
        # If the clock stepped back, the later change is the one by the corrected clock.
        if at_s < next_s:
            next_s, since_s = at_s, coverage.seconds_until(at_s)
            lasted_s, until_s = until_s - since_s, since_s
            held += gpus_held * lasted_s
            waited_gpus += gpus_waiting * lasted_s
            waited += lasted_s if gpus_waiting else 0.0
    return GpuTime(held, waited, waited_gpus, seen_gpu_s, idle_gpu_s, coverage.share)


_OBSERVED = "SELECT namespace, from_s, to_s FROM observed WHERE context = ? AND to_s > ? AND from_s < ?"
# The jobs that held GPUs or waited for them in the window, or after it.
_JOBS = (
    "FROM jobs JOIN changes AS newest ON newest.id = last_change WHERE context = ?1"
    " AND ?2 IN ('', namespace) AND (newest.at_s >= ?3 OR newest.gpus_held OR newest.gpus_waiting)"
)
_CHANGES = (
    "SELECT at_s, gpus_held, gpus_waiting, job FROM changes"
    f" WHERE at_s < ?4 AND job IN (SELECT jobs.id {_JOBS}) ORDER BY job DESC, id DESC"
)
# Of several consoles that read the same GPUs, the one that read most; SQLite takes the other columns from
# the row of the maximum. Hours that began before the window are left out; `+` keeps the order of the jobs.
_IDLE = (
    "SELECT job, sum(seen), sum(idle) FROM (SELECT job, max(seen_gpu_s) AS seen, idle_gpu_s AS idle"
    " FROM idle WHERE +hour_s >= ? AND +hour_s < ? GROUP BY job, hour_s) GROUP BY job"
)


def read_ledger(
    journal: Journal, context: str, namespace: str, from_s: float, to_s: float
) -> list[LedgerEntry] | None:
    """Return the jobs that held or waited for GPUs in a window; None if none of it was observed.

    Its ends are in seconds since 1970; an empty namespace means all.
    """
    observed = journal.rows(_OBSERVED, context, from_s, to_s)
    spans = [(each, (a, b)) for each, a, b in observed if not namespace or each in ("", namespace)]
    if not spans:
        return None
    idle = {job: (seen, idle) for job, seen, idle in journal.rows(_IDLE, from_s, to_s)}
    coverage: dict[str, Coverage] = {}
    find = f"SELECT jobs.id, uid, user, namespace, name, kind {_JOBS}"
    jobs = {job: about for job, *about in journal.rows(find, context, namespace, from_s)}
    found = []
    for job, newest_first in groupby(journal.rows(_CHANGES, context, namespace, from_s, to_s), itemgetter(3)):
        if job not in jobs:  # it was recorded between the two queries
            continue
        uid, user, place, name, kind = jobs[job]
        if place not in coverage:
            own = [span for each, span in spans if each in ("", place)]
            coverage[place] = Coverage(own, from_s, to_s)
        time = time_of(newest_first, coverage[place], *idle.get(job, ()))
        if time.held_gpu_s or time.waited_s:
            found.append(LedgerEntry(uid, user or place, place, name, kind, time))
    return found[::-1]


_ADD = (
    "INSERT INTO idle SELECT id, ?, ?, ?, ? FROM jobs WHERE context = ? AND uid = ?"
    " ON CONFLICT (job, hour_s, observer) DO UPDATE SET"
    " seen_gpu_s = seen_gpu_s + excluded.seen_gpu_s, idle_gpu_s = idle_gpu_s + excluded.idle_gpu_s"
)


class IdleMeter:
    """Counts the GPU time with and without use of each job, between readings that are close in time.

    Its methods may write to the journal, so they are called in threads.
    """

    def __init__(self, journal: Journal, context: str, observer: str) -> None:
        """Prepare; `journal` is a connection of its own, which `close` closes."""
        self._journal, self._context, self._observer = journal, context, observer
        self._lock = Lock()
        # Of each GPU the time of its last reading, whether it was idle, and the jobs that held it.
        self._last: dict[GpuKey, tuple[float, bool, set[str]]] = {}
        # By UID and start of the hour; what is written is removed.
        self._counted: dict[tuple[str, int], tuple[float, float]] = {}
        self._written_s = 0.0

    def add(self, gpus: Iterable[GpuReading], jobs: Iterable[Job]) -> None:
        """Count the time since the last readings of these GPUs, for the jobs that held them all the time."""
        with self._lock:
            now_s = 0.0
            for gpu, is_idle, uids in uses_of(jobs, gpus):
                now_s = gpu.read_at.timestamp()
                last_s, was_idle, holders = self._last.get(gpu.key, (now_s, False, uids))
                self._last[gpu.key] = now_s, is_idle, uids
                if now_s - last_s <= CLOSE_S:
                    for uid in uids & holders:
                        self._count(uid, last_s, now_s, is_idle and was_idle)
            if now_s and not 0 <= now_s - self._written_s < WRITE_S:
                self._written_s = now_s
                self._last = {key: each for key, each in self._last.items() if now_s - each[0] <= CLOSE_S}
                self._write()

    def close(self) -> None:
        """Write the rest."""
        with self._lock:
            self._write()
            self._journal.close()

    def _count(self, uid: str, from_s: float, to_s: float, is_idle: bool) -> None:
        while from_s < to_s:
            hour_s = int(from_s // HOUR_S) * HOUR_S
            lasted_s = min(to_s, hour_s + HOUR_S) - from_s
            seen_s, idle_s = self._counted.get((uid, hour_s), (0.0, 0.0))
            self._counted[uid, hour_s] = seen_s + lasted_s, idle_s + lasted_s * is_idle
            from_s += lasted_s

    def _write(self) -> None:
        # A job that is not recorded is left out. What cannot be written now is written later.
        adds = [
            (_ADD, hour_s, self._observer, *times, self._context, uid)
            for (uid, hour_s), times in self._counted.items()
        ]
        if adds and self._journal.write(*adds):
            self._counted.clear()
