"""The timeline: events of jobs in a span of time, read from the journal, and unobserved times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import ceil, floor, inf
from typing import NamedTuple

import msgspec

from k8s.kinds.base import JobRef
from k8s.status import Status
from tui.runs.journal.database import Journal

# Without `--since`, unless the last console ended earlier.
DEFAULT_S = 86_400.0
# Observers write every 15 seconds; a shorter time between two of them is no gap.
GAP_S = 60.0
# Status of a job whose object is gone although it had not ended.
DELETED = "Deleted"
OVER = (Status.SUCCEEDED, Status.FAILED, DELETED)
_WAITING = (Status.QUEUED, Status.PENDING, Status.STARTING)
_ACTIVE = (Status.RUNNING, Status.RESTARTING)
# Statuses that the bars count, by name; failures are counted when they happen.
PHASES: Mapping[str, tuple[str, ...]] = {
    "queued": (Status.QUEUED,),
    "running": (*_ACTIVE, Status.TERMINATING),
    "waiting": (Status.PENDING, Status.STARTING),
    "failed": (Status.FAILED,),
}
_PHASE_OF = {str(status): phase for phase, statuses in PHASES.items() for status in statuses}
# In the reason or cause of a job whose node is lost.
_LOST = ("node lost", "node does not answer", "node is gone")


class JobChange(NamedTuple):
    """A row of the table `changes`, without the job."""

    id: int
    at_s: float
    after_s: float | None
    status: str
    reason: str
    cause: str
    alerts: str
    restarts: int
    gpus_waiting: int
    nodes: str


_CHANGE = ", ".join(f"c.{each}" for each in JobChange._fields)
_CHOSEN = "context = ?1 AND (?3 OR is_mine) AND ?4 IN ('', namespace) AND ?5 IN ('', name)"
# The jobs that were not over before the span, each with its last change before it, unless it is much younger.
_JOBS = (
    " FROM jobs j JOIN changes l ON l.id = last_change LEFT JOIN changes c ON c.id = (SELECT id FROM changes"
    " WHERE job = j.id AND at_s <= ?2 AND ifnull(created_s, 0) < ?2 + 3600 ORDER BY at_s DESC, id DESC"
    f" LIMIT 1) WHERE {_CHOSEN} AND (l.at_s > ?2 OR l.status NOT IN {tuple(map(str, OVER))})"
)
_IN_SPAN = (
    " FROM changes c WHERE at_s > ?2 AND at_s <= ?6 AND (?3 AND ?4 || ?5 = ''"
    f" OR job IN (SELECT id FROM jobs WHERE {_CHOSEN})) ORDER BY at_s"
)
_WATCHED = (
    "SELECT from_s, to_s FROM observed WHERE to_s >= ?1 AND from_s <= ?2 AND context = ?3"
    " AND (namespace IN ('', ?4) OR ?4 = '') ORDER BY from_s"
)
_LAST = "SELECT max(to_s) FROM observed WHERE context = ? AND observer LIKE 'console %' AND observer != ?"
_FIRST = "SELECT min(from_s) FROM observed WHERE context = ? UNION SELECT min(at_s) FROM changes"
# Events of jobs, the most important first; those of `NoticeEvent` have its words.
EVENTS = (
    *("failed", "node lost", "preempted", "nan", "diverged", "silent", "slow", "plateau", "ended"),
    *("restarted", "started", "suspended", "resumed", "deleted", "queued"),
)
_ALERTS = frozenset(EVENTS[3:8])
_ENDS = dict(zip(OVER, ("ended", "failed", "deleted"), strict=True))


class Entry(NamedTuple):
    """One event of a job."""

    uid: str
    user: str
    is_mine: bool
    job: JobRef
    event: str
    change: JobChange
    was: str  # status before; empty if it is unknown


class Gap(NamedTuple):
    """A span of time without an observer."""

    from_s: float
    to_s: float


class Timeline(msgspec.Struct, frozen=True):
    """Events in a span of time, the newest first."""

    since_s: float = 0.0
    until_s: float = 0.0
    entries: Sequence[Entry] = ()
    gaps: Sequence[Gap] = ()
    listed_s: float = 0.0  # time before the entries; later than `since_s` if there are more than `most`
    # With `most`, by phase, the number of jobs after each time, or of failures until then; 0 at first.
    numbers: Mapping[str, Sequence[tuple[float, int]]] = {}

    def grouped(self) -> Iterator[Entry | Gap]:
        """Yield the entries by job, that with the newest one first, and each gap where it is first passed."""
        groups: dict[str, list[Entry]] = {}
        for each in self.entries:
            groups.setdefault(each.uid, []).append(each)
        gaps = sorted(gap for gap in self.gaps if gap.to_s > self.listed_s)
        for entry in (entry for group in groups.values() for entry in group):
            while gaps and gaps[-1].to_s > entry.change.at_s:
                yield gaps.pop()
            yield entry
        yield from reversed(gaps)

    def counts(self, parts: int) -> dict[str, list[int | None]]:
        """Return the most jobs at a time by phase, and the failures, in equal parts of the span.

        None stands for an unobserved part.
        """
        width_s = max((self.until_s - self.since_s) / parts, 1e-3)
        found: dict[str, list[int | None]] = {}
        for phase in PHASES:
            steps = self.numbers.get(phase, [(-inf, 0)])
            places = pairwise(bisect_left(steps, (self.since_s + i * width_s, -1)) for i in range(parts + 1))
            is_sum = phase == "failed"  # and those of earlier parts do not count
            found[phase] = [max(n for _, n in steps[a - 1 : b]) - is_sum * steps[a - 1][1] for a, b in places]
        for gap in self.gaps:
            first, last = ((at_s - self.since_s) / width_s for at_s in gap)
            for place in range(ceil(first), floor(last)):
                for phase, numbers in found.items():
                    numbers[place] = (phase == "failed" and numbers[place]) or None  # a failure is known
        return found

    def news(self) -> dict[str, int]:
        """Return the number of jobs by event; queued jobs, and deleted ones that were over, are no news."""
        no_news = {("deleted", each) for each in OVER}
        found = {(each.event, each.uid) for each in self.entries if (each.event, each.was) not in no_news}
        events = [event for event, _ in found]
        return {each: events.count(each) for each in EVENTS[:-1] if each in events}


def read_timeline(
    journal: Journal, context: str, since_s: float, until_s: float, *, namespace: str = "", name: str = "",
    is_for_all: bool = False, most: int | None = None,
) -> Timeline:  # fmt: skip
    """Return the events of the user's jobs, or of all, with this namespace and name unless they are empty."""
    jobs: dict[int, tuple[str, str, bool, JobRef]] = {}
    last: dict[int, JobChange | None] = {}
    span = context, since_s, is_for_all, namespace, name
    steps = [] if most is None else journal.rows(f"SELECT job, at_s, status{_IN_SPAN}, id", *span, until_s)
    known = [] if most is None else journal.rows(f"SELECT j.id, ?2, c.status{_JOBS}", *span)
    listed_s = since_s if most is None or len(steps) <= most else steps[-most - 1][1]
    phases = {job: "failed" if status == Status.FAILED else "" for job, _, status in known}
    numbers = {phase: [(-inf, 0)] for phase in ("", *PHASES)}
    for job, at_s, status in chain(known, steps):
        phase = _PHASE_OF.get(status, "")
        if (before := phases.get(job, phase)) != phase:
            phases[job] = phase
            numbers[phase].append((at_s, numbers[phase][-1][1] + 1))
            if before != "failed":
                numbers[before].append((at_s, numbers[before][-1][1] - 1))
    span = context, listed_s, is_for_all, namespace, name
    about = f"SELECT j.id, uid, user, is_mine, namespace, name, kind, api_version, {_CHANGE}{_JOBS}"
    for number, uid, user, mine, *row in journal.rows(about, *span):
        jobs[number] = uid, user, bool(mine), JobRef(*row[:4])
        last[number] = JobChange._make(row[4:]) if row[4] is not None else None
    entries: list[Entry] = []
    for number, *row in journal.rows(f"SELECT job, {_CHANGE}{_IN_SPAN}, id", *span, until_s):
        if number in jobs:
            old, new = last[number], JobChange._make(row)
            was = old.status if old is not None else ""
            entries += [Entry(*jobs[number], event, new, was) for event in events_of(old, new)]
            last[number] = new
    gaps = find_gaps(journal.rows(_WATCHED, since_s, until_s, context, namespace), since_s, until_s)
    return Timeline(since_s, until_s, entries[::-1], [*gaps], listed_s, numbers)


def events_of(before: JobChange | None, change: JobChange) -> Iterator[str]:
    """Yield the events of a job between two of its changes; `before` is None for the first one."""
    if change.alerts:
        known = before.alerts.split() if before is not None else []
        yield from (each for each in change.alerts.split() if each in _ALERTS.difference(known))
    was, status = before.status if before is not None else "", change.status
    if before is not None and _has_lost_node(before, change):
        yield "node lost"
    elif before is not None and _has_restarted(before, change):
        yield "preempted" if _is_preempted(was, change) else "restarted"
    elif status == was:
        return
    elif status in _ENDS:
        yield _ENDS[status]
    elif was == Status.SUSPENDED:
        yield "resumed"
    elif status == Status.SUSPENDED:
        yield "preempted" if _is_preempted(was, change) else "suspended"
    elif status in _WAITING and was not in (*_WAITING, Status.RESTARTING):
        is_queued_again = was in _ACTIVE and status == Status.QUEUED
        yield "preempted" if is_queued_again or _is_preempted(was, change) else "queued"
    elif status == Status.RUNNING and was in ("", *_WAITING):
        yield "started"


def _is_preempted(was: str, change: JobChange) -> bool:
    return was in _ACTIVE and "preempt" in f"{change.reason} {change.cause}".lower()


def _has_lost_node(before: JobChange, change: JobChange) -> bool:
    if before.status not in _ACTIVE or change.status in OVER:
        return False
    if (before.nodes, before.reason, before.cause) == (change.nodes, change.reason, change.cause):
        return False
    lost = {*before.nodes.split(",")} - {*change.nodes.split(","), ""}
    # Nodes whose pods have ended, or were scaled in, leave nothing that waits.
    waits = change.status == Status.RUNNING and change.gpus_waiting > before.gpus_waiting
    text, old = (f"{each.reason} {each.cause}" for each in (change, before))
    return (bool(lost) and waits) or any(words in text and words not in old for words in _LOST)


def _has_restarted(before: JobChange, change: JobChange) -> bool:
    was, status = before.status, change.status
    if status == Status.RESTARTING != was:
        return was != Status.SUSPENDED
    # The end of a restart was reported when it began.
    return change.restarts > before.restarts and status not in OVER and was != Status.RESTARTING


def find_gaps(watched: Iterable[tuple[float, float]], since_s: float, until_s: float) -> Iterator[Gap]:
    """Yield the parts of a span that lie in none of these intervals, in the order of their starts."""
    seen_s = since_s
    for from_s, to_s in (*watched, (until_s, until_s)):
        if from_s - seen_s > GAP_S:
            yield Gap(seen_s, from_s)
        seen_s = max(seen_s, to_s)


def observed_since_s(journal: Journal, context: str, namespace: str, now_s: float) -> float | None:
    """Return the end of the last gap, or the first time observed; None if that gap goes on."""
    watched = journal.rows(_WATCHED, 0.0, now_s, context, namespace)
    if not watched:
        return None
    *_, last = Gap(0.0, watched[0][0]), *find_gaps(watched, watched[0][0], now_s)
    return last.to_s if last.to_s < now_s else None


def last_console_s(journal: Journal, context: str, observer: str = "") -> float | None:
    """Return the end of the last console on this cluster except `observer`; None if there was none."""
    ((found,),) = journal.rows(_LAST, context, observer) or [(None,)]
    return None if found is None else float(found)


def default_since_s(journal: Journal, context: str, now_s: float, observer: str = "") -> float:
    """Return a day ago, or the end of the last console if that is earlier; not before anything is known."""
    first_s = min((each for (each,) in journal.rows(_FIRST, context) if each is not None), default=now_s)
    since_s = min(now_s - DEFAULT_S, last_console_s(journal, context, observer) or now_s)
    return max(since_s, first_s - 1)
