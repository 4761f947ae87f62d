"""What the view of one job says: its title, and the columns and rows of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8s.kinds import JobRef
from k8s.logs.last import LastLine
from k8s.models import LONG_AGO, Condition
from k8s.snapshot import Instance, Job
from k8s.status import Status
from k8s.text.sanitize import log_text, sanitize
from tui.jobs.events import FoldedEvent
from tui.jobs.instances import rank_words
from tui.text.cells import cell_len, elide_end, elide_middle
from tui.text.format import NOTHING, Clock, Look, duration, status_run
from tui.widgets.table.table import Cell, Column, Row

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
SAID_COLUMN = Column("said", "SAYS", elide="end", min_width=24, max_width=400, priority=5)
"""The newest line itself, where there is room for it."""
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
SILENT_S = 120.0
"""A running instance that has printed nothing for so long, while others do, is pointed out."""
AGE_STEP_S = 5
"""In such steps the age of a last line grows, so that what prints all the time stands still."""
_SAID_CHARS = 400
_RAN = (Status.RUNNING, Status.RESTARTING, Status.SUCCEEDED, Status.FAILED)
"""How a job is that has run."""


def job_title(
    ref: JobRef, job: Job | None, clock: Clock, width: int, *, progress: str = "", is_gone: bool = False
) -> str:
    """Return `Jobs › bert   PyTorchJob kubeflow.org/v1 · Running 2h13m · 4/4 pods · epoch 2/3`.

    Args:
        ref: The job.
        job: How it is, or was when it was last seen; None where nobody knows.
        clock: Tells the time.
        width: The cells that there are.
        progress: How far it says it is.
        is_gone: It is there no more.
    """
    kind, name, version = sanitize(ref.kind), sanitize(ref.name), sanitize(ref.api_version)
    trainer = ""
    if is_gone or job is None:
        words = "gone: it was deleted; this is its last state" if job else "gone: there is no such job"
        state, progress = [words] if is_gone else [], ""
    else:
        state = [f"{job.status}{_time(job, clock)}", f"{job.instances_running}/{len(job.instances)} pods"]
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
    """Return how long it runs, or ran."""
    if job.status not in _RAN or job.started is None:
        return ""
    return f" {clock.age(job.started, job.finished)}"


def instance_rows(
    instances: Sequence[Instance],
    newest: Mapping[str, LastLine],
    clock: Clock,
    *,
    shows_lines: bool,
    refusal: str = "",
) -> list[Row]:
    """Return a row for each instance.

    Args:
        instances: The instances of one job.
        newest: The newest line of each, by the name of its pod, as far as there is one.
        clock: Tells the time.
        shows_lines: Whether there is the column with the line itself.
        refusal: Why logs may not be read; the first row says it.
    """
    now_s = clock.now.timestamp()
    silences = [
        line.silent_s(now_s) if (line := newest.get(each.pod)) is not None else None for each in instances
    ]
    pairs = zip(instances, silences, strict=True)
    talks = any(
        each.status is Status.RUNNING and silent is not None and silent < SILENT_S for each, silent in pairs
    )
    rows = []
    for place, (each, silent_s) in enumerate(zip(instances, silences, strict=True)):
        is_silent = talks and each.status is Status.RUNNING and silent_s is not None and silent_s >= SILENT_S
        last = _last_cell(silent_s, clock, is_silent=is_silent)
        if refusal:
            last = Cell(refusal if place == 0 else NOTHING, "pending" if place == 0 else "quiet")
        line = newest.get(each.pod)
        said = Cell(log_text(line.raw, cap=_SAID_CHARS) if line is not None else NOTHING, "quiet")
        rows.append(_instance_row(each, clock, last, said if shows_lines else None))
    return rows


def _last_cell(silent_s: float | None, clock: Clock, *, is_silent: bool) -> Cell:
    if silent_s is None:
        return Cell(NOTHING, "quiet", sort=-1.0)
    whole_s = int(silent_s) // AGE_STEP_S * AGE_STEP_S
    words = clock.mark + (duration(whole_s) if whole_s >= 60 else f"{whole_s}s")
    return (
        Cell(f"{words} silent!", "failed", sort=silent_s)
        if is_silent
        else Cell(words, "quiet", sort=silent_s)
    )


def _instance_row(instance: Instance, clock: Clock, last: Cell, said: Cell | None) -> Row:
    cells = (
        Cell(f"{instance.name} *" if instance.is_chief else instance.name, "bright"),
        Cell(rank_words(instance.ranks, instance.ranks_proof)),
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
        cells if said is None else (*cells, said),
        f"└ {instance.reason}" if instance.reason else None,
    )


def _age_s(instance: Instance, clock: Clock) -> float:
    return (clock.now - instance.created).total_seconds() if instance.created is not None else -1.0


def condition_rows(conditions: Sequence[Condition], clock: Clock) -> list[Row]:
    """Return a row for each condition, the oldest first."""
    ordered = sorted(conditions, key=lambda each: each.last_transition_time or LONG_AGO)
    return [_condition_row(place, each, clock) for place, each in enumerate(ordered)]


def _condition_row(place: int, condition: Condition, clock: Clock) -> Row:
    is_true = condition.status == "True"
    look: Look = "quiet" if not is_true else "failed" if condition.type == "Failed" else "bright"
    return Row(
        f"{condition.type} {place}",
        (
            Cell(condition.type, look),
            Cell(condition.status, look),
            Cell(clock.age(condition.last_transition_time), "quiet"),
            Cell(condition.message or "", "quiet"),
            Cell(condition.reason or "", "quiet"),
        ),
    )


def event_row(happening: FoldedEvent, clock: Clock) -> Row:
    """Return the row of an event; a warning is loud."""
    event, is_warning = happening.newest, happening.is_warning
    return Row(
        event.metadata.uid or event.metadata.name,
        (
            Cell(clock.age(event.at), "quiet"),
            Cell(happening.about),
            Cell(f"{'! ' if is_warning else ''}{event.reason or ''}", "pending" if is_warning else ""),
            Cell(str(happening.count), "" if happening.count > 1 else "quiet", sort=float(happening.count)),
            Cell(event.message or "", "" if is_warning else "quiet"),
        ),
    )
