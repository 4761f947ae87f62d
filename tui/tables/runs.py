"""The list of past runs."""

from __future__ import annotations

from datetime import UTC, datetime

from k8s.text.sanitize import sanitize
from tui.runs.record import RunRecord
from tui.tables.column import Cell, ListColumn, Values, values_of
from tui.text.format import NOTHING, CellStyle, Clock, duration, number, seconds_since, timestamp

_STYLES: dict[str, CellStyle] = {"Failed": "failed", "Succeeded": "done"}


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a time; None if there is none or it is out of range."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _ended(run: RunRecord) -> datetime | None:
    return moment(run.ended_s if run.ended_s is not None else run.seen_s)


def _duration_s(run: RunRecord) -> float | None:
    return run.duration_s(run.seen_s)


def _number(value: float | None) -> Cell:
    return Cell(number(value), "" if value is not None else "quiet", sort=value)


def _best(run: RunRecord) -> float | None:
    return run.best_of(run.loss_tag)


def _finite(run: RunRecord) -> float | None:
    found = run.tags.get(run.loss_tag)
    return None if found is None else found.last


def _values(run: RunRecord, clock: Clock) -> Values:
    return {
        "ended_ago_s": seconds_since(_ended(run), clock.now),
        "ended": timestamp(moment(run.ended_s)),
        "started": timestamp(moment(run.started_s)),
    }


COLUMNS: tuple[ListColumn[RunRecord, Clock], ...] = (
    ListColumn(
        "name", "NAME", min_width=16, good_width=24, elide="middle", max_width=60,
        cell=lambda run, _: Cell(sanitize(run.name) or NOTHING, "bright"),
        value=lambda run, _: run.name, printed="table",
    ),
    ListColumn(
        "namespace", "NAMESPACE", priority=3, elide="end", min_width=9, max_width=20,
        value=lambda run, _: run.namespace, printed="table", is_optional=True,
    ),
    ListColumn(
        "kind", "KIND", priority=5, elide="end", min_width=8, max_width=20,
        value=lambda run, _: run.kind, printed="wide",
    ),
    ListColumn(
        "status", "STATUS", min_width=9,
        cell=lambda run, _: Cell(sanitize(run.status) or NOTHING, _STYLES.get(run.status, "")),
        value=lambda run, _: run.status, printed="table",
    ),
    ListColumn(
        "ended", "ENDED", align="right", is_age=True,
        cell=lambda run, clock: Cell.of_age(_ended(run), clock), values=_values, printed="table",
        json="ended_ago_s ended started",
    ),
    ListColumn(
        "duration", "DURATION", align="right", priority=1, sorts_largest_first=True,
        cell=lambda run, _: Cell(duration(_duration_s(run)), sort=_duration_s(run)),
        value=lambda run, _: _duration_s(run), json="duration_s", printed="table", narrow_title="TIME",
    ),
    ListColumn(
        "gpus", "GPUS", align="right", priority=2, sorts_largest_first=True,
        cell=lambda run, _: Cell(str(run.gpus or NOTHING), sort=float(run.gpus)),
        value=lambda run, _: run.gpus, printed="table",
    ),
    ListColumn(
        "loss", "LOSS", align="right", cell=lambda run, _: _number(run.loss),
        value=lambda run, _: _finite(run), printed="table",
    ),
    ListColumn(
        "best_loss", "BEST", align="right", cell=lambda run, _: _number(_best(run)),
        value=lambda run, _: _best(run), printed="table",
    ),
    ListColumn(
        "throughput", "RATE", align="right", priority=4, sorts_largest_first=True,
        cell=lambda run, _: Cell(
            f"{number(run.throughput)} {sanitize(run.throughput_unit)}".rstrip(), sort=run.throughput
        ),
        value=lambda run, _: run.throughput, printed="wide",
    ),
    ListColumn(
        "user", "USER", priority=6, elide="end", min_width=4, max_width=14,
        value=lambda run, _: run.user, printed="wide",
    ),
    ListColumn(
        "context", "CONTEXT", priority=7, elide="end", min_width=8, max_width=24,
        value=lambda run, _: run.context, printed="wide",
    ),
    ListColumn(
        "source", "SOURCE", in_console=False, value=lambda run, _: run.source or run.log_dir, printed="wide",
    ),
    ListColumn(
        "uid", "UID", in_console=False,
        values=lambda run, _: {
            "uid": run.uid, "image": run.image, "code": run.code, "command": run.command,
            "arguments": run.arguments, "env": run.env, "hparams": run.hparams, "nodes": list(run.nodes),
            "placement": run.placement, "link": run.link, "log_dir": run.log_dir,
            "is_partial": run.is_partial,
            "tags": {
                tag: {"last": each.last, "min": each.low, "max": each.high, "step": each.step,
                      "count": each.count}
                for tag, each in run.tags.items()
            },
        },
    ),
)  # fmt: skip


def run_text(run: RunRecord) -> str:
    """Return everything in the record of a run, as YAML without what is empty."""
    from k8s.text.yaml_writer import to_yaml  # slow to import

    values = values_of(run, Clock.ahead(0), COLUMNS)
    return to_yaml({name: value for name, value in values.items() if value not in (None, "", {}, [], False)})
