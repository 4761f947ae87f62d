"""Curves and events that outlive their jobs: few points of each curve, and the newest events."""

from __future__ import annotations

import asyncio
import math
import time
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from k8s.models.base import LONG_AGO, Meta
from k8s.models.event import Event
from trainer.tfevents import Columns, Restart, ScalarCurve, ScalarSeries
from tui.runs.series import few_points
from tui.text.format import newest_point
from tui.text.natural_order import tag_key

if TYPE_CHECKING:
    from tui.runs.journal.database import Journal

# Points of a curve, and curves and events of a run.
KEPT_POINTS, KEPT_CURVES, KEPT_EVENTS = 1_000, 32, 500
# Columns of up to two points each, and of up to three where values are not finite.
_COLUMNS, _BROKEN_COLUMNS = (KEPT_POINTS - 2) // 2, (KEPT_POINTS - 2) // 3
# Seconds since 1970 up to the year 8307; others are no times.
_LATEST_S = 2e11
SOURCE = "the journal"
_PUT_EVENT = (
    "INSERT INTO events (event_uid, uid, last_s, body) VALUES (?, ?, ?, ?) ON CONFLICT (event_uid)"
    " DO UPDATE SET last_s = excluded.last_s, body = excluded.body WHERE excluded.last_s >= last_s"
)

Points = dict[tuple[str, str], ScalarSeries]
"""Points by the run in a folder, and the tag."""


class _KeptCurve(msgspec.Struct):
    run: str
    tag: str
    is_log: bool
    steps: list[int]  # the first, then differences; so are times, in milliseconds
    times: list[int]
    values: list[float | None]  # None is not finite
    restarts: list[Restart] = []


def add_curves(known: Points, curves: Iterable[ScalarCurve]) -> None:
    """Continue curves by newer points. Of several of one tag, the longest counts."""
    longest = {(each.run, each.tag): each for each in sorted(curves, key=len) if len(each)}
    for key in sorted(longest, key=lambda each: tag_key(each[1])):
        if key not in known and len(known) >= KEPT_CURVES:
            continue
        new, series = longest[key], known.setdefault(key, ScalarSeries())
        if len(series) and new.wall_times[0] <= series.wall_times[-1]:  # read again, not written again
            first = bisect_left(series.steps, new.steps[0])
            del series.steps[first:], series.wall_times[first:], series.values[first:]
            series.restarts = [each for each in series.restarts if each.step < new.steps[0]]
        series.extend(Columns(new.tag, new.steps, new.wall_times, new.values))
        series.restarts += new.restarts
        if len(series) > 2 * KEPT_POINTS:
            known[key] = _with_few_points(series)


def curves_of(points: Points) -> list[ScalarCurve]:
    """Return points as curves."""
    return [
        ScalarCurve(run, tag, "", each.steps, each.wall_times, each.values, tuple(each.restarts))
        for (run, tag), each in points.items()
    ]


def keep_curves(journal: Journal, uid: str, curves: Iterable[ScalarCurve], *, is_log: bool) -> None:
    """Keep the curves of a run; those of the end of a log continue earlier ones, others replace them."""
    if not (curves := [each for each in curves if len(each)]):
        return
    known, are_of_log = _kept(journal, uid)
    if is_log and known and not are_of_log:  # a log tells less than files
        return
    points = known if is_log else {}
    add_curves(points, curves)
    put = "INSERT INTO curves (uid, tag, kept_s, body) VALUES (?, ?, ?, ?)"
    rows = [
        (put, uid, tag if run == "." else f"{run}\t{tag}", time.time(), _encode(run, tag, each, is_log))
        for (run, tag), each in points.items()
    ]
    journal.keep(("DELETE FROM curves WHERE uid = ?", uid), *rows)


def _kept(journal: Journal, uid: str) -> tuple[Points, bool]:
    # Also returns True if they are of a log.
    found: Points = {}
    is_log = False
    for (body,) in journal.rows("SELECT body FROM curves WHERE uid = ?", uid):
        # A damaged one is left out.
        with suppress(msgspec.MsgspecError, zlib.error, OverflowError, ValueError):
            each = msgspec.json.decode(zlib.decompress(body), type=_KeptCurve)
            values = (math.nan if value is None else value for value in each.values)
            times = (time_ms / 1e3 for time_ms in accumulate(each.times))
            found[each.run, each.tag] = ScalarSeries(
                array("q", accumulate(each.steps)), array("d", times), array("d", values), each.restarts
            )
            is_log = each.is_log
    return found, is_log


def _encode(run: str, tag: str, series: ScalarSeries, is_log: bool) -> bytes:
    few = _with_few_points(series)
    times = [round(each * 1e3) if 0 <= each <= _LATEST_S else 0 for each in few.wall_times]
    # Seven digits, as event files have.
    values = [float(f"{each:.7g}") if math.isfinite(each) else None for each in few.values]
    body = _KeptCurve(run, tag, is_log, _differences(few.steps), _differences(times), values, few.restarts)
    return zlib.compress(msgspec.json.encode(body))


def _differences(numbers: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise(chain((0,), numbers))]


def _with_few_points(series: ScalarSeries) -> ScalarSeries:
    if len(series) <= KEPT_POINTS:
        return series
    chosen = few_points(series.steps, series.values, _COLUMNS)
    if len(chosen) > KEPT_POINTS:
        chosen = few_points(series.steps, series.values, _BROKEN_COLUMNS)
    times, values = ([column[at] for at in chosen] for column in (series.wall_times, series.values))
    steps = array("q", [series.steps[at] for at in chosen])
    return ScalarSeries(steps, array("d", times), array("d", values), series.restarts[-KEPT_POINTS:])


class KeptCurves:
    """The kept curves of one run; a view reads them as it reads a `CurveFeed`."""

    is_from_log = False

    def __init__(self, journal: Journal, uid: str) -> None:
        """Read nothing yet."""
        self._journal, self._uid = journal, uid
        self._curves: list[ScalarCurve] | None = None

    def curves(self) -> list[ScalarCurve]:
        """Return the curves, read at the first call."""
        if self._curves is None:
            self._curves = curves_of(_kept(self._journal, self._uid)[0])
        return self._curves

    @property
    def source(self) -> str:
        """Return the name of the journal; empty if it has no curves."""
        return SOURCE if self._curves else ""

    source_text = source

    @property
    def problem(self) -> str:
        """Return the reason that there are none; empty before they were read."""
        return f"{SOURCE.capitalize()} has no curves of this run." if self._curves == [] else ""

    @property
    def newest_s(self) -> float:
        """Return the time of the newest point, in seconds since 1970; 0 if there is none."""
        return max((each.wall_times[-1] for each in self.curves()), default=0.0)

    @property
    def age_text(self) -> str:
        """Return the age of the newest point, as `, newest point 3m ago`."""
        return newest_point(self.newest_s, time.time())

    async def run(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Read once, report it, and wait until cancelled."""
        await asyncio.to_thread(self.curves)
        await on_change()
        await asyncio.Event().wait()

    def choose_folder(self, _folder: str) -> None:
        """Ignore a folder: the pods are gone."""


class _KeptEvent(msgspec.Struct):
    about: str  # the name of its object in the views of the job
    event: Event


def keep_events(journal: Journal, uid: str, found: Iterable[tuple[str, Event]]) -> None:
    """Keep the newest events of a job, each after the name of its object, in place of earlier counts."""
    from k8s.text.redact import Redactor

    redactor, rows = Redactor(), []
    newest = sorted(found, key=lambda each: each[1].at or LONG_AGO)[-KEPT_EVENTS:]
    for about, event in newest:
        meta = event.metadata
        few = Meta(meta.name, meta.namespace, meta.uid, creation_timestamp=meta.creation_timestamp)
        event = replace(event, metadata=few, message=redactor.text(event.message or ""))
        last_s = event.at.timestamp() if event.at is not None else time.time()
        body = msgspec.json.encode(_KeptEvent(about, event))
        rows.append((_PUT_EVENT, meta.uid or f"{meta.namespace}/{meta.name}", uid, last_s, body))
    journal.keep(*rows)


def kept_events(journal: Journal, uid: str) -> list[tuple[str, Event]]:
    """Return the events that were kept of a job, the oldest first, each after the name of its object."""
    found = []
    for (body,) in journal.rows("SELECT body FROM events WHERE uid = ? ORDER BY last_s", uid):
        with suppress(msgspec.MsgspecError):  # a damaged one is left out
            kept = msgspec.json.decode(body, type=_KeptEvent)
            found.append((kept.about, kept.event))
    return found
