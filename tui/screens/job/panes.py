"""The panes in the view of one job: title, columns and rows of its tables, loss curve, focus, full screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widget import Widget

from k8s.gpus.gpu_warnings import GpuWarning
from k8s.gpus.readings import GpuKey, RankReading
from k8s.kinds import JobRef
from k8s.logs.last import LastLine
from k8s.models import LONG_AGO, Condition
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.text.sanitize import log_text, sanitize
from tui.runs.curve_feed import CurveFeed
from tui.runs.series import Series
from tui.session.gpu_facts import describe_place, in_order
from tui.tables.column import Cell, Column, Row
from tui.tables.events import FoldedEvent
from tui.tables.jobs import JobsNow
from tui.text.cells import cell_len, elide_end, elide_middle
from tui.text.format import NOTHING, CellStyle, Clock, duration, status_run, trouble_text
from tui.text.gpu_words import (
    ADVICE,
    gpu_memory,
    percent,
    power,
    temperature,
    utilisation_style,
    warning_style,
)
from tui.text.instances import format_ranks, is_silent
from tui.text.natural_order import tag_key
from tui.text.sparkline import GAP, level
from tui.widgets.curve_chart import CurveChart, PlotCurve
from tui.widgets.table.table import Table

LAST_TITLE = "LAST LINE"
INSTANCE_COLUMNS = (
    Column("instance", "INSTANCE", elide="middle", min_width=10, max_width=40),
    Column("ranks", "RANKS", min_width=5),
    Column("status", "STATUS", min_width=10, flashes=True),
    Column("gpus", "GPU", align="right", priority=2),
    Column("node", "NODE", elide="middle", min_width=8, max_width=30, priority=1),
    Column("restarts", "RESTARTS", align="right", priority=3, sorts_largest_first=True, flashes=True),
    Column("age", "AGE", align="right", priority=4),
    Column("last", LAST_TITLE, min_width=9, sorts_largest_first=True),
    Column("pod", "POD", elide="middle", min_width=12, max_width=60, priority=6),
)
# Only in a wide terminal.
LINE_COLUMN = Column("line", "SAYS", elide="end", min_width=24, max_width=400, priority=5)
CONDITION_COLUMNS = (
    Column("type", "CONDITION", min_width=10),
    Column("status", "IS", min_width=5),
    Column("age", "SINCE", align="right"),
    Column("message", "MESSAGE", elide="end", min_width=10, max_width=200, priority=2),
    Column("reason", "REASON", elide="end", min_width=8, max_width=30, priority=1),
)
EVENT_COLUMNS = (
    Column("age", "AGE", align="right"),
    Column("about", "ABOUT", elide="middle", min_width=10, max_width=30),
    Column("reason", "REASON", elide="end", min_width=12, max_width=24),
    Column("count", "×", align="right", priority=1),
    Column("message", "MESSAGE", elide="end", min_width=18, max_width=400),
)
# Step of the age of a last line, so that the cell of a busy instance stands still.
AGE_STEP_S = 5
_MAX_LINE_CHARS = 400
_WAITS = (Status.QUEUED, Status.PENDING, Status.STARTING)
_RAN = (Status.RUNNING, Status.RESTARTING, Status.SUCCEEDED, Status.FAILED)


def job_title(
    ref: JobRef, job: Job | None, now: JobsNow, width: int, *, progress: str = "", is_gone: bool = False
) -> str:
    """Return the longest title that fits.

    For example `Jobs › bert   PyTorchJob kubeflow.org/v1 · Running 2h13m · 4/4 pods · epoch 2/3`.

    Args:
        ref: The job.
        job: Its current or last state; None if unknown.
        now: Current time, and the trouble in the output of jobs.
        width: Width in cells.
        progress: Progress from the job's output.
        is_gone: True if the job was deleted.
    """
    kind, name, version = sanitize(ref.kind), sanitize(ref.name), sanitize(ref.api_version)
    trainer = ""
    if is_gone or job is None:
        words = "deleted; this is its last state" if job else "not found"
        state, progress = [words] if is_gone else [], ""
    else:
        state = [f"{job.status}{_time(job, now.clock)}", f"{job.instances_running}/{len(job.instances)} pods"]
        state += filter(None, [trouble_text(now.signs(job), now.clock)])
        trainer = f"trainer {sanitize(job.trainer)}" if job.trainer else ""
    tails = (
        [f"{kind} {version}", *state, progress, trainer],
        [f"{kind} {version}", *state, progress],
        [kind, *state, progress],
        [*state, progress],
        [f"{kind} {version}", *state],
        [kind, *state],
        state or [kind],
    )
    texts = [f"Jobs › {name}   {' · '.join(filter(None, each))}" for each in tails]
    fitting = next((text for text in texts if cell_len(text) <= width), None)
    if fitting is not None:
        return fitting
    tail = " · ".join(filter(None, tails[-1]))
    room = max(12, width - cell_len(f"Jobs ›    {tail}"))
    return elide_end(f"Jobs › {elide_middle(name, room)}   {tail}", max(width, 1))


def _time(job: Job, clock: Clock) -> str:
    if job.started is None and job.status in _WAITS and job.created is not None and not job.restarts:
        return f" {clock.age(job.created)}"
    if job.status not in _RAN or job.started is None:
        return ""
    return f" {clock.age(job.started, job.finished)}"


def instance_rows(
    job: Job, newest: Mapping[str, LastLine], now: JobsNow, *, shows_lines: bool, refusal: str = ""
) -> list[Row]:
    """Return one row per instance; the silent and the slow ones are named.

    Args:
        job: The job.
        newest: Latest log line by pod name.
        now: Current time, and the trouble in the output of jobs.
        shows_lines: Add a cell with the latest line.
        refusal: Reason why logs may not be read; shown in the first row.
    """
    rows, clock, signs = [], now.clock, now.signs(job)
    for place, each in enumerate(job.instances):
        line = newest.get(each.pod)
        silent_s = line.silent_s(clock.now.timestamp()) if line is not None else None
        behind = [slow.text for slow in signs.stragglers if slow.instance == each.name]
        last = _last_cell(silent_s, clock, is_silent=is_silent(signs, each), slow=", ".join(behind[:2]))
        if refusal:
            last = Cell(refusal if place == 0 else NOTHING, "pending" if place == 0 else "quiet")
        line_cell = Cell(log_text(line.raw, cap=_MAX_LINE_CHARS) if line is not None else NOTHING, "quiet")
        rows.append(_instance_row(each, clock, last, line_cell if shows_lines else None))
    return rows


def _last_cell(silent_s: float | None, clock: Clock, *, is_silent: bool, slow: str) -> Cell:
    if silent_s is None:
        return Cell(slow, "pending") if slow else Cell(NOTHING, "quiet", sort=-1.0)
    whole_s = int(silent_s) // AGE_STEP_S * AGE_STEP_S
    words = clock.mark + (duration(whole_s) if whole_s >= 60 else f"{whole_s}s")
    if is_silent:
        return Cell(f"{words} silent!{slow and f', {slow}'}", "failed", sort=silent_s)
    return Cell(f"{words}, {slow}" if slow else words, "pending" if slow else "quiet", sort=silent_s)


def _instance_row(instance: Instance, clock: Clock, last: Cell, line_cell: Cell | None) -> Row:
    cells = (
        Cell(f"{instance.name} *" if instance.is_chief else instance.name, "bright"),
        Cell(format_ranks(instance.ranks, instance.ranks_proof)),
        Cell(*status_run(instance.status, instance.reason, instance.restarts)),
        Cell(str(instance.gpus) if instance.gpus else NOTHING, sort=float(instance.gpus)),
        Cell(instance.node or NOTHING, "quiet"),
        Cell(str(instance.restarts), "failed" if instance.restarts else "quiet"),
        Cell(clock.age(instance.created), "quiet", sort=_age_s(instance, clock)),
        last,
        Cell(instance.pod or NOTHING, "quiet"),
    )
    return Row(
        instance.name,
        cells if line_cell is None else (*cells, line_cell),
        f"└ {instance.reason}" if instance.reason else None,
    )


def _age_s(instance: Instance, clock: Clock) -> float:
    return (clock.now - instance.created).total_seconds() if instance.created is not None else -1.0


def condition_rows(conditions: Sequence[Condition], clock: Clock) -> list[Row]:
    """Return one row per condition, oldest first."""
    ordered = sorted(conditions, key=lambda each: each.last_transition_time or LONG_AGO)
    return [_condition_row(place, each, clock) for place, each in enumerate(ordered)]


def _condition_row(place: int, condition: Condition, clock: Clock) -> Row:
    is_true = condition.status == "True"
    style: CellStyle = "quiet" if not is_true else "failed" if condition.type == "Failed" else "bright"
    return Row(
        f"{condition.type} {place}",
        (
            Cell(condition.type, style),
            Cell(condition.status, style),
            Cell(clock.age(condition.last_transition_time), "quiet"),
            Cell(condition.message or "", "quiet"),
            Cell(condition.reason or "", "quiet"),
        ),
    )


def event_row(folded: FoldedEvent, clock: Clock) -> Row:
    """Return the row of an event; warnings are highlighted."""
    event, is_warning = folded.newest, folded.is_warning
    return Row(
        event.metadata.uid or event.metadata.name,
        (
            Cell(clock.age(event.at), "quiet"),
            Cell(folded.about),
            Cell(f"{'! ' if is_warning else ''}{event.reason or ''}", "pending" if is_warning else ""),
            Cell(str(folded.count), "" if folded.count > 1 else "quiet", sort=float(folded.count)),
            Cell(event.message or "", "" if is_warning else "quiet"),
        ),
    )


# Shown while there are readings, after the status.
USAGE_COLUMNS = (
    Column("util", "UTIL", align="right", min_width=4, sorts_largest_first=True),
    Column("gpu_memory", "GPU MEM", align="right", priority=3, sorts_largest_first=True),
    Column("power", "POWER", align="right", priority=5, sorts_largest_first=True),
    Column("temp", "TEMP", align="right", priority=4, sorts_largest_first=True),
)
USAGE_PLACE = 3
# Up to this many GPUs get a bar each beside their mean.
MOST_MARKS = 8


def with_usage(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the instance columns with GPU columns."""
    return (*columns[:USAGE_PLACE], *USAGE_COLUMNS, *columns[USAGE_PLACE:])


def rows_with_usage(
    rows: Iterable[Row], ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]
) -> list[Row]:
    """Return the instance rows with GPU cells; a warning is the detail of a row without a reason."""
    found = []
    for row in rows:
        own = [each for each in ranks if each.instance.name == row.key]
        cells = (*row.cells[:USAGE_PLACE], *_cells(own, warnings), *row.cells[USAGE_PLACE:])
        found.append(row._replace(cells=cells, detail=row.detail or _detail(own, warnings)))
    return found


def _cells(ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]) -> tuple[Cell, ...]:
    gpus = [each.gpu for each in ranks if each.gpu is not None]
    if not gpus:
        return (Cell(NOTHING, "quiet"),) * len(USAGE_COLUMNS)
    known = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    mean = sum(known) / len(known) if known else None
    marks = "".join(GAP if gpu.utilisation is None else level(gpu.utilisation) for gpu in gpus)
    bad = [warning for gpu in gpus for warning in warnings.get(gpu.key, ())]
    style = warning_style(bad) or utilisation_style(min(known, default=None), is_held=True)
    words = f"{percent(mean)}{'!' * bool(bad)}"
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    total = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    hottest = max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None)
    return (
        Cell.of((f"{marks} " if 1 < len(gpus) <= MOST_MARKS else "", "quiet"), (words, style), sort=mean),
        Cell(gpu_memory(sum(used) if used else None, sum(total) if total else None), sort=sum(used)),
        Cell(power(sum(watts) if watts else None), "quiet", sort=sum(watts)),
        Cell(temperature(hottest), "quiet", sort=hottest),
    )


def _detail(ranks: Sequence[RankReading], warnings: Mapping[GpuKey, Sequence[GpuWarning]]) -> str | None:
    found = in_order(ranks, warnings)
    if not found:
        return None
    rank, warning = found[0]
    more = f" (+{len(found) - 1}; u shows all)" if len(found) > 1 else ""
    return f"└ ! {describe_place(rank)}: {warning.text}{more} {ADVICE[warning.kind]}"


class CurvePreview(CurveChart):
    """The loss, or the first other scalar; hidden without points."""

    def __init__(self, *, id: str, classes: str) -> None:
        super().__init__(id=id, classes=classes)
        self._series_by_run: dict[tuple[str, str, str], Series] = {}
        self.has_points = False

    @property
    def is_shown(self) -> bool:
        """True if there is room for the curve, unless another pane is full screen."""
        return self.has_points and self.screen.has_class("-wide")

    def show_feed(self, feed: CurveFeed) -> None:
        """Draw the points of a feed."""
        found = [curve for curve in feed.curves() if len(curve)]
        self.has_points = bool(found)
        self.screen.set_class(self.has_points, "-charted")
        if not found:
            return
        tag = min((curve.tag for curve in found), key=tag_key)
        lines = []
        for curve in found:
            if curve.tag == tag:
                key = (curve.run, curve.tag, "" if feed.is_from_log else curve.writer)
                series = self._series_by_run.setdefault(key, Series())
                restarts = [mark.step for mark in curve.restarts]
                series.update(curve.steps, curve.wall_times, curve.values, restarts)
                lines.append(PlotCurve(curve.run, series))
        self.set_curves(f"{tag} from log lines" if feed.is_from_log else tag, lines)


@dataclass(slots=True)
class _Layout:
    focused: str = "instances"
    is_full: bool = False


# One layout per console, kept while it runs.
_LAYOUTS: WeakKeyDictionary[App[object], _Layout] = WeakKeyDictionary()


class JobPanes(Container):
    """Instances and curve above conditions and events; or one of them full screen.

    In a small terminal conditions and events share a place: the focused one is visible.
    """

    def __init__(self) -> None:
        super().__init__(id="panes")
        self.instances = Table(INSTANCE_COLUMNS, empty="No instances.", id="instances", classes="pane")
        self.curve = CurvePreview(id="curve", classes="pane")
        self.conditions = Table(
            CONDITION_COLUMNS, empty="No conditions yet.", id="conditions", classes="pane"
        )
        self.events = Table(EVENT_COLUMNS, empty="No events.", id="events", classes="pane")

    def compose(self) -> ComposeResult:
        """Lay out two rows."""
        with Horizontal(id="above"):
            yield self.instances
            yield self.curve
        with Horizontal(id="below"):
            yield self.conditions
            yield self.events

    @property
    def _all(self) -> tuple[Widget, ...]:
        return (self.instances, self.curve, self.conditions, self.events)

    @property
    def _layout(self) -> _Layout:
        return _LAYOUTS.setdefault(self.app, _Layout())

    @property
    def focused(self) -> Widget:
        """Pane with the focus, or the last one that had it."""
        return next((pane for pane in self._all if "-alone" in pane.classes), self.instances)

    @property
    def is_full(self) -> bool:
        """True if one pane is full screen."""
        return self.has_class("-full")

    def restore(self) -> None:
        """Restore the layout of the last job view."""
        layout = self._layout
        self.set_class(layout.is_full, "-full")
        self.go_to(next((pane for pane in self._all if pane.id == layout.focused), self.instances))

    def go_to(self, pane: Widget) -> None:
        """Focus a pane and make it visible."""
        self._set_focused(pane if pane is not self.curve or self.curve.has_points else self.instances)
        self.call_after_refresh(self.focused.focus)

    def step(self, panes: int) -> None:
        """Focus the next or previous pane."""
        there = [pane for pane in self._all if pane is not self.curve or self.curve.is_shown]
        place = there.index(self.focused) if self.focused in there else 0
        self.go_to(there[(place + panes) % len(there)])

    def toggle_full(self) -> None:
        """Toggle full screen for the focused pane."""
        self.set_class(not self.is_full, "-full")
        self._layout.is_full = self.is_full

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Remember the focused pane."""
        if event.widget in self._all:
            self._set_focused(event.widget)

    def _set_focused(self, pane: Widget) -> None:
        for each in self._all:
            each.set_class(each is pane, "-alone")
        self.set_class(pane in (self.instances, self.curve), "-upper")
        if pane in (self.conditions, self.events):
            self.set_class(pane is self.conditions, "-conditions")
        self._layout.focused = pane.id or ""

    def set_pane_title(self, pane: Widget, title: str, subtitle: str = "") -> None:
        """Set the titles on a pane's frame; no markup."""
        for name, text in (("border_title", title), ("border_subtitle", subtitle)):
            content = Content(text)
            if getattr(pane, name) != (content.markup if text else None):
                setattr(pane, name, content if text else None)
