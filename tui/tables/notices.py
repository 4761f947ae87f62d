"""Notices about jobs, found by comparing each snapshot with the one before, and their list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from k8s.kinds.base import JobRef
from k8s.snapshot import NO_SIGNS, ClusterSnapshot, Job, LifeSigns
from k8s.status import NOT_YET_STARTED, Status
from k8s.status.job import without_leftovers
from k8s.status.pod import ASKED_TO_STOP
from k8s.text.sanitize import sanitize
from tui.settings.options import RULES_AT_END, NoticeEvent, NotifyOptions
from tui.tables.column import Cell, ListColumn
from tui.tables.filters import own_names
from tui.text.format import NOTHING, CellStyle, Clock, Run, count, reason_text, timestamp, trouble_text

if TYPE_CHECKING:
    from tui.runs.journal.database import Journal

MAX_NOTICES = 500
# A repeated event of a job is counted, but not reported again within this time.
REPEATED = timedelta(minutes=10)
# The end of a job follows the failure of its pods within this time.
SETTLED = timedelta(seconds=5)
# A NaN found this soon after the console opened was printed before.
FIRST_READ = timedelta(minutes=1)
# Times after which a job is silent, as `k8s.logs.liveness` has them.
SILENT_AFTER, SILENT_INTERVALS = timedelta(minutes=1), 5
_BROKEN = (Status.FAILED, Status.RESTARTING)
_Event = tuple[NoticeEvent, datetime]
_Seen = tuple[Job, LifeSigns]
_EXIT = re.compile(r"\bexit (\d{1,3})\b")
WORDS = {
    NoticeEvent.FAILED: "failed",
    NoticeEvent.SILENT: "went silent",
    NoticeEvent.NAN: "printed NaN",
    NoticeEvent.DIVERGED: "diverged",
    NoticeEvent.SLOW: "slowed down",
    NoticeEvent.PLATEAU: "stopped improving",
    NoticeEvent.ENDED: "ended",
    NoticeEvent.RESTARTED: "restarted",
    NoticeEvent.STARTED: "started",
}


class JobNotice(msgspec.Struct, frozen=True):
    """One event of a job."""

    at: datetime
    """Server time of the event, from the object's status if it has one."""
    event: NoticeEvent
    job: JobRef
    uid: str
    context: str
    status: str
    reason: str
    is_mine: bool
    is_seen: bool = False
    count: int = 1

    @property
    def key(self) -> str:
        """Return a key that is unique in a log."""
        return f"{self.uid} {self.event}"

    @property
    def event_text(self) -> str:
        """Return the event, as `failed` or `restarted ×3`."""
        return WORDS[self.event] + (f" ×{self.count}" if self.count > 1 else "")

    @property
    def text(self) -> str:
        """Return the job's name, not sanitised, and the event."""
        return f"{self.job.name} {self.event_text}"

    def facts(self, user: str) -> dict[str, object]:
        """Return the facts for hooks by name; `user` is the cluster's name for the user."""
        found = _EXIT.search(self.reason)
        return {
            "event": self.event,
            "job": self.job.name,
            "namespace": self.job.namespace,
            "kind": self.job.kind,
            "status": self.status,
            "reason": self.reason,
            "exit_code": found.group(1) if found else None,
            "context": self.context,
            "user": user,
            "time": f"{self.at:%Y-%m-%dT%H:%M:%SZ}",
        }


def stored_notices(journal: Journal, context: str) -> list[JobNotice]:
    """Read the newest notices of a context from the journal, oldest first; damaged ones are left out."""
    find = "SELECT body FROM notices WHERE context = ? ORDER BY at_s DESC LIMIT ?"
    found = []
    for (body,) in reversed(journal.rows(find, context, MAX_NOTICES)):
        with suppress(msgspec.MsgspecError, ValueError, TypeError):
            notice = msgspec.json.decode(body, type=JobNotice)
            if notice.context == context and notice.at.tzinfo is not None:
                found.append(notice)
    return found


class NoticeLog:
    """Notices of this session and of other observers, one per job and event."""

    def __init__(self, options: NotifyOptions) -> None:
        self._options = options
        self._by_key: dict[str, JobNotice] = {}
        self._stored: dict[str, JobNotice] = {}
        self._merged = set[str]()  # contexts
        # Stored by other observers, and not found here yet; True for those from before this session.
        self._foreign: dict[str, bool] = {}
        self._items: tuple[JobNotice, ...] | None = ()
        self._jobs: dict[str, _Seen] = {}
        self._seen: object = None
        self._scope: tuple[str, str] | None = None
        self._began = self._last = datetime.min

    @property
    def items(self) -> tuple[JobNotice, ...]:
        """Return the notices, newest first; the same tuple until one changes."""
        if self._items is None:
            self._items = tuple(sorted(self._by_key.values(), key=lambda each: each.at, reverse=True))
        return self._items

    def update(self, snapshot: ClusterSnapshot, jobs: tuple[Job, ...], now: datetime) -> list[JobNotice]:
        """Compare the jobs of all namespaces with the last ones, and return the notices to report.

        `now` is the server's time.
        """
        is_live = snapshot.is_synced and not snapshot.stale
        if not is_live or self._seen == (jobs, snapshot.life) or not self._options.events:
            return []
        names = own_names(snapshot.user)
        if self._scope is None or self._scope[0] != snapshot.context:
            self._jobs, self._scope, self._began = {}, None, now
        # If not all namespaces may be read, switching to another one brings jobs that are not new.
        scope = (snapshot.context, snapshot.namespace if snapshot.missing_jobs else "")
        is_same = scope == self._scope
        found: list[JobNotice] = []
        after: dict[str, _Seen] = {}
        for job in jobs:
            seen, before = (job, snapshot.signs(job)), self._jobs.get(job.uid)
            after[job.uid] = before or seen
            if (before[0] is job and before[1] == seen[1]) if before is not None else not is_same:
                continue
            if before is not None and before[0].replicas and not job.replicas:
                continue  # its object was deleted, so the end of its last pods is no news
            after[job.uid] = seen
            if (is_mine := job.user in names) or self._options.is_for_everyone:
                for event, at in self._events(before, seen, now):
                    found += self._add(_notice(event, at, seen, snapshot.context, is_mine))
                self._update_reason(before or seen, seen)
        self._jobs, self._seen, self._scope, self._last = after, (jobs, snapshot.life), scope, now
        while len(self._by_key) > MAX_NOTICES:
            del self._by_key[next(iter(self._by_key))]
        return found

    def merge(self, context: str, notices: Iterable[JobNotice]) -> None:
        """Replace the notices of a context by those that are stored now, except those that changed here."""
        found = {each.key: each for each in notices if each.event in self._options.events}
        others = {key: each for key, each in self._stored.items() if each.context != context}
        deleted = self._stored.keys() - self._by_key.keys()
        merged = {key: each for key, each in self._by_key.items() if each.context != context}
        for key in found.keys() - self._by_key.keys() - deleted:
            self._foreign[key] = context not in self._merged
        merged |= {key: each for key, each in found.items() if key not in deleted}
        for key, each in self._by_key.items():
            if self._stored.get(key) is not each:
                other = found.get(key, each)
                is_seen = each.is_seen or (other.is_seen and abs(each.at - other.at) < REPEATED)
                merged[key] = replace(each, is_seen=is_seen)
        if merged != self._by_key:
            self._items = None
        self._by_key, self._stored = merged, others | found
        self._merged.add(context)

    def unsaved(self) -> tuple[list[tuple[object, ...]], dict[str, JobNotice]]:
        """Return statements that store what has changed, and what `record_saved` takes after them."""
        put = "INSERT OR REPLACE INTO notices (context, key, at_s, body) VALUES (?, ?, ?, ?)"
        changed = [each for key, each in self._by_key.items() if self._stored.get(key) is not each]
        gone = [each for key, each in self._stored.items() if key not in self._by_key]
        return [
            *(
                (put, each.context, each.key, each.at.timestamp(), msgspec.json.encode(each))
                for each in changed
            ),
            *(("DELETE FROM notices WHERE context = ? AND key = ?", each.context, each.key) for each in gone),
        ], self._by_key.copy()

    def record_saved(self, notices: dict[str, JobNotice]) -> None:
        """Remember that these notices, and no others, are stored."""
        self._stored = notices

    def newest(self, notices: Iterable[JobNotice]) -> list[JobNotice]:
        """Return the current state of notices; the reason may have changed, and restarts may be withdrawn."""
        return [found for each in notices if (found := self._by_key.get(each.key)) is not None]

    def mark_seen(self, *notices: JobNotice) -> None:
        """Mark notices as seen."""
        for each in self.newest(notices):
            if not each.is_seen:
                self._put(replace(each, is_seen=True))

    def unseen(self) -> dict[NoticeEvent, int]:
        """Return the number of unseen notices by event, for the counter."""
        numbers: dict[NoticeEvent, int] = {}
        for each in self.items if self._options.counter != "off" else ():
            if not each.is_seen and (each.is_mine or self._options.counter == "all"):
                numbers[each.event] = numbers.get(each.event, 0) + 1
        return numbers

    def _find(self, uid: str, event: NoticeEvent) -> JobNotice | None:
        return self._by_key.get(f"{uid} {event}")

    def _put(self, notice: JobNotice) -> None:
        self._by_key[notice.key] = notice
        self._items = None

    def _events(self, seen_before: _Seen | None, seen: _Seen, now: datetime) -> Iterable[_Event]:
        job, signs = seen
        before, signs_before = seen_before or (None, NO_SIGNS)
        if before is None:
            # A job may be new only to us, for example if its kind could not be listed before.
            is_new = (job.created or self._began) >= self._began
            if not is_new and _ended_at(job, self._began) <= self._began:
                return
        status = job.status
        was = before.status if before is not None else Status.PENDING
        if status.is_final and not was.is_final and was is not Status.TERMINATING:
            event = NoticeEvent.ENDED if status is Status.SUCCEEDED else NoticeEvent.FAILED
            yield event, _ended_at(job, now)
        elif before is not None and not status.is_final and _has_restarted(before, job):
            yield NoticeEvent.RESTARTED, self._within(_ended_at(job, now), now)
        elif status is Status.RUNNING and was in NOT_YET_STARTED and not self._is_restart(was, job):
            yield NoticeEvent.STARTED, self._within(job.started or now, now)
        if status.is_final and _ended_at(job, now) < self._began:
            return
        silence = None if status.is_final else signs.silence
        if silence is not None and signs_before.silence is None:
            # Some ranks are read late, so an old silence may be found long after the console opened.
            usual = timedelta(seconds=silence.usual_s)
            if silence.since + max(SILENT_AFTER, SILENT_INTERVALS * usual) >= self._began:
                yield NoticeEvent.SILENT, now
        is_old = (job.created or self._began) < self._began and now - self._began < FIRST_READ
        known = {each.rule for each in signs_before.alerts}
        for alert in () if is_old else signs.alerts:
            if alert.rule not in known and (not status.is_final or alert.rule in RULES_AT_END):
                yield NoticeEvent(alert.rule), now

    def _is_restart(self, was: Status, job: Job) -> bool:
        is_known = self._find(job.uid, NoticeEvent.RESTARTED) is not None and was is not Status.SUSPENDED
        return is_known or job.restarts_total > 0

    def _within(self, at: datetime, now: datetime) -> datetime:
        # A time before the last update belongs to an earlier event.
        return at if self._last <= at <= now else now

    def _add(self, notice: JobNotice) -> list[JobNotice]:
        if notice.event not in self._options.events:
            return []
        is_final = notice.event in (NoticeEvent.ENDED, NoticeEvent.FAILED)
        if is_final:  # the job's earlier notices no longer matter
            self.mark_seen(*filter(None, (self._find(notice.uid, event) for event in NoticeEvent)))
            self._withdraw_restart(notice)
        old = self._by_key.pop(notice.key, None)
        was_before = self._foreign.pop(notice.key, None)
        if old is None:
            self._put(notice)
            return [notice]
        is_repeated = notice.at - old.at < REPEATED
        if is_repeated and was_before is not None:  # it is the same event, found by another observer first
            self._put(old)
            return [] if was_before else [old]
        # A job ends only once; its operator may report it later than its pods.
        count = old.count + (not (is_final and is_repeated))
        self._put(replace(notice, count=count, is_seen=old.is_seen and is_repeated))
        return [] if is_repeated else [self._by_key[notice.key]]

    def _withdraw_restart(self, end: JobNotice) -> None:
        # Until the operator reports that a job failed, its failed pod looks like a restart.
        old = self._find(end.uid, NoticeEvent.RESTARTED)
        if old is None or abs(end.at - old.at) > SETTLED:
            return
        del self._by_key[old.key]
        if old.count > 1:
            self._put(replace(old, count=old.count - 1))

    def _update_reason(self, before: _Seen, after: _Seen) -> None:
        job = after[0]
        event = {Status.FAILED: NoticeEvent.FAILED, Status.SUCCEEDED: NoticeEvent.ENDED}.get(
            job.status, NoticeEvent.RESTARTED
        )
        old = self._find(job.uid, event) if job.status in (*_BROKEN, Status.SUCCEEDED) else None
        if old is not None and (reason := _end_reason(*after, old.at)) != _end_reason(*before, old.at):
            self._put(replace(old, reason=reason))


def _notice(event: NoticeEvent, at: datetime, seen: _Seen, context: str, is_mine: bool) -> JobNotice:
    job, signs = seen
    reason = _end_reason(job, signs, at) if job.status.is_final else job.reason
    if event is NoticeEvent.SILENT:
        reason = trouble_text(signs, Clock(at))
    elif event is NoticeEvent.RESTARTED and not reason:
        reason = next((f"{each.name}: {each.reason}" for each in job.instances if each.rank_restarts), "")
    reason = next((each.text for each in signs.alerts if each.rule == event), reason)
    return JobNotice(at, event, job.ref, job.uid, context, str(job.status), reason, is_mine)


def _end_reason(job: Job, signs: LifeSigns, at: datetime) -> str:
    return without_leftovers(reason_text(job, signs, Clock(at)))


def _ended_at(job: Job, otherwise: datetime) -> datetime:
    return job.finished or job.last_exit or otherwise


def _has_restarted(before: Job, job: Job) -> bool:
    if before.status.is_final or before.status in (Status.RESTARTING, Status.TERMINATING):
        return False
    if job.status is Status.RESTARTING:
        # A pod that was only asked to stop goes with a deleted job, or is moved.
        return any(
            each.status in _BROKEN and not each.reason.startswith(ASKED_TO_STOP) for each in job.instances
        )
    return job.restarts_total > before.restarts_total


# In the order of the counter.
LOOKS: Mapping[NoticeEvent, tuple[str, CellStyle]] = {
    NoticeEvent.FAILED: ("✕", "failed"),
    NoticeEvent.SILENT: ("!", "pending"),
    NoticeEvent.NAN: ("!", "pending"),
    NoticeEvent.DIVERGED: ("!", "pending"),
    NoticeEvent.SLOW: ("!", "pending"),
    NoticeEvent.PLATEAU: ("!", "pending"),
    NoticeEvent.RESTARTED: ("↻", "changing"),
    NoticeEvent.ENDED: ("✓", "done"),
    NoticeEvent.STARTED: ("▸", "running"),
}


def counter(numbers: Mapping[NoticeEvent, int]) -> tuple[Run, ...]:
    """Return the runs of the status line's counter, such as `✕1` and `✓2`."""
    totals: dict[tuple[str, CellStyle], int] = {}
    for event, look in LOOKS.items():
        totals[look] = totals.get(look, 0) + numbers.get(event, 0)
    return tuple((f"{mark}{count(total)}", style) for (mark, style), total in totals.items() if total)


def _event(notice: JobNotice, _: Clock) -> Cell:
    mark, style = LOOKS[notice.event]
    return Cell(f"{mark} {notice.event_text}", style, sort=list(LOOKS).index(notice.event))


COLUMNS: tuple[ListColumn[JobNotice, Clock], ...] = (
    ListColumn(
        "time", "TIME", sorts_largest_first=True,
        cell=lambda notice, clock: Cell(clock.time(notice.at), sort=notice.at.timestamp()),
        value=lambda notice, _: timestamp(notice.at),
    ),
    ListColumn(
        "age", "AGE", align="right", is_age=True, priority=2,
        cell=lambda notice, clock: Cell.of_age(notice.at, clock),
    ),
    ListColumn(
        "job", "JOB", elide="middle", min_width=12, max_width=48,
        cell=lambda notice, _: Cell(sanitize(notice.job.name), "" if notice.is_seen else "bright"),
    ),
    ListColumn("event", "EVENT", cell=_event, value=lambda notice, _: notice.event),
    ListColumn(
        "namespace", "NAMESPACE", priority=3, elide="end", min_width=9, max_width=20,
        cell=lambda notice, _: Cell(sanitize(notice.job.namespace), "quiet"),
    ),
    ListColumn(
        "reason", "REASON", elide="end", min_width=20, max_width=300,
        cell=lambda notice, _: Cell(sanitize(notice.reason) or NOTHING, "quiet"),
        value=lambda notice, _: notice.reason,
    ),
)  # fmt: skip
