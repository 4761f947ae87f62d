"""Notices of what happened to jobs: found by comparing each snapshot with the one before."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from k8s.kinds.base import JobRef
from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.status.pod import ASKED_TO_STOP
from tui.jobs.filters import own_names
from tui.options import NoticeEvent, NotifyOptions
from tui.text.format import age, duration

MAX_NOTICES = 500
# The same event of the same job within this time is counted, but not reported again.
REPEATED = timedelta(minutes=10)
# The end of a job follows the failure of its pods within this time.
SETTLED = timedelta(seconds=5)
# What is found to be silent or NaN within this time was so when the console opened: logs are read late.
FIRST_READ = timedelta(minutes=1)
# Silent ranks that are named.
MAX_NAMED = 3
_NOT_YET_STARTED = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)
_BROKEN = (Status.FAILED, Status.RESTARTING)
_EXIT = re.compile(r"\bexit (\d{1,3})\b")
WORDS = {
    NoticeEvent.FAILED: "failed",
    NoticeEvent.SILENT: "is silent",
    NoticeEvent.NAN: "prints NaN",
    NoticeEvent.ENDED: "ended",
    NoticeEvent.RESTARTED: "restarted",
    NoticeEvent.STARTED: "runs",
}


@dataclass(frozen=True, slots=True)
class JobNotice:
    """One event of a job."""

    at: datetime
    """Time of the event by the server's clock, from the object where it says so."""
    event: NoticeEvent
    job: JobRef
    uid: str
    context: str
    status: str
    reason: str
    is_mine: bool
    is_seen: bool = False
    repeats: int = 1
    """Number of times that it happened."""

    @property
    def key(self) -> str:
        """Return a key that is unique in a log."""
        return f"{self.uid} {self.event}"

    @property
    def words(self) -> str:
        """Return what happened, as `failed` or `restarted ×3`."""
        return WORDS[self.event] + (f" ×{self.repeats}" if self.repeats > 1 else "")

    @property
    def text(self) -> str:
        """Return a phrase with the job's name, from outside."""
        return f"{self.job.name} {self.words}"

    def facts(self, user: str) -> dict[str, object]:
        """Return the facts for hooks, by name; `user` is the user of the cluster."""
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


class NoticeLog:
    """The notices of this session, one for each event of each job."""

    def __init__(self, options: NotifyOptions) -> None:
        self._options = options
        self._by_key: dict[str, JobNotice] = {}
        self._items: tuple[JobNotice, ...] | None = ()
        self._jobs: dict[str, Job] = {}
        self._seen_jobs: tuple[Job, ...] | None = None
        self._scope: tuple[str, str] | None = None
        self._names: tuple[str, frozenset[str]] = ("", frozenset())
        self._began = self._last = datetime.min

    @property
    def items(self) -> tuple[JobNotice, ...]:
        """Return the notices, the newest first; the same tuple until one changes."""
        if self._items is None:
            self._items = tuple(sorted(self._by_key.values(), key=lambda each: each.at, reverse=True))
        return self._items

    def update(self, snapshot: ClusterSnapshot, jobs: tuple[Job, ...], now: datetime) -> list[JobNotice]:
        """Compare the jobs with those of the last update, and return the new notices.

        Args:
            snapshot: The newest snapshot.
            jobs: Its jobs, and those of the namespaces that are not shown.
            now: The server's time.
        """
        is_live = snapshot.is_synced and not snapshot.stale
        if not is_live or jobs is self._seen_jobs or not self._options.events:
            return []
        if self._scope is None or self._scope[0] != snapshot.context:
            self._jobs, self._scope, self._began = {}, None, now
        # Where not all namespaces may be read, another one brings jobs that are not new.
        scope = (snapshot.context, snapshot.namespace if snapshot.missing_jobs else "")
        is_same = scope == self._scope
        found: list[JobNotice] = []
        after: dict[str, Job] = {}
        for job in jobs:
            before = after[job.uid] = self._jobs.get(job.uid, job)
            if before is job and (job.uid in self._jobs or not is_same):
                continue
            if before.replicas and not job.replicas:
                continue  # its object was deleted, so what its last pods do is no news; compared with the old
            after[job.uid] = job
            if self._is_of_interest(job, snapshot.user):
                for event, at in self._events(None if before is job else before, job, now):
                    found += self._add(_notice(event, at, job, snapshot.context, self._is_mine(job)))
                self._update_reason(before, job)
        self._jobs, self._seen_jobs, self._scope, self._last = after, jobs, scope, now
        while len(self._by_key) > MAX_NOTICES:
            del self._by_key[next(iter(self._by_key))]
        return found

    def newest(self, notices: Iterable[JobNotice]) -> list[JobNotice]:
        """Return the present state of notices: a reason may have become known, a restart taken back."""
        return [found for each in notices if (found := self._by_key.get(each.key)) is not None]

    def mark_seen(self, *notices: JobNotice) -> None:
        """Mark notices as seen."""
        for each in self.newest(notices):
            if not each.is_seen:
                self._put(replace(each, is_seen=True))

    def unseen(self) -> dict[NoticeEvent, int]:
        """Return the numbers of notices that the counter shows, by event."""
        numbers: dict[NoticeEvent, int] = {}
        for each in self.items if self._options.counter != "off" else ():
            if not each.is_seen and (each.is_mine or self._options.counter == "all"):
                numbers[each.event] = numbers.get(each.event, 0) + 1
        return numbers

    def _put(self, notice: JobNotice) -> None:
        self._by_key[notice.key] = notice
        self._items = None

    def _is_of_interest(self, job: Job, user: str) -> bool:
        if self._names[0] != user:
            self._names = user, own_names(user)
        return self._options.is_for_everyone or self._is_mine(job)

    def _is_mine(self, job: Job) -> bool:
        return job.user in self._names[1]

    def _events(self, before: Job | None, job: Job, now: datetime) -> Iterable[tuple[NoticeEvent, datetime]]:
        if before is None:
            # Lists may bring jobs that are new only to us, such as those of a kind that could not be read.
            is_new = (job.created or self._began) >= self._began
            if not is_new and _ended_at(job, self._began) <= self._began:
                return
        status = job.status
        was = before.status if before is not None else Status.PENDING
        if status.is_final and not was.is_final and was is not Status.TERMINATING:
            yield (
                NoticeEvent.ENDED if status is Status.SUCCEEDED else NoticeEvent.FAILED,
                _ended_at(job, now),
            )
        elif before is not None and not status.is_final and _has_restarted(before, job):
            yield NoticeEvent.RESTARTED, self._within(_ended_at(job, now), now)
        elif status is Status.RUNNING and was in _NOT_YET_STARTED and not self._is_restart(was, job):
            yield NoticeEvent.STARTED, self._within(job.started or now, now)
        is_old = (job.created or self._began) < self._began and now - self._began < FIRST_READ
        if status.is_final or is_old:
            return
        if job.silence is not None and (before is None or before.silence is None):
            yield NoticeEvent.SILENT, now
        if job.has_nan and not (before is not None and before.has_nan):
            yield NoticeEvent.NAN, now

    def _is_restart(self, was: Status, job: Job) -> bool:
        is_known = f"{job.uid} {NoticeEvent.RESTARTED}" in self._by_key and was is not Status.SUSPENDED
        return is_known or _restarts(job) > 0

    def _within(self, at: datetime, now: datetime) -> datetime:
        # A time before the last update belongs to something else: `started` may include the queue.
        return at if self._last <= at <= now else now

    def _add(self, notice: JobNotice) -> list[JobNotice]:
        if notice.event not in self._options.events:
            return []
        is_final = notice.event in (NoticeEvent.ENDED, NoticeEvent.FAILED)
        if is_final:  # what came before matters no more
            earlier = [self._by_key.get(f"{notice.uid} {event}") for event in NoticeEvent]
            self.mark_seen(*(each for each in earlier if each is not None))
            self._take_back_restart(notice)
        old = self._by_key.pop(notice.key, None)
        if old is None:
            self._put(notice)
            return [notice]
        is_repeated = notice.at - old.at < REPEATED
        # A job ends once: its operator may only see it later than its pods do.
        repeats = old.repeats + (not (is_final and is_repeated))
        self._put(replace(notice, repeats=repeats, is_seen=old.is_seen and is_repeated))
        return [] if is_repeated else [self._by_key[notice.key]]

    def _take_back_restart(self, end: JobNotice) -> None:
        # Until its operator says that a job failed, its broken pod looks like a restart.
        old = self._by_key.get(f"{end.uid} {NoticeEvent.RESTARTED}")
        if old is None or abs(end.at - old.at) > SETTLED:
            return
        del self._by_key[old.key]
        if old.repeats > 1:
            self._put(replace(old, repeats=old.repeats - 1))

    def _update_reason(self, before: Job, job: Job) -> None:
        if job.reason == before.reason or job.status not in _BROKEN:
            return
        event = NoticeEvent.FAILED if job.status is Status.FAILED else NoticeEvent.RESTARTED
        if (old := self._by_key.get(f"{job.uid} {event}")) is not None:
            self._put(replace(old, reason=job.reason))


def _notice(event: NoticeEvent, at: datetime, job: Job, context: str, is_mine: bool) -> JobNotice:
    reason = job.reason
    if event is NoticeEvent.SILENT and (silence := job.silence) is not None:
        which = f" of {', '.join(silence.writers[:MAX_NAMED])}" if silence.writers else ""
        more = f" and {len(silence.writers) - MAX_NAMED} more" if len(silence.writers) > MAX_NAMED else ""
        usual = f", usually every {duration(silence.usual_s)}" if silence.usual_s else ""
        reason = f"no line{which}{more} for {age((at - silence.since).total_seconds())}{usual}"
    elif event is NoticeEvent.NAN:
        reason = "its newest loss is not a finite number"
    return JobNotice(at, event, job.ref, job.uid, context, str(job.status), reason, is_mine)


def _ended_at(job: Job, otherwise: datetime) -> datetime:
    ends = (each.finished for each in job.instances if each.finished is not None)
    return job.finished or max(ends, default=otherwise)


def _restarts(job: Job) -> int:
    return job.restarts + sum(each.restarts for each in job.instances)


def _has_restarted(before: Job, job: Job) -> bool:
    if before.status.is_final or before.status in (Status.RESTARTING, Status.TERMINATING):
        return False
    if job.status is Status.RESTARTING:
        # A pod that was only asked to stop goes with a deleted job, or is moved.
        return any(
            each.status in _BROKEN and not each.reason.startswith(ASKED_TO_STOP) for each in job.instances
        )
    return _restarts(job) > _restarts(before)
