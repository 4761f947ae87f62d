"""The job pane of home: log, loss and details of the job under the cursor.

At most one log is read: that of the shown rank, while the pane is visible and the cursor rests. Its stream
is closed soon after the cursor has moved on, and resumes if the cursor returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer

from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.text.sanitize import log_text, sanitize
from tui.settings.keys import JOB_PANE, LOG, SCROLL, Key
from tui.terminal.driver import PacedApp
from tui.text.empty_states import no_lines
from tui.text.format import Clock, plural, trouble_text
from tui.text.progress import progress_in
from tui.widgets.bindings import bindings
from tui.widgets.home.preview import DRAW_S, FETCH_S, Preview
from tui.widgets.table.visible_lines import SHORTEST_TIMER_S

if TYPE_CHECKING:
    from k8s.jobs.permissions import Permissions
    from k8s.logs import Item, JobLogs, JobRanks, LineQueue, LogHub, LogSelection
    from trainer.tfevents import ScalarCurve
    from tui.session.log_tail import TailChoice
    from tui.session.session import Session
    from tui.widgets.curve_chart import LossChart
    from tui.widgets.log.view import LogView

# Shortest interval between two scans of new lines for loss and progress.
POINTS_S = 1.0
# Lines scanned before keys are handled.
LINES_PER_TURN = 50
RECENT = 20
# Without this permission no log is requested.
LOG_PERMISSION = "get pods/log"
_NO_JOB = "The log and loss of the selected job appear here."
_NOT_STARTED = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)


class _Tail(msgspec.Struct):
    hub: LogHub
    job_uid: str
    choice: TailChoice
    logs: JobLogs
    queue: LineQueue
    points: LineQueue

    def is_of(self, hub: LogHub, job: Job, choice: TailChoice) -> bool:
        return (self.hub, self.job_uid, self.choice.place) == (hub, job.uid, choice.place)


class JobPane(Container, can_focus=True):
    """A growing log, with the loss beside it; without a log, the details of the job."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_PANE)

    session: reactive[Session | None] = reactive(None, repaint=False)

    class LogsWanted(Message):
        """The user wants the full log."""

        def __init__(self, instance: str) -> None:
            super().__init__()
            self.instance = instance
            """Instance of the shown log; empty for the first rank."""

    def __init__(
        self,
        log_keys: Sequence[Key] = (*SCROLL, *LOG),
        is_explained: Callable[[str], bool] = lambda _uid: False,
    ) -> None:
        """Create an empty pane.

        Args:
            log_keys: Keys of the log.
            is_explained: Returns True if the list shows the reason of a job, by uid, in full.
        """
        super().__init__(id="job_pane")
        self._log_keys = log_keys
        self._facts = Preview(is_explained)
        self._facts.empty = _NO_JOB
        self._job: Job | None = None
        self._snapshot = ClusterSnapshot()
        self._log: LogView | None = None
        self._chart: LossChart | None = None
        self._ranks: JobRanks | None = None  # of the shown job, once its logs were read for them
        self._wanted: LogSelection | None = None
        self._tail: _Tail | None = None
        self._rest_timer: Timer | None = None
        self._points_timer: Timer | None = None
        self._progress = ""
        self._is_stopped = self._is_scanning = False

    def compose(self) -> ComposeResult:
        """Lay out the details; log and chart are added when there is a log to read."""
        yield self._facts.data_bind(JobPane.session)

    @property
    def is_live(self) -> bool:
        """True if the pane is visible, and so may send requests."""
        return self.is_mounted and self.display and self.screen is self.app.screen

    @property
    def is_idle(self) -> bool:
        """True if the pane is hidden, or has opened the log and scanned its lines."""
        is_opening = self.is_streaming and (self._tail is None or not self._tail.logs.targets)
        timers = self._rest_timer or self._points_timer
        return not self.is_live or (timers is None and not is_opening and not self._is_scanning)

    @property
    def focus_target(self) -> Container | LogView:
        """Widget to focus: the log, or the pane before there is one."""
        return self._log or self

    @property
    def holds_focus(self) -> bool:
        """True if the pane or its log is focused."""
        return self.has_focus or (self._log is not None and self._log.has_focus)

    @property
    def shown_log(self) -> tuple[JobLogs, LogSelection] | None:
        """Reader and selection of the shown log; None without a log."""
        return (self._tail.logs, self._tail.choice.selection) if self._tail is not None else None

    @property
    def is_streaming(self) -> bool:
        """True while a log is being read."""
        return any(each.group == "tail" and not each.is_finished for each in self.workers)

    def show(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show a job; the same one may be shown again."""
        was, self._job, self._snapshot = self._job, job, snapshot
        self.set_class(job is None, "-empty")
        if not self.display:
            return
        self._facts.show(job, snapshot)
        if _uid(was) != _uid(job):
            self._ranks = None
            self.leave()
            self._forget()
            self._begin_later(FETCH_S - DRAW_S)  # the cursor has rested for a while before it is shown
        elif self._is_stopped:
            self._begin_later(FETCH_S - DRAW_S)
        elif was is not job:
            self._set_targets()
        self._show_history()
        self._update_title()

    def consider(self) -> None:
        """Resume if the pane is visible, otherwise stop."""
        if not self.is_live:
            self.leave()
        elif not self.is_streaming and self._rest_timer is None:
            self._facts.show(self._job, self._snapshot)
            self._begin_later()
        self._update_title()

    def _begin_later(self, wait_s: float = FETCH_S) -> None:
        if self._job is not None and self.is_live:
            self._is_stopped = False
            self._rest_timer = self.set_timer(max(wait_s, SHORTEST_TIMER_S), self._begin)

    def _begin(self) -> None:
        # A waiting key may move the cursor: then it does not rest yet.
        self._rest_timer = None
        if isinstance(self.app, PacedApp) and self.app.key_queue.has_keys:
            self._begin_later()
            return
        if self.session is not None and self._job is not None and self.is_live:
            self._follow(self.session, self._job)

    def leave(self) -> None:
        """Stop reading until a job is shown or `consider` is called."""
        self._is_stopped = True
        if self._rest_timer is not None:
            self._rest_timer.stop()
            self._rest_timer = None
        if self.is_streaming:
            self.workers.cancel_group(self, "tail")

    def _forget(self) -> None:
        self._tail = self._wanted = None
        self._progress = ""
        if self._log is not None:
            self._log.show(None)
            self._log.show_placeholder("…")
        if self._chart is not None:
            self._chart.clear(None)
        self._arrange()

    @work(group="tail", exclusive=True)
    async def _follow(self, session: Session, job: Job) -> None:
        from k8s.logs import JobRanks, find_ranks
        from tui.session.log_tail import choose

        log = await self._mount_log()
        client, permissions = session.client, session.permissions
        refusal = await _refusal(permissions, job.ref.namespace)
        if self._ranks is None and not refusal:
            ranks = JobRanks()
            await find_ranks(client, job, ranks=ranks)
            self._ranks = ranks
        job = self._ranked_job or job  # what is known of it may be more by now: its ranks
        choice = choose(job, self._wanted)
        if choice is None or (job.status in _NOT_STARTED and not job.instances_running):
            self.add_class("-silent")
            log.show_placeholder("No pod runs yet, so there is no log.")
            return
        if refusal:
            log.show_placeholder(refusal)
            return
        tail = self._tail_of(session.logs, job, choice)
        self.remove_class("-silent")
        self._update_title()
        await tail.logs.run()

    @property
    def _ranked_job(self) -> Job | None:
        return (
            self._ranks.apply(self._job) if self._ranks is not None and self._job is not None else self._job
        )

    def _loss_of(self, uid: str) -> ScalarCurve | None:
        return self.session.life.curves.get(uid) if self.session is not None else None

    def _tail_of(self, hub: LogHub, job: Job, choice: TailChoice) -> _Tail:
        from k8s.logs import JobLogs
        from tui.session.log_tail import TAIL

        tail = self._tail
        if tail is not None and tail.is_of(hub, job, choice):
            tail.logs.set_targets([choice.target])
            return tail
        logs = JobLogs(hub, [choice.target], request=TAIL)
        tail = _Tail(hub, job.uid, choice, logs, logs.open(choice.selection), logs.open(choice.selection))
        tail.points.on_news = self._scan_soon
        self._tail = tail
        if self._chart is not None:
            self._chart.clear(self._loss_of(job.uid))
        if self._log is not None:
            self._log.empty = no_lines(job, choice.target.name, "l, then p")
            self._log.show(tail.queue)
        return tail

    async def _mount_log(self) -> LogView:
        if self._log is None:
            from tui.widgets.curve_chart import LossChart
            from tui.widgets.log.view import LogView

            log, chart = LogView(keys=self._log_keys), LossChart()
            chart.display = False  # until it has points
            mounting = self.mount(chart, log)
            self._log, self._chart = log, chart  # before the wait: it may be cancelled
            if self.has_focus:
                log.focus()
            self.can_focus = False  # the log takes its keys from now on
            self._show_history()
            await mounting
        return self._log

    def _set_targets(self) -> None:
        from tui.session.log_tail import choose

        job, tail = self._ranked_job, self._tail
        if job is None:
            return
        choice = choose(job, self._wanted)
        if tail is not None and choice is not None:
            # Its ranks are known only now, or run in another pod.
            if choice.place != tail.choice.place:
                self.leave()
                self._forget()
                self._begin_later()
                return
            tail.choice = choice
            tail.logs.set_targets([choice.target])
        if not self.is_streaming and self._rest_timer is None:
            self._begin_later()

    def _scan_soon(self) -> None:
        if self._points_timer is None:
            self._points_timer = self.set_timer(POINTS_S, self._scan)

    async def _scan(self) -> None:
        self._points_timer = None
        tail, chart = self._tail, self._chart
        if tail is not None and chart is not None:
            self._is_scanning = True
            await self._scan_items(tail, chart)
            self._is_scanning = False

    async def _scan_items(self, tail: _Tail, chart: LossChart) -> None:
        items: Sequence[Item] = tail.points.take(everything=True)
        texts: list[bytes] = []
        for start in range(0, len(items), LINES_PER_TURN):
            texts = [*chart.add_lines(items[start : start + LINES_PER_TURN]), *texts][:RECENT]
            await asyncio.sleep(0)
            if self._tail is not tail:
                return
        chart.draw()
        self._progress = next(filter(None, (progress_in(log_text(each)) for each in texts)), self._progress)
        self._arrange()
        self._update_title()

    def _show_history(self) -> None:
        if self._chart is not None:
            self._chart.set_history(self._loss_of(_uid(self._job)))
            self._arrange()

    def _arrange(self) -> None:
        has_points = self._chart is not None and self._chart.has_points
        if self._chart is not None:
            self._chart.display = has_points
        self._facts.display = self.has_class("-side") or not has_points

    def set_side(self, is_side: bool) -> None:
        """Arrange the pane for a place beside or below the list."""
        self.set_class(is_side, "-side")
        self._arrange()

    def _update_title(self) -> None:
        job = self._job
        words = ["no job"]
        if job is not None:
            choice = self._tail.choice if self._tail is not None else None
            progress = sanitize(job.progress) if job.progress else self._progress
            clock = Clock.ahead(self._snapshot.clock_offset_s)
            is_running = job.status is Status.RUNNING
            trouble = trouble_text(self._snapshot.signs(job), clock)
            running = ", ".join(filter(None, (progress, trouble))) if is_running else ""
            rank = choice.selection.rank if choice is not None else None
            ranks = plural(job.ranks_total, "rank") if rank is None and job.ranks_total > 1 else ""
            whose = f"rank {rank} of {job.ranks_total}" if rank is not None else ranks
            words = [sanitize(job.ref.name), whose, running, choice.target.name if choice is not None else ""]
        title = Content(f"{'' if self.has_class('-side') else ' '}3 {' · '.join(filter(None, words))} ")
        if self.border_title != title.markup:
            self.border_title = title

    def action_step_rank(self, ranks: int) -> None:
        """Show the next or previous rank."""
        from tui.session.log_tail import step

        job = self._ranked_job
        if job is not None and (wanted := step(job, self._wanted, ranks)) is not None:
            self.leave()
            self._forget()
            self._wanted = wanted
            self._begin_later()
            self._update_title()

    def action_open_logs(self) -> None:
        """Request the full log."""
        choice = self._tail.choice if self._tail is not None and self._wanted is not None else None
        self.post_message(self.LogsWanted(choice.target.instance if choice is not None else ""))


def _uid(job: Job | None) -> str:
    return job.uid if job is not None else ""


async def _refusal(permissions: Permissions, namespace: str) -> str:
    found = await permissions.fetch(LOG_PERMISSION, namespace)
    return f"{found.why[:1].upper()}{found.why[1:]}." if found.is_allowed is False else ""
