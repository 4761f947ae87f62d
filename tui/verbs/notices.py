"""Reports of notices: counter, toasts, terminal notifications, bell, and the user's hook."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.timer import Timer

from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Job
from k8s.text.sanitize import sanitize
from tui.screens.base.console import BaseConsole, Functions
from tui.screens.base.request import ActionRequest, Route
from tui.settings.keys import EVERYWHERE
from tui.settings.options import NoticeEvent
from tui.tables.notices import LOOKS, WORDS, JobNotice, NoticeLog, counter, stored_notices
from tui.terminal.hooks import HookRunner, notification
from tui.text.format import Clock, age

if TYPE_CHECKING:
    from tui.session.session import Session

# Notices within this time share a toast; the cause of a failure is usually found by then.
TOGETHER_S = 2.0
# Age at which a failure is reported although its logs have not been read.
EXPLAIN_S = 10.0
TOAST_S, FAILURE_S, NEWS_S = 5.0, 10.0, 15.0
# Lines of a toast, and characters of a single reason and of one line among others.
MAX_LINES, MAX_REASON, MAX_LINE = 2, 240, 100
# Older events are reported with their age, such as those found after a reconnect.
RECENT_S = 60.0
# Interval at which notices of other consoles are looked for.
SHARE_S = 5.0


class Notifier:
    """Finds and reports notices of one console."""

    def __init__(self, console: BaseConsole) -> None:
        self.log = NoticeLog(console.options.notify)
        self._console = console
        self._options = console.options.notify
        self._pending: list[JobNotice] = []
        self._timer: Timer | None = None
        self._is_waiting = False
        self._changed = asyncio.Event()
        self._reported = set[str]()
        self._hooks = HookRunner(self._options.exec, console.options.log_file, self._report_hook)

    def update(self, snapshot: ClusterSnapshot, jobs: tuple[Job, ...]) -> None:
        """Find new notices in a snapshot, and report them soon."""
        self._pending += self.log.update(snapshot, jobs, Clock.ahead(snapshot.clock_offset_s).now)
        if self._pending and self._timer is None:
            self._timer = self._console.set_timer(TOGETHER_S, self._flush)
        self._publish()

    async def share(self) -> None:
        """Exchange notices of this context with the journal until cancelled, and report its problems."""
        journal, context = self._console.context.runs.journal, self._console.snapshot.context
        version: int | None = None
        while True:
            self._changed.clear()
            newest = await asyncio.to_thread(lambda: journal.version)
            if newest != version:  # another connection has written
                self.log.merge(context, await asyncio.to_thread(stored_notices, journal, context))
                version = newest
                self._publish()
            statements, saved = self.log.unsaved()
            is_saved = not statements or await asyncio.to_thread(journal.write, *statements)
            if is_saved:
                self.log.record_saved(saved)
            for problem in [each for each in journal.problems if each not in self._reported]:
                self._report(problem, "The journal of past runs, logs and notices has a problem.")
                self._reported.add(problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(SHARE_S):
                    await self._changed.wait()

    def mark_seen(self, *notices: JobNotice) -> None:
        """Mark notices as seen."""
        self.log.mark_seen(*notices)
        self._publish()

    def mark_job_seen(self, context: str, job: JobRef) -> None:
        """Mark all notices of a job as seen."""
        self.mark_seen(*(each for each in self.log.items if each.job == job and each.context == context))

    def _publish(self) -> None:
        if self._console.notices is not self.log.items:
            self._console.notices = self.log.items
            self._console.unseen = counter(self.log.unseen())
            self._changed.set()

    def _is_unexplained(self, notice: JobNotice) -> bool:
        session = self._console.session
        age_s = (Clock.ahead(self._console.snapshot.clock_offset_s).now - notice.at).total_seconds()
        is_new_failure = notice.is_mine and notice.event is NoticeEvent.FAILED and age_s < EXPLAIN_S
        if session is None or not is_new_failure:
            return False
        job = next((each for each in session.mirror.all_jobs if each.uid == notice.uid), None)
        return job is not None and not session.reasons.has_read(job)

    def _flush(self) -> None:
        self._timer = None
        if not self._console.screen_stack:  # the console ends
            return
        was_waiting, self._is_waiting = self._is_waiting, any(map(self._is_unexplained, self._pending))
        if self._is_waiting or was_waiting:  # once more, for the snapshot with the reason
            self._timer = self._console.set_timer(TOGETHER_S / 4, self._flush)
            return
        found, self._pending = self.log.newest(self._pending), []
        mine = [each for each in found if each.is_mine]
        if shown := {"all": found, "mine": mine, "off": []}[self._options.toast]:
            self._toast(shown)
        failures = [each for each in mine if each.event.is_failure]
        signals = {"all": mine, "failures": failures, "off": []}
        if shown := signals[self._options.terminal]:
            title, lines = self._summary(shown)
            self._console.write_to_terminal(notification(title, " · ".join(lines), os.environ))
        if signals[self._options.bell]:
            self._console.bell()
        for each in mine if self._options.exec else ():
            self._console.begin(self._run_hook, each.facts(self._console.snapshot.user), group="hooks")

    async def _run_hook(self, _console: BaseConsole, facts: dict[str, object]) -> None:
        await self._hooks.run(facts)

    def _summary(self, notices: list[JobNotice]) -> tuple[str, list[str]]:
        if len(notices) == 1:
            (notice,) = notices
            ago_s = (Clock.ahead(self._console.snapshot.clock_offset_s).now - notice.at).total_seconds()
            ago = f" {age(ago_s)} ago" if ago_s > RECENT_S else ""
            return f"{notice.text}{ago}", [notice.reason[:MAX_REASON]] if notice.reason else []
        ordered = sorted(notices, key=lambda each: list(LOOKS).index(each.event))
        numbers = Counter(each.event for each in ordered)
        lines = [": ".join(filter(None, (each.text, each.reason)))[:MAX_LINE] for each in ordered[:MAX_LINES]]
        more = [f"and {len(notices) - MAX_LINES} more"] if len(notices) > MAX_LINES else []
        return ", ".join(f"{number} {WORDS[event]}" for event, number in numbers.items()), lines + more

    def _toast(self, notices: list[JobNotice]) -> None:
        title, lines = self._summary(notices)
        keys = self._console.context.everywhere_keys
        key = next((each.shown for each in keys if each.id == f"{EVERYWHERE}.open_notice"), "")
        hint = f"{key} opens it · :notices" if len(notices) == 1 and key else ":notices lists them"
        is_failure = any(each.event.is_failure for each in notices)
        self._console.notify(
            "\n".join((*map(sanitize, lines), hint)),
            title=title,
            severity="error" if is_failure else "information",
            timeout=FAILURE_S if is_failure else TOAST_S,
            is_toast=True,
        )

    def _report_hook(self, problem: str) -> None:
        place = f"Its output is in {self._console.options.log_file}."
        self._report(f"{problem}\n{place}", "notify.exec failed; later failures are only in the log.")

    def _report(self, problem: str, title: str) -> None:
        self._console.notify(problem, title=title, severity="warning", timeout=FAILURE_S, is_toast=True)


def notices(console: BaseConsole, request: ActionRequest) -> None:
    """List the notices."""
    from tui.screens.lists.notices import notices_view

    console.views.show(Route("notices"), notices_view())


def open_notice(console: BaseConsole, request: ActionRequest) -> None:
    """Open the job of the selected notice, or else of the newest unseen one; list them if there is none."""
    unseen = [each for each in console.notices if not each.is_seen]
    selected = [each for each in console.notices if each.key == request.selected]
    if not (selected or unseen):
        notices(console, request)
        return
    notice = (selected or unseen)[0]
    console.mark_job_seen(notice.context, notice.job)
    if notice.context != console.snapshot.context:
        advice = f"To open it, first switch to its cluster: :ctx {sanitize(notice.context)}"
        console.notify(advice, title="The job is in another cluster.", severity="warning")
        return
    console.post_message(ActionRequest("open_job", targets=(notice.job,)))


def timeline(console: BaseConsole, request: ActionRequest) -> None:
    """Show the events of the user's jobs; `all`: of all jobs."""
    from tui.screens.lists.timeline import TimelineView

    is_for_all = request.argument == "all"
    console.views.show(Route("timeline", "all" * is_for_all), TimelineView(is_for_all=is_for_all))
    if request.argument and not is_for_all and (view := console.views.current) is not None:
        view.filter_text = request.argument.removeprefix("/")


async def report_news(console: BaseConsole, session: Session) -> None:
    """Report in one line the events of the user's jobs since the last console ended; once per cluster."""
    from tui.runs.journal.history import last_console_s, read_timeline
    from tui.tables.timeline import news_text

    journal, context = console.context.runs.journal, session.client.config.context
    recorder, told = session.recorder, f"news of {context}"
    if recorder is None or console.context.switches.get(told):
        return
    console.context.switches[told] = True
    await recorder.caught_up.wait()  # it writes what happened meanwhile
    clock = Clock.ahead(console.snapshot.clock_offset_s)
    if (since_s := await asyncio.to_thread(last_console_s, journal, context, recorder.observer)) is not None:
        found = await asyncio.to_thread(read_timeline, journal, context, since_s, clock.now.timestamp())
        keys = {each.id: each.shown for each in console.context.everywhere_keys}
        advice = f"; {keys[f'{EVERYWHERE}.timeline']} shows them"
        if text := news_text(found, clock, console.size.width - len(advice) - 4):
            console.notify(f"{text}{advice}", timeout=NEWS_S)


FUNCTIONS: Functions = {"notices": notices, "open_notice": open_notice, "timeline": timeline}
