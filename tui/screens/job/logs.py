"""The logs of one job: one rank, several side by side, or all merged by time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal

from k8s.kinds import JobRef
from k8s.logs import (
    EVERYTHING,
    JobLogs,
    LineQueue,
    LogHub,
    LogLine,
    LogRequest,
    LogSelection,
    RankRow,
    Target,
    failed_selection,
    targets_of,
)
from k8s.text.sanitize import sanitize
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.screens.job import LOGS
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, Column, Row
from tui.text.empty_states import no_lines
from tui.text.filter_query import hint_of
from tui.text.format import NOTHING, Clock, age, count, plural, timestamp
from tui.text.instances import format_ranks, is_silent
from tui.widgets.log.view import LogSaves, LogView
from tui.widgets.prompt import Prompt
from tui.widgets.table.table import Table

# Time windows by digit, with the digits of k9s.
WINDOWS: tuple[tuple[str, LogRequest], ...] = (
    ("last 2,000 lines", LogRequest(tail=2_000)),
    ("all since start", LogRequest()),
    ("last minute", LogRequest(since_s=60)),
    ("last 5 min", LogRequest(since_s=300)),
    ("last 15 min", LogRequest(since_s=900)),
    ("last 30 min", LogRequest(since_s=1_800)),
    ("last hour", LogRequest(since_s=3_600)),
)
# This digit shows the oldest lines, and reads on as the user scrolls.
FROM_THE_START = 1

# Time before the moment at which a log is opened.
BEFORE_S = 60.0

BEFORE = LogRequest(previous=True, follow=False)

MAX_PANES = 4

_NUMBERS = ("-one", "-two", "-three", "-four")
_COLUMNS = (
    Column("rank", "RANK", align="right", min_width=4),
    Column("instance", "INSTANCE", elide="middle", min_width=8, max_width=24),
    Column("lines", "LINES", align="right"),
    Column("last", "LAST", align="right", min_width=5),
)


@dataclass(slots=True)
class _Pane:
    view: LogView
    choice: LogSelection
    queue: LineQueue


class LogsScreen(View):
    """Logs of one job.

    The job's pods come from `snapshot`; only the worker reads logs.
    """

    CSS_PATH = "logs.tcss"
    AUTO_FOCUS: ClassVar[str] = "LogView"
    VIEW: ViewDeclaration = LOGS

    def __init__(
        self,
        hub: LogHub,
        ref: JobRef,
        *,
        instance: str = "",
        is_previous: bool = False,
        at_s: float = 0.0,
        folder: Path | None = None,
    ) -> None:
        """Show the logs of the job `ref`.

        Args:
            hub: Followed logs of the cluster.
            ref: The job.
            instance: Instance to start with; empty for rank 0 or the chief.
            is_previous: Start with the runs before the last restart.
            at_s: Time to start at, in seconds since 1970; 0 for the newest lines.
            folder: Folder for saved logs; None disables saving.
        """
        super().__init__()
        self.ref = ref
        self._hub = hub
        self._instance = instance
        self._folder = folder
        self._window = _window_at(at_s) if at_s else WINDOWS[0]
        self._is_previous = is_previous
        self._logs = JobLogs(hub, request=BEFORE if is_previous else self._window[1])
        self._targets: tuple[Target, ...] = ()
        self._panes: list[_Pane] = []
        self._saves = LogSaves()
        self._has_chosen = False
        self._title = ""

    def compose_body(self) -> ComposeResult:
        """Lay out the list of ranks and the panes."""
        with Horizontal(id="body"):
            yield Table(_COLUMNS, empty="No pods yet.", id="ranks", classes="pane")
            yield Container(id="panes")

    def on_mount(self) -> None:
        """Open the first pane and start reading."""
        self.query_one("#ranks").border_title = "ranks"
        self._add_pane(self._first_choice())
        if self._is_from_start:
            self._panes[0].view.call_after_refresh(self._panes[0].view.action_end, -1)
        self.set_interval(1, self.refresh_view)
        self._read()
        self._set_targets()

    @work(group="logs", exclusive=True)
    async def _read(self) -> None:
        await self._logs.run()

    def watch_snapshot(self) -> None:
        """Update the job's pods."""
        self._set_targets()

    def _set_targets(self) -> None:
        job = self.snapshot.job(self.ref)
        if job is not None:
            self._targets = targets_of(job)
            self._logs.set_targets(self._targets)
        if self._panes and not self._has_chosen and self._logs.targets:
            self._has_chosen = True
            self._open(self._panes[0], self._first_choice())
        self.refresh_view()

    def _first_choice(self) -> LogSelection:
        rows, job = self._logs.rows(), self.snapshot.job(self.ref)
        if not self._instance and job is not None and (failed := failed_selection(job, self._targets)):
            return failed
        mine = [row for row in rows if row.instance == self._instance]
        if len(mine) > 1:
            return LogSelection(instance=self._instance)
        return next((row.selection for row in mine or rows), EVERYTHING)

    def _add_pane(self, choice: LogSelection) -> None:
        view = LogView(classes="pane")
        view.filter_text = self.filter_text
        pane = _Pane(view, choice, self._logs.open(choice))
        self._panes.append(pane)
        self.query_one("#panes").mount(view)
        self._show(pane)
        self._arrange()

    def _open(self, pane: _Pane, choice: LogSelection) -> None:
        if choice == pane.choice:
            return
        self._logs.close(pane.queue)
        pane.choice = choice
        if self._is_from_start:  # what is stored of other ranks is their newest part
            self._restart()
            return
        pane.queue = self._logs.open(choice)
        self._show(pane)
        self._logs.focus(each.choice for each in self._panes)
        self.refresh_view()

    def _show(self, pane: _Pane) -> None:
        choice = pane.choice
        names = None if choice.rank is not None else _name_in_all if choice.is_merged else _name_in_instance
        pane.view.show(pane.queue, name_of=names)

    def _arrange(self) -> None:
        panes = self.query_one("#panes")
        for number, name in enumerate(_NUMBERS, start=1):
            panes.set_class(len(self._panes) == number, name)
        for pane in self._panes:
            # Panes may share the reader of a pod, and one that holds it back would stop the others.
            pane.view.is_paged = self._is_from_start and len(self._panes) == 1
        self._logs.focus(each.choice for each in self._panes)
        self.refresh_view()

    @property
    def _pane(self) -> _Pane:
        return next((pane for pane in self._panes if pane.view.has_focus), self._panes[0])

    @property
    def is_drawable(self) -> bool:
        """True once there is a pane."""
        return super().is_drawable and bool(self._panes)

    def render_view(self) -> None:
        """Update the titles and the list of ranks."""
        rows = self._logs.rows()
        for pane in self._panes:
            title = self._pane_title(pane.choice, rows)
            if pane.view.border_title != title:
                pane.view.border_title = title
            instance = self._logs.instance_of_rank(pane.choice.rank) or pane.choice.instance
            job = None if self._is_previous else self.snapshot.job(self.ref)
            empty = no_lines(job, instance, "p") if self._logs.targets else "The job has no pods yet."
            pane.view.show_placeholder(empty)
        shown = self._pane.view
        ranks = " ".join(str(each.choice).removeprefix("rank ") for each in self._panes)
        words = [
            ("ranks " if any(each.choice.rank is not None for each in self._panes) else "") + ranks,
            "previous run" if self._is_previous else "follow" if shown.follows else "held",
            f"/{sanitize(self.filter_text)}  {shown.match_text}" if self.filter_text else "",
            f"{plural(self._logs.gaps, 'gap')} marked" if self._logs.gaps else "",
            self._window[0] if not self._is_previous else "",
        ]
        title = f"Jobs › {sanitize(self.ref.name)} › logs   {' · '.join(filter(None, words))}"
        if title != self._title:
            self._title = title
            self.set_title(title)
        table = self.query_one("#ranks", Table)
        if table.display:
            table.set_rows([self._row(each) for each in rows])

    def _pane_title(self, choice: LogSelection, rows: list[RankRow]) -> str:
        if choice.is_merged:
            return "all ranks, by time"
        row = next((row for row in rows if row.selection == choice), None)
        if row is None or row.rank is None:
            return f"{choice}  {row.status}" if row else str(choice)
        is_known = row.is_split or not row.last_line_ns
        suffix = "" if is_known else "  lines are not marked by rank: showing the whole pod"
        return f"{format_ranks(() if row.rank is None else (row.rank,), row.proof)} {row.instance}{suffix}"

    def _row(self, row: RankRow) -> Row:
        now_s = time.time() + self._hub.client.server_clock_offset_s
        silent_s = max(0.0, now_s - row.last_line_ns / 1e9) if row.last_line_ns else None
        job = self.snapshot.job(self.ref)
        of_job = job.instances if job is not None else ()
        signs = self.snapshot.signs(job)
        is_quiet = any(is_silent(signs, each, row.rank) for each in of_job if each.name == row.instance)
        return Row(
            _key(row.selection),
            (
                Cell(format_ranks(() if row.rank is None else (row.rank,), row.proof), "bright"),
                Cell(row.instance),
                Cell(count(row.lines) if row.is_split else NOTHING, "quiet"),
                Cell(age(silent_s) + ("!" if is_quiet else ""), "pending" if is_quiet else "quiet"),
            ),
        )

    def watch_filter_text(self, text: str) -> None:
        """Filter all panes, or the list of ranks while it is open."""
        if self.is_drawable:
            if self.has_class("-picking"):
                ranks = self.query_one("#ranks", Table)
                ranks.filter_by(text)
            else:
                for pane in self._panes:
                    pane.view.filter_text = text
                self.query_one(Prompt).show_problem(hint_of(text.strip().removeprefix("!")))
            self.refresh_view()

    def on_log_view_copy(self, event: LogView.Copy) -> None:
        """Copy the text."""
        event.stop()
        self.post_message(ActionRequest("copy", event.text))

    def on_log_view_save(self, event: LogView.Save) -> None:
        """Save the whole log of a pane."""
        event.stop()
        pane = next(each for each in self._panes if each.view is event.view)
        if self._folder is not None:
            self._saves.begin(self.app, self._folder, self.ref.name, self._logs, pane.choice, pane.view)

    def on_log_view_changed(self, event: LogView.Changed) -> None:
        """Update the title."""
        event.stop()
        self.refresh_view()

    def on_descendant_focus(self) -> None:
        """Describe the focused pane in the title."""
        self.refresh_view()

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Show the marked ranks, or the one under the cursor."""
        event.stop()
        choices = {_key(row.selection): row.selection for row in self._logs.rows()}
        marked = [choices[key] for key in event.table.marks if key in choices][:MAX_PANES]
        if len(marked) > 1:
            event.table.action_clear_marks()
            self._set_panes(marked)
        elif event.key in choices:
            self._open(self._pane, choices[event.key])
        self.action_ranks()

    def _set_panes(self, choices: list[LogSelection]) -> None:
        while len(self._panes) > len(choices):
            pane = self._panes.pop()
            self._logs.close(pane.queue)
            pane.view.remove()
        for pane, choice in zip(self._panes, choices, strict=False):
            self._open(pane, choice)
        for choice in choices[len(self._panes) :]:
            self._add_pane(choice)
        self._arrange()

    def action_ranks(self) -> None:
        """Open or close the list of ranks."""
        table = self.query_one("#ranks", Table)
        self.toggle_class("-picking")
        if self.has_class("-picking"):
            table.set_rows([self._row(each) for each in self._logs.rows()])
            table.move_to(_key(self._pane.choice))
            table.focus()
        else:
            table.set_filter(None)
            self._panes[0].view.focus()
        self.refresh_view()

    def action_step(self, step: int) -> None:
        """Show the next or previous rank in the focused pane."""
        choices = [row.selection for row in self._logs.rows()]
        if choices:
            place = choices.index(self._pane.choice) + step if self._pane.choice in choices else 0
            self._open(self._pane, choices[place % len(choices)])

    def action_all(self) -> None:
        """Show all ranks in one pane."""
        self._set_panes([EVERYTHING])

    def action_split(self) -> None:
        """Show one more rank beside the others; after `MAX_PANES`, only the first."""
        choices = [row.selection for row in self._logs.rows()]
        shown = [pane.choice for pane in self._panes]
        place = choices.index(shown[-1]) + 1 if shown[-1] in choices else 0
        others = [each for each in choices[place:] + choices[:place] if each not in shown]
        self._set_panes([*shown, others[0]] if others and len(shown) < MAX_PANES else shown[:1])

    def action_next_pane(self) -> None:
        """Focus the next pane."""
        self.focus_next(LogView)

    def action_full(self) -> None:
        """Toggle full screen for the log."""
        self.toggle_class("-full")

    def action_previous_run(self) -> None:
        """Toggle between the runs before the last restart and the current ones."""
        self._is_previous = not self._is_previous
        self._restart()

    def action_window(self, number: int) -> None:
        """Read another time window."""
        self._window = WINDOWS[number]
        self._is_previous = self._is_previous and self._is_from_start
        self._restart()

    @property
    def _is_from_start(self) -> bool:
        return self._window is WINDOWS[FROM_THE_START] or bool(self._window[1].since_time)

    def _restart(self) -> None:
        request = BEFORE if self._is_previous else self._window[1]
        self._logs = JobLogs(self._hub, self._targets, request=request)
        for pane in self._panes:
            pane.queue = self._logs.open(pane.choice)
            self._show(pane)
            if self._is_from_start:
                pane.view.action_end(-1)
        self._read()
        self._arrange()

    def on_log_view_newest_wanted(self, event: LogView.NewestWanted) -> None:
        """Read the newest lines in place of the oldest."""
        event.stop()
        self._window = WINDOWS[0]
        self._restart()

    def refresh_feeds(self) -> None:
        """Retry all logs now."""
        self._logs.wake()

    def step_back(self) -> bool:
        """Close the list of ranks, leave full screen, or clear the filter."""
        if self.has_class("-picking"):
            self.action_ranks()
        elif self.has_class("-full"):
            self.action_full()
        else:
            return super().step_back()
        return True


def _window_at(at_s: float) -> tuple[str, LogRequest]:
    start = datetime.fromtimestamp(at_s - BEFORE_S, UTC)
    return f"from {Clock.ahead(0).time(start)} on", LogRequest(since_time=timestamp(start) or "")


def _key(choice: LogSelection) -> str:
    return f"rank {choice.rank}" if choice.rank is not None else f"instance {choice.instance}"


def _name_in_all(line: LogLine) -> str:
    return line.source.name if line.rank is None else str(line.rank)


def _name_in_instance(line: LogLine) -> str:
    return "" if line.rank is None else str(line.rank)
