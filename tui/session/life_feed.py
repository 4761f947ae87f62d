"""Signs of life of running jobs: silence, slow ranks, and loss, read from their logs and event files.

The user's own and the visible running jobs are polled in turn, with background priority: each chief's
log at most every half minute, the logs of other ranks as the rate permits. The total rate does not
depend on the number of jobs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec
from msgspec.structs import replace as replace_record

from k8s.client.client import Client
from k8s.client.rate_limiter import RateLimiter, background_requests
from k8s.cluster.job_builder import RankEvidence
from k8s.jobs.permissions import Permissions
from k8s.logs import JobRanks, LogHub, LogLine, Target, find_ranks, targets_of
from k8s.logs.liveness import LEAST_S, JobLiveness
from k8s.snapshot import NO_SIGNS, CurveAlert, Job, LifeSigns
from k8s.status import Status
from k8s.text.errors import Invalid, KubeError, NotFound
from trainer.tfevents import ScalarCurve
from tui.runs.alerts import RunHistory, curve_alerts, shown_alerts, signs_at_end
from tui.runs.curve_feed import CurveFeed
from tui.runs.journal.kept_facts import Points, add_curves, curves_of, keep_curves
from tui.runs.journal.kept_logs import KEPT_LINES, ReadTail, Streamed, keep_logs
from tui.runs.log_points import log_curves
from tui.runs.record import RunRecord, loss_tag, with_values
from tui.runs.run_records import (
    Gpus,
    NodesAndPods,
    as_deleted,
    describe_run,
    gpus_of,
    is_gone,
    job_record,
    with_alerts,
    with_log,
)
from tui.runs.store import RunStore
from tui.session.last_facts import keep_job_events
from tui.session.life import FIRST_LINES, LINES, READS_PER_S, Life, few_of
from tui.settings.options import DEFAULT_ALERTS, RULES_AT_END, AlertRule
from tui.tables.filters import own_names

# Shortest interval between two reads of one log.
READ_S = 30.0
# Interval at which an idle feed checks for jobs to read.
POLL_S = 0.5
# Reads for the first jobs beyond the sustained rate.
BURST = 40
# Those of the logs that are kept of jobs that ended; live jobs do not wait for them.
KEPT_PER_S, KEPT_BURST = 1.0, 16
# Concurrent reads, so that a node that does not answer does not delay the others.
MAX_READS = 4
# One of so many reads is for a rank other than the chief, even if chiefs are waiting.
OTHERS_SHARE = 4
# Other ranks to read if the chief is silent.
MAX_SUSPECTS = 8
# Reads of a chief's log before each of which the pod of rank 0 is looked for, if it is not known.
MAX_PROBES = 4
# Lines to read from the end of another rank's log.
OTHER_LINES = 40
# After a read of this size, the next one asks for half as many lines.
LARGE_BYTES = 128 * 1024
# New lines to search for losses per read.
LOSS_LINES = 100
# The least recently read jobs are dropped beyond this number, because a console runs for days.
MAX_JOBS = 512
IDLE_S = 10.0
LOG_PERMISSION = "get pods/log"


class _JobReads(msgspec.Struct, eq=False):
    job: Job
    liveness: JobLiveness
    ranks: JobRanks = msgspec.field(default_factory=JobRanks)
    at_s: float = -math.inf  # loop time of the last read of its chief's log
    others_at_s: float = -math.inf
    next_other: int = 0
    lines: int = FIRST_LINES
    newest: dict[object, Sequence[LogLine]] = msgspec.field(default_factory=dict)
    losses: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=LINES))
    history: RunHistory = msgspec.field(default_factory=RunHistory)
    alerts: tuple[CurveAlert, ...] = ()
    files: CurveFeed | None = None
    run: RunRecord | None = None  # with the values in the lines read so far
    points: Points = msgspec.field(default_factory=dict)  # in these lines
    is_described: bool = False
    probes: int = 0  # for the pod of rank 0
    gpus: Gpus | None = None
    is_busy: bool = False


class LifeFeed:
    """Signs of life and losses of the user's own and the visible running jobs.

    Views show the losses in `life` and the `signs`; only the feed's own task sends requests.
    """

    def __init__(
        self,
        client: Client,
        permissions: Permissions | None,
        jobs: Callable[[], Sequence[Job]],
        *,
        life: Life | None = None,
        hub: LogHub | None = None,
        runs: RunStore | None = None,
        place: Callable[[], NodesAndPods] = NodesAndPods,
        on_signs: Callable[[], None] = lambda: None,
        rules: Collection[AlertRule] = DEFAULT_ALERTS,
        names: Callable[[str], Container[str]] = own_names,
        per_s: float = READS_PER_S,
        least_s: float = LEAST_S,
        read_s: float = READ_S,
    ) -> None:
        """Prepare; no request is sent before `run`.

        `jobs` returns all jobs, of which the user's own running ones are read, besides the visible jobs of
        `life`. Lines that `hub` holds are not read again. Without `permissions`, the permission to read logs
        is not checked. Runs that end are recorded in `runs`; `place` returns the nodes and pods of the
        cluster. `on_signs` is called when `signs` or `evidence` change. `names` returns the names whose jobs
        count as the user's own; `per_s` is the rate of reads in the long run.
        """
        self.life = life or Life()
        self.life.is_idle = self._is_idle
        self.client = client
        self._hub = hub or LogHub(client)
        self.runs = runs or RunStore()
        self._place = place
        self._permissions = permissions
        self._jobs = jobs
        self._on_signs = on_signs
        self._rules = rules
        self._names = names
        self._least_s = least_s
        self._read_s = read_s
        self._reads: dict[str, _JobReads] = {}
        self._signs: dict[str, LifeSigns] = {}
        self.evidence: dict[str, RankEvidence] = {}
        """Ranks that the lines of jobs prove, by uid."""
        self._by_uid = self._reads, self._signs, self.evidence, self.life.losses, self.life.curves
        self._seen_jobs: Sequence[Job] = ()
        self._own_running: tuple[Job, ...] = ()
        self._ended: tuple[Job, ...] = ()
        self._gone: dict[str, Job] = {}
        self._wanted: Collection[str] = ()
        self._turn = 0
        # A limiter of its own, so that many jobs cost the cluster no more than a few.
        self._limiter = RateLimiter(per_s, BURST, reserve=0, background_delay_s=0)
        self._kept_limiter = RateLimiter(KEPT_PER_S, KEPT_BURST, reserve=0, background_delay_s=0)
        self._to_keep: asyncio.Queue[tuple[Job, ReadTail]] = asyncio.Queue()
        self._with_events: asyncio.Queue[Job] = asyncio.Queue()

    def _is_idle(self) -> bool:
        self._next_chief()
        found = (self._reads[job.uid] for job in self.life.visible_jobs if job.uid in self._wanted)
        return all(each.at_s > -math.inf and not each.is_busy for each in found)

    def signs(self, jobs: Iterable[Job]) -> Mapping[str, LifeSigns]:
        """Return the trouble in the output of these jobs, by uid of those that have any."""
        found = ((job, self._signs[job.uid]) for job in jobs if job.uid in self._signs)
        running = Status.RUNNING
        return {
            job.uid: signs if job.status is running else _lasting(signs, RULES_AT_END) for job, signs in found
        }

    async def run(self) -> None:
        """Read until cancelled."""
        slots = asyncio.Semaphore(MAX_READS)
        with background_requests():
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_ended())
                group.create_task(self._keep_events())
                while True:
                    await slots.acquire()
                    while (found := self._next()) is None:
                        await asyncio.sleep(POLL_S)
                    await self._limiter.acquire(is_urgent=False)
                    group.create_task(self._read_next(*found, slots))

    def _next(self) -> tuple[_JobReads, bool] | None:
        # The next job to read, and whether to read its chief.
        chief, other = self._next_chief(), self._next_other()
        self._turn += 1
        found = other if other is not None and self._turn % OTHERS_SHARE == 0 else chief or other
        if found is None:
            return None
        now_s = asyncio.get_running_loop().time()
        found.is_busy = True
        if found is chief:
            found.at_s = now_s
            self._forget_oldest()
        else:
            found.others_at_s = now_s
        return found, found is chief

    def _update_jobs(self) -> None:
        jobs = self._jobs()
        if self._seen_jobs is jobs:
            return
        self._seen_jobs, running = jobs, (job for job in jobs if job.status is Status.RUNNING)
        names = self._names(self.client.config.acting_user)  # unknown before the first response
        self._own_running = tuple(job for job in running if job.user in names)
        self._ended = tuple(job for job in jobs if job.status.is_final and job.uid in self._reads)
        uids = {job.uid for job in jobs}
        for uid, reads in self._reads.items():
            is_new = uid not in uids and uid not in self._gone and uid not in self.runs
            if is_new and len(self._gone) < MAX_JOBS:  # more may go than can be looked for
                self._gone[uid] = reads.job
                reads.at_s = -math.inf
        kept = {*uids, *self._gone, *(job.uid for job in self.life.visible_jobs)}
        for by_uid in self._by_uid:
            for uid in by_uid.keys() - kept:
                del by_uid[uid]

    def _next_chief(self) -> _JobReads | None:
        self._update_jobs()
        shown = self.life.visible_jobs
        visible = [job for job in shown if job.status is Status.RUNNING or job.status.is_final]
        ended = (job for job in (*visible, *self._ended) if not job.status.is_final or self._lacks_loss(job))
        # Visible jobs first.
        wanted = {job.uid: job for job in (*ended, *self._own_running, *self._gone.values())}
        for uid, job in wanted.items():
            reads = self._reads.get(uid)
            if reads is None:
                reads = self._reads[uid] = _JobReads(job, JobLiveness(self._least_s))
            if job.status.is_final and not reads.job.status.is_final:
                reads.at_s = -math.inf  # to read its last loss
            if job.restarts_total > reads.job.restarts_total and self._is_own(job):
                self._with_events.put_nowait(job)
            reads.job = job
        for job in visible:
            if job.uid not in self._signs and job.status.is_final:
                self._set_signs(job.uid, signs_at_end(job, self.runs.get(job.uid)))
        self._wanted = wanted.keys()
        due_s = asyncio.get_running_loop().time() - self._read_s
        due = [each for uid in wanted if not (each := self._reads[uid]).is_busy and each.at_s <= due_s]
        return min(due, key=lambda each: each.at_s, default=None)

    def _lacks_loss(self, job: Job) -> bool:
        has_log = job.log_dir or any(each.pod for each in job.instances)
        return job.uid not in self.runs and bool(has_log)

    def _next_other(self) -> _JobReads | None:
        # One log of each job in turn, at a rate by which each pod is read as often as in smaller jobs.
        now_s = asyncio.get_running_loop().time()
        due = [
            each
            for each in map(self._reads.__getitem__, self._wanted)
            if each.job.status is Status.RUNNING
            and each.job.uid not in self._gone
            and not each.is_busy
            and each.at_s > -math.inf
            and (others := len(each.job.instances) - 1)
            and each.others_at_s + self._read_s / others <= now_s
        ]
        return min(due, key=lambda each: each.others_at_s, default=None)

    def _forget_oldest(self) -> None:
        hidden = [each for uid, each in self._reads.items() if uid not in self._wanted]
        hidden.sort(key=lambda each: each.at_s)
        # What was found in a job that is no longer read is soon out of date.
        old_s = asyncio.get_running_loop().time() - 4 * self._read_s
        for each in hidden:
            is_over = each.job.status.is_final  # then it stays as it was at its end
            if each.at_s < old_s and not is_over:
                signs = self._signs.get(each.job.uid, NO_SIGNS)
                self._set_signs(each.job.uid, _lasting(signs, (AlertRule.NAN,)))
        for old in hidden[: max(0, len(self._reads) - MAX_JOBS)]:
            for by_uid in self._by_uid:
                by_uid.pop(old.job.uid, None)

    async def _read_next(self, reads: _JobReads, is_chief: bool, slots: asyncio.Semaphore) -> None:
        # Errors are shown by the views of the job.
        job = reads.job
        try:
            if job.uid in self._gone:
                await self._record_gone(reads)
            elif job.status is not Status.RUNNING:
                await self._read_last(reads)
                self._judge(reads)
            elif await self._may_read(job):
                await (self._read_chief(reads) if is_chief else self._read_other(reads))
                self._judge(reads)
        except KubeError as error:
            if job.status.is_final and isinstance(error, NotFound | Invalid):
                await self._record(reads, replace_record(self._newest(reads), is_partial=True))
                self.life.set_loss(job, ())
        finally:
            reads.is_busy = False
            slots.release()

    async def _may_read(self, job: Job) -> bool:
        if self._permissions is None:
            return True
        return (await self._permissions.fetch(LOG_PERMISSION, job.ref.namespace)).is_allowed is not False

    async def _read_chief(self, reads: _JobReads) -> None:
        job = reads.job
        reads.liveness.begin(job)
        reads.gpus = gpus_of(job, self._place()) or reads.gpus
        if reads.run is not None:  # the losses of all jobs come first
            await self._describe(reads)
        reads.run = reads.run or job_record(job, self.client.config.context)
        now_s = time.time() + self.client.server_clock_offset_s
        reads.liveness.add_status(job.progress, now_s, asyncio.get_running_loop().time())
        values = await self._from_files(reads)
        self._record_values(job, values)
        if reads.probes < MAX_PROBES:  # its pods may not have printed at first
            reads.probes += 1
            await find_ranks(self.client, job, ranks=reads.ranks, is_urgent=False)
        job = reads.ranks.apply(job)
        if target := next(iter(targets_of(job)), None):
            lines, new = await self._read_log(reads, target, reads.lines)
            is_large = sum(len(line.raw) for line in lines) > LARGE_BYTES
            enough = min(FIRST_LINES, max(LINES, 4 * reads.liveness.writer_count))
            reads.lines = max(OTHER_LINES, reads.lines // 2) if is_large else min(reads.lines, enough)
            if new and not values:
                curves = await asyncio.to_thread(log_curves, new[-LOSS_LINES:])
                await self._add_losses(reads, curves)
                reads.losses.extend(_losses_of(curves))
                self._record_values(job, few_of(reads.losses))
                reads.run = with_values(reads.run, curves, adds=True)
        suspects = targets_of(job)[1 : 1 + MAX_SUSPECTS] if reads.liveness.needs_others(job) else ()
        for target in suspects:
            await self._limiter.acquire(is_urgent=False)
            await self._read_log(reads, target, OTHER_LINES)

    async def _add_losses(self, reads: _JobReads, curves: Sequence[ScalarCurve]) -> None:
        add_curves(reads.points, curves)
        by_tag = {each.tag: each for each in curves}
        reads.history.add(by_tag, loss_tag(by_tag))
        reads.alerts = await asyncio.to_thread(reads.history.alerts, self._rules)

    def _record_values(self, job: Job, values: Sequence[float]) -> None:
        if values and values != self.life.losses.get(job.uid):
            self.life.set_loss(job, values)

    async def _read_other(self, reads: _JobReads) -> None:
        if others := targets_of(reads.ranks.apply(reads.job))[1:]:
            reads.next_other = (reads.next_other + 1) % len(others)
            await self._read_log(reads, others[reads.next_other], OTHER_LINES)

    async def _read_log(
        self, reads: _JobReads, target: Target, lines: int
    ) -> tuple[Sequence[LogLine], Sequence[LogLine]]:
        # Time of the request: the machine may sleep before the response arrives.
        sent_s, now_s = time.time(), asyncio.get_running_loop().time()
        # A microsecond later, as seconds are not exact. Without news the server is asked: a stream may hang.
        newest_ns = int((reads.liveness.newest_of(target) or 0.0) * 1e9) + 1_000
        found = await self._hub.read_tail(target, lines, newer_than_ns=newest_ns, idle_s=IDLE_S)
        if found and self._is_own(reads.job):
            reads.newest[target.key] = found[-LINES:]
        sent_s += self.client.server_clock_offset_s
        reads.ranks.add(target, found)
        return found, await asyncio.to_thread(reads.liveness.add, target, found, sent_s, now_s)

    def _judge(self, reads: _JobReads) -> None:
        job, liveness, alerts = reads.job, reads.liveness, shown_alerts(reads.alerts, reads.job.status)
        evidence = reads.ranks.evidence(job, dict(liveness.rank_restarts))
        if evidence != self.evidence.pop(job.uid, None):
            self._on_signs()
        if evidence is not None:
            self.evidence[job.uid] = evidence
        self._set_signs(job.uid, LifeSigns(liveness.silence(job), liveness.stragglers(job), alerts))

    def _set_signs(self, uid: str, signs: LifeSigns) -> None:
        if signs != self._signs.get(uid, NO_SIGNS):
            self._signs[uid] = signs
            self._on_signs()

    async def _describe(self, reads: _JobReads) -> None:
        # Once for each job, and early: its object may be gone when the run has ended.
        if not reads.is_described:
            await self._limiter.acquire(is_urgent=False)
            reads.run = await describe_run(self.client, reads.job, self._place(), reads.run, reads.gpus)
            reads.is_described = True

    async def _read_last(self, reads: _JobReads) -> None:
        # Values that were read while the job ran may lack its last lines.
        values = await self._from_files(reads)
        if not values and not await self._may_read(reads.job):
            return
        await self._describe(reads)
        job = await find_ranks(self.client, reads.job, ranks=reads.ranks, is_urgent=False)
        if is_own := self._is_own(job):
            self._with_events.put_nowait(job)
        if (target := next(iter(targets_of(job)), None)) is not None:
            try:
                tail = await self._hub.read_tail(
                    target, KEPT_LINES if is_own else FIRST_LINES, is_whole=is_own
                )
            except KubeError:
                await self._keep_streamed(job)
                raise
            newest_s = reads.liveness.newest_of(target) or 0.0
            if reads.run is not None:
                new = [line for line in tail if line.stamp_ns > newest_s * 1e9]
                added = await asyncio.to_thread(log_curves, new)  # up to a tenth of a second
                reads.run = with_log(reads.run, added, new, adds=True)
                if not values:
                    await self._add_losses(reads, added)
            if not values:
                curves = await asyncio.to_thread(log_curves, tail)
                add_curves(reads.points, curves)
                values = _losses_of(curves)
            if is_own:
                self._to_keep.put_nowait((job, partial(self._read_kept, target, tail)))
        await self._record(reads, with_alerts(self._newest(reads), reads.alerts))
        self.life.set_loss(reads.job, values)

    def _is_own(self, job: Job) -> bool:
        return job.user in self._names(self.client.config.acting_user)

    async def _keep_streamed(self, job: Job) -> None:
        if self._is_own(job):
            await keep_logs(self.runs.journal, job, None, self._known_lines(job))

    def _known_lines(self, job: Job) -> Streamed:
        # Of logs that nobody follows, the last lines that were read while the job ran.
        newest = self._reads[job.uid].newest if job.uid in self._reads else {}

        def find(target: Target, lines: int) -> Sequence[LogLine]:
            return self._hub.streamed_lines(target, lines) or newest.get(target.key, ())

        return find

    async def _keep_ended(self) -> None:
        while True:
            job, read_tail = await self._to_keep.get()
            await keep_logs(self.runs.journal, job, read_tail, self._known_lines(job))
            self._to_keep.task_done()

    async def _keep_events(self) -> None:
        while True:
            jobs = [await self._with_events.get()]
            await self._kept_limiter.acquire(is_urgent=False)
            while not self._with_events.empty():  # one request serves those of a namespace
                jobs.append(self._with_events.get_nowait())
            pods, journal = self._place().pods, self.runs.journal
            await keep_job_events(self.client, journal, jobs, pods, self._jobs())
            for _ in jobs:
                self._with_events.task_done()

    async def _read_kept(
        self, chief: Target, tail: Sequence[LogLine], target: Target, lines: int
    ) -> Sequence[LogLine]:
        if target.key == chief.key:
            return tail
        await self._kept_limiter.acquire(is_urgent=False)
        return await self._hub.read_tail(target, lines, is_whole=True)

    async def _record_gone(self, reads: _JobReads) -> None:
        # A job of another namespace than the one shown is not gone.
        job = self._gone[reads.job.uid]
        try:
            if await is_gone(self.client, job.ref, job.uid):
                await self._keep_streamed(job)
                if self._is_own(job):
                    self._with_events.put_nowait(job)
                await self._record(reads, as_deleted(replace_record(self._newest(reads), is_partial=True)))
        finally:
            for by_uid in (self._gone, self._reads):
                by_uid.pop(job.uid, None)

    async def _record(self, reads: _JobReads, record: RunRecord) -> None:
        files = reads.files.curves() if reads.files is not None else []
        is_log = not any(map(len, files))
        curves = curves_of(reads.points) if is_log else files
        await asyncio.to_thread(keep_curves, self.runs.journal, record.uid, curves, is_log=is_log)
        self.runs.add(record)

    def _newest(self, reads: _JobReads) -> RunRecord:
        job, run = reads.job, reads.run
        found = job_record(job, self.client.config.context)
        if run is not None:
            names = ("status", "reason", "created_s", "started_s", "ended_s", "seen_s")
            found = replace_record(run, **{name: getattr(found, name) for name in names})
        if reads.files is not None and (curves := [each for each in reads.files.curves() if len(each)]):
            found = replace_record(found, source=reads.files.source)
            found = with_values(found, curves, reads.files.events.texts())
        return found

    async def _from_files(self, reads: _JobReads) -> Sequence[float]:
        job = reads.job
        if not job.log_dir:
            return ()
        reads.files = reads.files or CurveFeed(self.client, job.ref, lambda: reads.job)
        if not await reads.files.read_local():
            return ()
        curves = {each.tag: each for each in reads.files.curves() if len(each)}
        if not (tag := loss_tag(curves)):
            return ()
        self.life.curves[job.uid] = curve = _copied(curves[tag])
        reads.alerts = await asyncio.to_thread(curve_alerts, curves, tag, self._rules)
        now_s = time.time() + self.client.server_clock_offset_s
        newest = zip(curve.steps[-LINES:], curve.wall_times[-LINES:], strict=True)
        reads.liveness.add_metrics(newest, now_s, asyncio.get_running_loop().time())
        return few_of(curve.values)


def _lasting(signs: LifeSigns, rules: Collection[AlertRule]) -> LifeSigns:
    return LifeSigns(alerts=tuple(each for each in signs.alerts if each.rule in rules))


def _losses_of(curves: Sequence[ScalarCurve]) -> Sequence[float]:
    by_tag = {curve.tag: curve for curve in curves}
    tag = loss_tag(by_tag)
    return few_of(by_tag[tag].values) if tag else ()


def _copied(curve: ScalarCurve) -> ScalarCurve:
    # A copy, because a thread keeps appending to the original.
    return replace(curve, steps=curve.steps[:], wall_times=curve.wall_times[:], values=curve.values[:])
