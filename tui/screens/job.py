"""One job: its instances with their ranks, what its object says, and what happened to it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Label

from k8s.client import Client
from k8s.errors import KubeError
from k8s.kinds import JobRef
from k8s.models import Condition, Event
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.text import sanitize
from k8s.why import answer_why
from tui.event_feed import follow_events
from tui.format import NOTHING, STATUS_LOOKS, Clock, Look
from tui.keys import JOB, Key
from tui.screens.view import View, bindings
from tui.widgets.row_filter import row_filter
from tui.widgets.table import Cell, Column, Row, Table

INSTANCE_COLUMNS = (
    Column("instance", "INSTANCE", min_width=10),
    Column("ranks", "RANKS", min_width=5),
    Column("status", "STATUS", min_width=10),
    Column("gpus", "GPUS", align="right"),
    Column("node", "NODE", elide="middle", min_width=8, max_width=30),
    Column("restarts", "RESTARTS", align="right", priority=2),
    Column("age", "AGE", align="right"),
    Column("pod", "POD", elide="middle", min_width=12, max_width=60, priority=3),
)
CONDITION_COLUMNS = (
    Column("type", "CONDITION", min_width=10),
    Column("status", "IS", min_width=5),
    Column("age", "SINCE", align="right"),
    Column("message", "MESSAGE", elide="end", min_width=10, max_width=200, priority=2),
    Column("reason", "REASON", elide="end", min_width=8, max_width=30, priority=1),
)
EVENT_COLUMNS = (
    Column("age", "AGE", align="right"),
    Column("type", "TYPE", min_width=7, priority=2),
    Column("about", "ABOUT", elide="middle", min_width=6, max_width=30),
    Column("reason", "REASON", elide="end", min_width=8, max_width=20),
    Column("count", "×", align="right", priority=1),
    Column("message", "MESSAGE", elide="end", min_width=34, max_width=300),
)
WHY_REST_S = 10.0
"""Shortest time between two looks for why it waits."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class JobView(View):
    """Instances, conditions and events of one job."""

    CSS_PATH = "job.tcss"
    AUTO_FOCUS: ClassVar[str] = "#instances"
    KEYS: ClassVar[tuple[Key, ...]] = JOB
    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB)

    def __init__(
        self, client: Client, ref: JobRef, *, ascii_only: bool = False, why_rest_s: float = WHY_REST_S
    ) -> None:
        """Show the job `ref`; `client` is asked for its events, and why it waits.

        Args:
            client: The job's cluster.
            ref: The job.
            ascii_only: Draw nothing but ASCII.
            why_rest_s: Shortest time between two looks for why it waits.
        """
        super().__init__(ascii_only=ascii_only)
        self.ref = ref
        """The job that is shown."""
        self._client = client
        self._events: list[Event] = []
        self._events_problem = ""
        self._last: Job | None = None
        self._why = ""
        self._asked_about: tuple[str, ...] = ()
        self._why_rest_s = why_rest_s
        self._ask_again_at_s = 0.0

    def compose_body(self) -> ComposeResult:
        """Lay out three tables."""
        yield Label("", id="why", markup=False)
        yield Label("", id="notice", markup=False)
        yield Table(
            INSTANCE_COLUMNS,
            empty="No instances.",
            ascii_only=self.ascii_only,
            id="instances",
            classes="pane",
        )
        with Horizontal(id="below"):
            yield Table(
                CONDITION_COLUMNS,
                empty="The operator has said nothing yet.",
                ascii_only=self.ascii_only,
                id="conditions",
                classes="pane",
            )
            yield Table(
                EVENT_COLUMNS, empty="No events.", ascii_only=self.ascii_only, id="events", classes="pane"
            )

    def on_mount(self) -> None:
        """Name the panes and follow the events."""
        self.query_one("#instances").border_title = "instances"
        self.query_one("#conditions").border_title = "conditions"
        self.query_one("#events").border_title = "events"
        self.set_interval(10, self._draw)
        self._follow_events()

    @work(group="events", exclusive=True)
    async def _follow_events(self) -> None:
        await follow_events(self._client, self.ref.namespace, self._take_events)

    def _take_events(self, events: list[Event], problem: str) -> None:
        self._events = events
        self._events_problem = problem
        self._draw()

    def watch_snapshot(self) -> None:
        """Show the new picture."""
        self._draw()

    def watch_filter_text(self, text: str) -> None:
        """Filter instances and events."""
        for table in self.query(Table):
            table.set_filter(row_filter(text, table.columns)[0])

    def _draw(self) -> None:
        if not self.is_drawable:
            return
        found = self.snapshot.job(self.ref)
        is_gone = found is None and self.snapshot.is_synced
        job = found or self._last
        self._last = job
        clock = Clock.ahead(self.snapshot.clock_offset_s)
        self.set_title(_title(self.ref, job, is_gone=is_gone))
        self._consider_why(None if is_gone else job)
        reason = "" if job is None or is_gone or self._why else job.reason
        self.put("why", self._why)
        self.put("notice", "\n".join(map(sanitize, (self.snapshot.stale or reason).split("\n"))))
        if job is None:
            return
        self.query_one("#instances", Table).set_rows([_instance_row(each, clock) for each in job.instances])
        conditions = sorted(job.conditions, key=lambda each: each.last_transition_time or _LONG_AGO)
        self.query_one("#conditions", Table).set_rows([_condition_row(each, clock) for each in conditions])
        about = {self.ref.name: "job", **{each.pod: each.name for each in job.instances if each.pod}}
        events = [event for event in self._events if event.involved_object.name in about]
        events.sort(key=lambda event: event.at or _LONG_AGO, reverse=True)
        table = self.query_one("#events", Table)
        table.empty = self._events_problem or "No events."
        table.set_rows([_event_row(event, about[event.involved_object.name], clock) for event in events])
        warnings = sum(event.type == "Warning" for event in events)
        table.border_title = f"events {len(events)}" + (f" ({warnings} warnings)" if warnings else "")

    def _consider_why(self, job: Job | None) -> None:
        """Ask why it waits when that is not known yet; what is known is dropped when it is no longer so."""
        if job is None or not _waits(job):
            self._asked_about, self._why = (), ""
            return
        about = (str(job.status), job.reason)
        if self.snapshot.is_synced and not self.snapshot.stale and about != self._asked_about:
            self._asked_about = about
            self._ask_why(job)

    @work(group="why", exclusive=True)
    async def _ask_why(self, job: Job) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._ask_again_at_s - clock()))
        self._ask_again_at_s = clock() + self._why_rest_s
        try:
            answer = await answer_why(self._client, job, self.snapshot)
        except KubeError:
            return  # that the cluster is away is said elsewhere; the reason stays where this would be
        self._why = sanitize(answer.sentence)
        self._draw()

    def _instance_under_cursor(self) -> str:
        return self.query_one("#instances", Table).cursor_key or ""

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the logs of an instance."""
        event.stop()
        self.action_logs()

    def action_logs(self) -> None:
        """Show the logs, beginning with the instance under the cursor."""
        self.post_message(self.Go("logs", self._instance_under_cursor(), refs=[self.ref]))

    def action_curves(self) -> None:
        """Show the curves."""
        self.post_message(self.Go("curves", refs=[self.ref]))

    def action_why(self) -> None:
        """Show why it is as it is, with all that was seen."""
        self.post_message(self.Go("why", refs=[self.ref]))

    def action_yaml(self) -> None:
        """Show the object."""
        self.post_message(self.Go("yaml", refs=[self.ref]))

    def action_delete(self) -> None:
        """Ask whether to delete the job."""
        self.post_message(self.Go("delete", refs=[self.ref]))

    def action_next_pane(self) -> None:
        """Give the focus to the next table."""
        self.focus_next(Table)


def _title(ref: JobRef, job: Job | None, *, is_gone: bool) -> str:
    words = [f"Jobs › {ref.name}", f"{ref.kind} {ref.api_version}"]
    if is_gone:
        words.append("gone: it was deleted; this is its last state" if job else "gone: there is no such job")
    elif job is not None:
        words.append(f"{job.status} · {job.instances_running}/{len(job.instances)} pods")
        if job.trainer:
            words.append(f"trainer {job.trainer}")
    return "   ".join(words)


def _waits(job: Job) -> bool:
    """Tell whether there is something to explain: it has not ended well, nor do all of its pods run."""
    if job.status is Status.RUNNING:
        return job.instances_running < len([each for each in job.instances if not each.status.is_final])
    return job.status is not Status.SUCCEEDED


def ranks_words(instance: Instance) -> str:
    """Return an instance's ranks and whether they are proven: `0-3`, `~4-7` when only assumed."""
    if not instance.ranks:
        return NOTHING
    first, last = instance.ranks[0], instance.ranks[-1]
    text = str(first) if first == last else f"{first}-{last}"
    return {"assumed": f"~{text}", "observed": f"{text} ✓"}.get(instance.ranks_proof, text)


def _instance_row(instance: Instance, clock: Clock) -> Row:
    return Row(
        instance.name,
        (
            Cell(f"{instance.name} *" if instance.is_chief else instance.name, "bright"),
            Cell(ranks_words(instance)),
            Cell(str(instance.status), STATUS_LOOKS[instance.status]),
            Cell(str(instance.gpus) if instance.gpus else NOTHING),
            Cell(instance.node or NOTHING, "quiet"),
            Cell(str(instance.restarts), "failed" if instance.restarts else "quiet"),
            Cell(clock.age(instance.created), "quiet"),
            Cell(instance.pod or NOTHING, "quiet"),
        ),
        f"└ {instance.reason}" if instance.reason else None,
    )


def _condition_row(condition: Condition, clock: Clock) -> Row:
    is_true = condition.status == "True"
    look: Look = "quiet" if not is_true else "failed" if condition.type == "Failed" else "bright"
    return Row(
        condition.type,
        (
            Cell(condition.type, look),
            Cell(condition.status, look),
            Cell(clock.age(condition.last_transition_time), "quiet"),
            Cell(condition.message or "", "quiet"),
            Cell(condition.reason or "", "quiet"),
        ),
    )


def _event_row(event: Event, about: str, clock: Clock) -> Row:
    is_warning = event.type == "Warning"
    return Row(
        event.metadata.uid,
        (
            Cell(clock.age(event.at), "quiet"),
            Cell(event.type or "", "pending" if is_warning else "quiet"),
            Cell(about),
            Cell(event.reason or "", "bright" if is_warning else ""),
            Cell(str(event.count or 1), "quiet"),
            Cell(event.message or "", "" if is_warning else "quiet"),
        ),
    )
