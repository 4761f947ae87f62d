"""The third pane of home: what the job under the cursor says, how its loss goes, why it is so.

One log is streamed at most: that of the rank that is shown, while the pane is in sight and the cursor
rests. It is left at once when the cursor moves on, and taken up where it was left when it comes back soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.timer import Timer

from k8s.snapshot import ClusterSnapshot, Job
from k8s.status import Status
from k8s.text.sanitize import log_text, sanitize
from tui.keys import JOB_PANE
from tui.terminal.driver import PacedApp
from tui.text.format import plural
from tui.text.progress import progress_in
from tui.widgets.bindings import bindings
from tui.widgets.preview import DRAW_S, FETCH_S, Preview
from tui.widgets.table.flashes import SHORTEST_TIMER_S

if TYPE_CHECKING:
    from k8s.client.client import Client
    from k8s.jobs.permissions import Permissions
    from k8s.logs import Feed, Item, JobLogs, LogSelection
    from trainer.tfevents import ScalarCurve
    from tui.feeds.log_tail import TailChoice
    from tui.widgets.home.loss_chart import LossChart
    from tui.widgets.log.view import LogView

POINTS_S = 1.0
"""How often at most the loss and the progress are looked for in new lines."""
LINES_PER_TURN = 50
"""How many lines are looked through before a key is answered."""
RECENT = 20
"""Newest lines in which the progress is looked for."""
KEPT_S = 60.0
"""How long a log that was left is taken up again where it was left; after that it begins near its end."""
LOG_PERMISSION = "get pods/log"
"""What the user must be allowed to do, else nothing is asked."""
_NO_JOB = "What the job under the cursor says is shown here, and how its loss goes."
_NOT_STARTED = (Status.QUEUED, Status.PENDING, Status.STARTING, Status.SUSPENDED)


@dataclass(slots=True)
class _Tail:
    """The log that is shown, streamed or left."""

    client: Client
    job_uid: str
    choice: TailChoice
    logs: JobLogs
    feed: Feed
    points: Feed
    left_at_s: float | None = None
    """Since when it is not streamed, by the event loop's clock."""

    def is_of(self, client: Client, job: Job, choice: TailChoice, now_s: float) -> bool:
        """Tell whether this is the log that is chosen, and was not left too long ago."""
        is_same = (self.client, self.job_uid, self.choice.selection) == (client, job.uid, choice.selection)
        return is_same and (self.left_at_s is None or now_s - self.left_at_s < KEPT_S)


class JobPane(Container, can_focus=True):
    """A log that grows, the loss beside it while there is one, else what is known of the job."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_PANE)

    class LogsWanted(Message):
        """The user wants the log in full."""

        def __init__(self, instance: str) -> None:
            super().__init__()
            self.instance = instance
            """The instance whose log is shown; empty for the first rank."""

    def __init__(
        self,
        client: Callable[[], Client | None],
        permissions: Callable[[], Permissions | None],
        loss_of: Callable[[str], ScalarCurve | None] = lambda _uid: None,
    ) -> None:
        """Show nothing yet.

        Args:
            client: Returns the cluster once it is reached.
            permissions: Returns what this user may do there, once that can be asked.
            loss_of: Returns the loss that was read from the event files of a job, by its uid.
        """
        super().__init__(id="job_pane")
        self._client, self._permissions, self._loss_of = client, permissions, loss_of
        self._facts = Preview(client, permissions)
        self._facts.empty = _NO_JOB
        self._job: Job | None = None
        self._snapshot = ClusterSnapshot()
        self._log: LogView | None = None
        self._chart: LossChart | None = None
        self._wanted: LogSelection | None = None
        self._tail: _Tail | None = None
        self._rests: Timer | None = None
        self._points_timer: Timer | None = None
        self._progress = ""
        self._is_left = self._is_looking = False

    def compose(self) -> ComposeResult:
        """Lay out what is known; the log and the chart come once there is something to read."""
        yield self._facts

    @property
    def is_live(self) -> bool:
        """Whether it is in sight: only then it asks for anything."""
        return self.is_mounted and self.display and self.screen is self.app.screen

    @property
    def focus_target(self) -> Container | LogView:
        """What takes the keys of the pane: the log once it is there."""
        return self._log or self

    @property
    def holds_focus(self) -> bool:
        """Whether the keys go to the pane."""
        return self.has_focus or (self._log is not None and self._log.has_focus)

    @property
    def shown_log(self) -> tuple[JobLogs, LogSelection] | None:
        """What reads the log that is shown, and which it is; None where none is."""
        return (self._tail.logs, self._tail.choice.selection) if self._tail is not None else None

    @property
    def is_streaming(self) -> bool:
        """Whether a log is being read."""
        return any(each.group == "tail" and not each.is_finished for each in self.workers)

    @property
    def is_settled(self) -> bool:
        """Whether it shows what there is: nothing is about to be asked, or to be looked for in lines."""
        is_opening = self.is_streaming and (self._tail is None or not self._tail.logs.targets)
        is_looking = self._points_timer is not None or self._is_looking
        return self._rests is None and not is_looking and not is_opening

    def show(self, job: Job | None, snapshot: ClusterSnapshot) -> None:
        """Show the job under the cursor, which may be the one that was there before."""
        was, self._job, self._snapshot = self._job, job, snapshot
        self.set_class(job is None, "-empty")
        if not self.display:
            return
        self._facts.show(job, snapshot)
        if _uid(was) != _uid(job):
            self.leave()
            self._forget()
            self._begin_later(FETCH_S - DRAW_S)  # the cursor has rested for a while before it is shown
        elif self._is_left:
            self._begin_later(FETCH_S - DRAW_S)
        elif was is not job:
            self._take_targets()
        self._show_history()
        self._say()

    def consider(self) -> None:
        """Go on where the pane is in sight, and ask for nothing where it is not."""
        if not self.is_live:
            self.leave()
        elif not self.is_streaming and self._rests is None:
            self._facts.show(self._job, self._snapshot)
            self._begin_later()
        self._say()

    def _begin_later(self, wait_s: float = FETCH_S) -> None:
        if self._job is not None and self.is_live:
            self._is_left = False
            self._rests = self.set_timer(max(wait_s, SHORTEST_TIMER_S), self._begin)

    def _begin(self) -> None:
        """Read the log: the cursor rests. Where keys wait that may move it, it does not."""
        self._rests = None
        if isinstance(self.app, PacedApp) and self.app.key_queue.has_keys:
            self._begin_later()
            return
        client, job = self._client(), self._job
        if client is not None and job is not None and self.is_live:
            self._follow(client, job)

    def leave(self) -> None:
        """Neither wait nor read, until another job is shown, or this one is considered again."""
        self._is_left = True
        if self._rests is not None:
            self._rests.stop()
            self._rests = None
        if self.is_streaming:
            self.workers.cancel_group(self, "tail")
        if self._tail is not None and self._tail.left_at_s is None:
            self._tail.left_at_s = asyncio.get_running_loop().time()

    def _forget(self) -> None:
        """Show nothing of what another job said."""
        self._tail = self._wanted = None
        self._progress = ""
        if self._log is not None:
            self._log.show(None)
            self._log.say_when_empty("…")
        if self._chart is not None:
            self._chart.clear(None)
        self._arrange()

    @work(group="tail", exclusive=True)
    async def _follow(self, client: Client, job: Job) -> None:
        """Show the log of the rank that is wanted, and read it until something else is shown."""
        from tui.feeds.log_tail import choose

        log = await self._filled()
        refusal = await self._refusal(job.ref.namespace)
        job = self._job or job  # what is known of it may be more by now: its ranks
        choice = choose(job, self._wanted)
        if choice is None or (job.status in _NOT_STARTED and not job.instances_running):
            self.add_class("-silent")
            log.say_when_empty("No pod runs yet, so there is no log.")
            return
        if refusal:
            log.say_when_empty(refusal)
            return
        tail = self._tail_of(client, job, choice)
        tail.left_at_s = None
        self.remove_class("-silent")
        self._say()
        await tail.logs.run()

    async def _refusal(self, namespace: str) -> str:
        """Return why the log may not be read; nothing is asked of those who may not."""
        permissions = self._permissions()
        if permissions is None:
            return ""
        found = await permissions.fetch(LOG_PERMISSION, namespace)
        return f"{found.why[:1].upper()}{found.why[1:]}." if found.is_allowed is False else ""

    def _tail_of(self, client: Client, job: Job, choice: TailChoice) -> _Tail:
        """Return the log that is shown already, where it was left not long ago, else a new one."""
        from tui.feeds.log_tail import open_tail

        now_s = asyncio.get_running_loop().time()
        tail = self._tail
        if tail is not None and tail.is_of(client, job, choice, now_s):
            tail.logs.set_targets([choice.target])
            return tail
        logs = open_tail(client, choice)
        tail = _Tail(client, job.uid, choice, logs, logs.open(choice.selection), logs.open(choice.selection))
        tail.points.on_news = self._look_soon
        self._tail = tail
        if self._chart is not None:
            self._chart.clear(self._loss_of(job.uid))
        if self._log is not None:
            self._log.empty = "No lines yet."
            self._log.show(tail.feed)
        return tail

    async def _filled(self) -> LogView:
        """Return the log, having brought in what shows it: it is slow to import."""
        if self._log is None:
            from tui.widgets.home.loss_chart import LossChart
            from tui.widgets.log.view import LogView

            log, chart = LogView(), LossChart()
            await self.mount(chart, log)
            self._log, self._chart = log, chart
            if self.has_focus:
                log.focus()
            self.can_focus = False  # the log takes its keys from now on
            self._show_history()
        return self._log

    def _take_targets(self) -> None:
        """Take over what is new of the job: a pod that was made again, a log that can be read now."""
        from tui.feeds.log_tail import choose

        job, tail = self._job, self._tail
        if job is None:
            return
        choice = choose(job, self._wanted)
        if tail is not None and choice is not None:
            if choice.selection != tail.choice.selection:  # its ranks are known only now
                self.leave()
                self._forget()
                self._begin_later()
                return
            tail.choice = choice
            tail.logs.set_targets([choice.target])
        if not self.is_streaming and self._rests is None:
            self._begin_later()

    def _look_soon(self) -> None:
        """Look for points and progress in what is new, in a moment."""
        if self._points_timer is None:
            self._points_timer = self.set_timer(POINTS_S, self._look)

    async def _look(self) -> None:
        self._points_timer = None
        tail, chart = self._tail, self._chart
        if tail is not None and chart is not None:
            self._is_looking = True
            await self._look_through(tail, chart)
            self._is_looking = False

    async def _look_through(self, tail: _Tail, chart: LossChart) -> None:
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
        self._say()

    def _show_history(self) -> None:
        """Draw the loss from event files too, as far as it was read for the list."""
        if self._chart is not None:
            self._chart.set_history(self._loss_of(_uid(self._job)))
            self._arrange()

    def _arrange(self) -> None:
        """Show the loss where there is any; what is known of the job has its place where there is none."""
        has_points = self._chart is not None and self._chart.has_points
        if self._chart is not None:
            self._chart.display = has_points
        self._facts.display = self.has_class("-side") or not has_points

    def set_side(self, is_side: bool) -> None:
        """Stand beside the list, its parts above each other; or below the list, its parts side by side."""
        self.set_class(is_side, "-side")
        self._arrange()

    def _say(self) -> None:
        """Write above the pane what is shown, what matters most first."""
        job = self._job
        words = ["no job"]
        if job is not None:
            choice = self._tail.choice if self._tail is not None else None
            progress = sanitize(job.progress) if job.progress else self._progress
            running = progress if job.status is Status.RUNNING else ""
            rank = choice.selection.rank if choice is not None else None
            ranks = plural(job.ranks_total, "rank") if rank is None and job.ranks_total > 1 else ""
            whose = f"rank {rank} of {job.ranks_total}" if rank is not None else ranks
            words = [sanitize(job.ref.name), whose, running, choice.target.name if choice is not None else ""]
        title = Content(f"{'' if self.has_class('-side') else ' '}3 {' · '.join(filter(None, words))} ")
        if self.border_title != title.markup:
            self.border_title = title

    def action_step_rank(self, ranks: int) -> None:
        """Show the next rank, or the one before."""
        from tui.feeds.log_tail import step

        if self._job is not None and (wanted := step(self._job, self._wanted, ranks)) is not None:
            self.leave()
            self._forget()
            self._wanted = wanted
            self._begin_later()
            self._say()

    def action_open_logs(self) -> None:
        """Have the log shown in full."""
        choice = self._tail.choice if self._tail is not None and self._wanted is not None else None
        self.post_message(self.LogsWanted(choice.target.instance if choice is not None else ""))


def _uid(job: Job | None) -> str:
    return job.uid if job is not None else ""
