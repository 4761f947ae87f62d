"""Alerts about the curves of a running job: a loss that is not finite, diverges or stalls, and slow steps.

Each rule judges the state at the newest point, so an alert ends when the curve recovers.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from k8s.snapshot import NO_SIGNS, CurveAlert, Job, LifeSigns
from k8s.status import Status
from trainer.tfevents import ScalarCurve
from tui.runs.record import RunRecord
from tui.settings.options import DEFAULT_ALERTS, RULES_AT_END, AlertRule

# A point of a smoothed curve is the median of so many values, or more in its older part.
LEAST_BIN, NEWEST_BIN, NEWEST, BINS = 4, 10, 1000, 100
# Smoothed points before which a loss is not judged, and those for which it must be high.
LEAST_BINS, LEAST_HIGH = 12, 5
# Rise above the minimum: share of the minimum, share of the improvement before it, and multiple of the noise.
RISE, LOST, NOISE = 0.5, 0.1, 8.0
# Improvement before the minimum, without which a loss cannot diverge: share of the first loss, multiple of
# the noise, and smoothed points.
IMPROVED, FELL, LEAST_FALL = 0.1, 3.0, 3
# Fall of a high loss by which it recovers, as a share of its rise.
RECOVERS = 0.1
# Values without improvement, at least and as a share of all, and the improvement that counts.
PLATEAU, PLATEAU_SHARE, BETTER = 500, 0.5, 0.005
# Newest intervals and earlier ones, at least; multiple of the usual time of a step; least span of the newest.
SLOW, USUAL, TIMES, SLOW_S = 10, 30, 3.0, 60.0
# Limits of what is kept of a job's log.
MAX_POINTS, MAX_TAGS, MAX_RATES, MAX_RATE = 4000, 128, 4, 300
NOT_FINITE = "its newest loss is not a finite number"
# Names of scalars of runs in which losses balance.
_BALANCED = re.compile(
    r"(?:^|[^a-z])(?:[gd]|gan|gen|disc|adv|generator|discriminator|adversarial|policy|value|vf|pg|actor|critic|q[f12]?"
    r"|(?<!cross.)entropy|kl|surrogate|td|reward|rewards|return|returns|ep_len|episode\w*|ppo|dqn|sac)(?:[^a-z]|$)"
)
_THROUGHPUT = re.compile(
    r"throughput|(?:tokens?|samples?|steps?|it|img|images?)(?:_per_|/)s|fps$|tps$|(?:^|[/_])mfu$"
)


def loss_alerts(
    steps: Sequence[int],
    values: Sequence[float],
    *,
    tags: Iterable[str] = (),
    rules: Collection[AlertRule] = DEFAULT_ALERTS,
) -> tuple[CurveAlert, ...]:
    """Judge a loss. Losses that legitimately rise are told by `tags`, the names of all scalars of the run."""
    if AlertRule.NAN in rules and (found := _not_finite(values)):
        return (found,)
    if not {AlertRule.DIVERGED, AlertRule.PLATEAU} & set(rules) or has_balanced_losses(tags):
        return ()
    finite = [index for index, value in enumerate(values) if math.isfinite(value)]
    smooth = _smooth([values[index] for index in finite])
    found = _diverged(smooth) if AlertRule.DIVERGED in rules else None
    found = found or (_stalled(smooth, len(finite)) if AlertRule.PLATEAU in rules else None)
    if found is None:
        return ()
    place = finite[found.place]
    return (found._replace(place=place, text=f"{found.text} since step {steps[place]:,}"),)


def has_balanced_losses(tags: Iterable[str]) -> bool:
    """Return True for GANs and reinforcement learning, whose losses rise while all is well."""
    return any(_BALANCED.search(tag.lower()) for tag in tags)


def is_throughput(tag: str) -> bool:
    """Return True for the name of a rate that should not fall."""
    return bool(_THROUGHPUT.search(tag.lower()))


def _not_finite(values: Sequence[float]) -> CurveAlert | None:
    first = len(values)
    while first and not math.isfinite(values[first - 1]):
        first -= 1
    return CurveAlert(AlertRule.NAN, NOT_FINITE, first) if first < len(values) else None


def _smooth(values: Sequence[float]) -> list[tuple[int, float]]:
    old = max(0, len(values) - NEWEST)
    new_size = max(LEAST_BIN, min(NEWEST_BIN, (len(values) - old) // BINS))
    old_size = max(new_size, -(-old // BINS))
    # From the end, so that the newest bin is whole.
    starts = [*range(len(values) - new_size, old - 1, -new_size)]
    starts += range((starts[-1] if starts else old) - old_size, -1, -old_size)
    starts.reverse()
    ends = [*starts[1:], len(values)] if starts else []
    return [(start, median(values[start:end])) for start, end in zip(starts, ends, strict=True)]


def _noise(smooth: Sequence[tuple[int, float]]) -> float:
    newest = [level for _, level in smooth[-BINS:]]
    return median(abs(after - before) for before, after in pairwise(newest))


def _diverged(smooth: Sequence[tuple[int, float]]) -> CurveAlert | None:
    if len(smooth) < LEAST_BINS:
        return None
    levels = [level for _, level in smooth]
    least = min(levels)
    best = levels.index(least)
    first = median(levels[:2])
    improved = first - least
    # A loss that grows without bounds would count as noise itself.
    noise = min(_noise(smooth), _noise(smooth[: best + 1])) if best >= LEAST_FALL else _noise(smooth)
    limit = least + max(RISE * abs(least), LOST * improved, NOISE * noise)
    since = len(levels)
    while since and levels[since - 1] > limit:
        since -= 1
    high = levels[since:]
    never_fell = best < LEAST_FALL or improved < max(IMPROVED * abs(first), FELL * noise)
    if never_fell or since <= best or len(high) < LEAST_HIGH:
        return None
    before, after = median(high[: len(high) // 2]), median(high[len(high) // 2 :])
    if before - after > RECOVERS * (before - least):
        return None
    return CurveAlert(
        AlertRule.DIVERGED, f"its loss is far above its minimum of {least:.3g}", smooth[since][0]
    )


def _stalled(smooth: Sequence[tuple[int, float]], total: int) -> CurveAlert | None:
    if len(smooth) < LEAST_BINS:
        return None
    best, best_at, noise = math.inf, 0, _noise(smooth)
    for start, level in smooth:
        if best == math.inf or level < best - max(BETTER * abs(best), 2 * FELL * noise):
            best, best_at = level, start
    if total - best_at < max(PLATEAU, PLATEAU_SHARE * total):
        return None
    return CurveAlert(AlertRule.PLATEAU, "its loss has not improved", best_at)


def slow_alert(steps: Sequence[int], times: Sequence[float]) -> CurveAlert | None:
    """Judge the time of a step, from the steps and the times at which they were recorded.

    A few long intervals, as of evaluations, checkpoints and restarts, do not count.
    """
    pairs = zip(steps, steps[1:], times, times[1:], strict=False)
    found = [
        (index, (end - start) / (step - last))
        for index, (last, step, start, end) in enumerate(pairs, 1)
        if step > last and end >= start
    ]
    count = SLOW
    while count < len(found) and times[-1] - times[found[-count][0] - 1] < SLOW_S:
        count += 1
    if len(found) < count + USUAL:
        return None
    usual = median(each for _, each in found[:-count])
    newest = [each for _, each in found[-count:]]
    limit = TIMES * usual
    # Most intervals of each half, so that neither an evaluation nor a burst of buffered lines decides.
    is_slow = min(median(newest[: count // 2]), median(newest[count // 2 :])) > limit
    since = found[-count][0]
    if not usual or not is_slow or times[-1] - times[since - 1] < SLOW_S:
        return None
    text = f"a step takes {_seconds(median(newest))}, usually {_seconds(usual)}"
    return CurveAlert(AlertRule.SLOW, text, since)


def throughput_alert(tag: str, values: Sequence[float]) -> CurveAlert | None:
    """Judge a rate such as tokens per second."""
    finite = [(index, value) for index, value in enumerate(values) if math.isfinite(value)]
    if len(finite) < SLOW + USUAL:
        return None
    usual = median(value for _, value in finite[:-SLOW])
    newest = [value for _, value in finite[-SLOW:]]
    if usual <= 0 or max(median(newest[: SLOW // 2]), median(newest[SLOW // 2 :])) * TIMES > usual:
        return None
    text = f"{tag} is {median(newest):.3g}, usually {usual:.3g}"
    return CurveAlert(AlertRule.SLOW, text, finite[-SLOW][0])


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f}ms" if value < 1 else f"{value:.3g}s"


def run_alerts(
    loss: tuple[Sequence[int], Sequence[float], Sequence[float]],
    *,
    tags: Collection[str] = (),
    rates: Iterable[tuple[str, Sequence[float]]] = (),
    rules: Collection[AlertRule] = DEFAULT_ALERTS,
) -> tuple[CurveAlert, ...]:
    """Judge a run by its loss, as steps, times and values, and by its rates."""
    steps, times, values = loss
    found = loss_alerts(steps, values, tags=tags, rules=rules)
    if AlertRule.SLOW not in rules:
        return found
    slow = slow_alert(steps, times) or next(
        (each for tag, rate in rates if is_throughput(tag) and (each := throughput_alert(tag, rate))), None
    )
    return (*found, slow) if slow else found


class RunHistory:
    """Loss and rates of a job, added as its log is read; older points are thinned."""

    def __init__(self) -> None:
        self._steps, self._times, self._values = array("q"), array("d"), array("d")
        self._rates: dict[str, deque[float]] = {}
        self._tags: dict[str, None] = {}

    def add(self, curves: Mapping[str, ScalarCurve], loss: str) -> None:
        """Add new points, of which `loss` names the loss."""
        if loss:
            new = curves[loss]
            self._steps.extend(new.steps)
            self._times.extend(new.wall_times)
            self._values.extend(new.values)
            if len(self._steps) > MAX_POINTS:
                for column in (self._steps, self._times, self._values):
                    del column[: MAX_POINTS // 2 : 2]
        for tag, each in curves.items():
            if len(self._tags) < MAX_TAGS:
                self._tags[tag] = None
            if is_throughput(tag) and (tag in self._rates or len(self._rates) < MAX_RATES):
                self._rates.setdefault(tag, deque(maxlen=MAX_RATE)).extend(each.values)

    def alerts(self, rules: Collection[AlertRule] = DEFAULT_ALERTS) -> tuple[CurveAlert, ...]:
        """Judge the points so far."""
        rates = [(tag, [*values]) for tag, values in self._rates.items()]
        return run_alerts((self._steps, self._times, self._values), tags=self._tags, rates=rates, rules=rules)


def curve_alerts(
    curves: Mapping[str, ScalarCurve], loss: str, rules: Collection[AlertRule] = DEFAULT_ALERTS
) -> tuple[CurveAlert, ...]:
    """Judge a run by its full curves, of which `loss` names the loss."""
    each = curves[loss]
    # Of long curves, some of the older points, because this is repeated while the run goes on.
    old = max(0, len(each) - MAX_POINTS)
    stride = -(-old // MAX_POINTS) or 1
    kept = -(-old // stride)
    steps = each.steps[:old:stride] + each.steps[old:]
    times = each.wall_times[:old:stride] + each.wall_times[old:]
    values = each.values[:old:stride] + each.values[old:]
    rates = [(tag, curve.values[-MAX_RATE:]) for tag, curve in curves.items() if is_throughput(tag)]
    found = run_alerts((steps, times, values), tags=curves, rates=rates, rules=rules)
    return tuple(
        alert._replace(place=alert.place * stride if alert.place < kept else alert.place - kept + old)
        for alert in found
    )


def shown_alerts(alerts: Iterable[CurveAlert], status: Status = Status.RUNNING) -> tuple[CurveAlert, ...]:
    """Return the alerts for a job of this status; the newest loss of one that succeeded is its last."""
    newest = "last" if status is Status.SUCCEEDED else "newest"
    shown = (each for each in alerts if not status.is_final or each.rule in RULES_AT_END)
    return tuple(CurveAlert(each.rule, each.text.replace("newest", newest)) for each in shown)


def signs_at_end(job: Job, run: RunRecord | None) -> LifeSigns:
    """Return the trouble that the record of an ended job shows."""
    if run is None or not job.status.is_final:
        return NO_SIGNS
    has_nan = run.loss is not None and not math.isfinite(run.loss)
    found = [CurveAlert(AlertRule.NAN, NOT_FINITE)] * has_nan
    found += [CurveAlert(AlertRule.DIVERGED, run.alert)] * bool(run.alert)
    return LifeSigns(alerts=shown_alerts(found, job.status))
