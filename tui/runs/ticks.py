"""Round numbers for axes: 1, 2 and 5 times powers of ten, and round times."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(amount * _MINUTE for amount in (1, 2, 5, 10, 15, 30)),
    *(amount * _HOUR for amount in (1, 2, 3, 6, 12)),
)
_MAX_TICKS = 1000
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Tick(NamedTuple):
    """A position on an axis, and its label."""

    value: float
    text: str


def number_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Return at most `most` round numbers between `low` and `high`, with uniform labels."""
    step = round_step((high - low) / (max(1, most) + 1))
    while len(values := _multiples(low, high, step)) > max(1, most):
        # Between the smallest floats, 1 % more is no more.
        step = max(round_step(step * 1.01), math.nextafter(step, math.inf))
    largest = max(map(abs, values), default=0.0)
    return [Tick(value, _label(value, step, largest)) for value in values]


def integer_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Return round integers: there are no fractional steps."""
    return [tick for tick in number_ticks(low, high, most) if tick.value == int(tick.value)]


def log_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Return round numbers for a logarithmic axis; `low` is above zero."""
    first, last = math.floor(math.log10(low)), min(307, math.ceil(math.log10(high)))
    for factors in ((1, 2, 5), (1,)):
        values = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        values = [value for value in values if low * 0.999 <= value <= high * 1.001]
        if 2 <= len(values) <= max(2, most):
            return [Tick(value, f"{value:.4g}") for value in values]
    if len(values) < 2:
        return number_ticks(low, high, most)
    return [Tick(value, f"{value:.4g}") for value in values[:: -(-len(values) // max(1, most))]]


def duration_ticks(low_s: float, high_s: float, most: int) -> list[Tick]:
    """Return round durations in seconds, with labels such as `0`, `30m`, `1h`, `1d12h`."""
    if high_s - low_s < max(1, most):
        return [Tick(tick.value, f"{tick.text}s") for tick in number_ticks(low_s, high_s, most)]
    step = _time_step((high_s - low_s) / (max(1, most) + 1))
    while len(values := _multiples(low_s, high_s, step)) > max(1, most):
        step = _time_step(step * 1.01)
    return [Tick(value, _duration_label(value)) for value in values]


def clock_ticks(low: float, high: float, most: int, zone: tzinfo | None = None) -> list[Tick]:
    """Return round times of day between two wall times; a new day is labelled by its date.

    Args:
        low: Seconds since 1970.
        high: Seconds since 1970.
        most: Maximum number of ticks.
        zone: Time zone of the labels; None for this machine's.
    """
    step = _time_step((high - low) / (max(1, most) + 1))
    while (high - low) / step > max(1, most):
        step = _time_step(step * 1.01)
    start = datetime.fromtimestamp(low, zone)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = []
    for index in range(
        int((low - midnight.timestamp()) // step), int((high - midnight.timestamp()) // step) + 1
    ):
        moment = midnight + timedelta(seconds=index * step)
        if low <= moment.timestamp() <= high:
            ticks.append(Tick(moment.timestamp(), _clock_label(moment, step)))
    return ticks


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    if not (math.isfinite(least) and least > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    if power == 0:
        return least
    for factor in (1, 2, 5):
        if factor * power >= least * (1 - 1e-9):
            return factor * power
    return 10 * power


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return (
        [index * step for index in range(first, last + 1)]
        if last - first < _MAX_TICKS
        else [low] * _MAX_TICKS
    )


def _time_step(least_s: float) -> float:
    for step in _TIME_STEPS:
        if step >= least_s:
            return step
    return max(1.0, round_step(least_s / _DAY)) * _DAY


def _label(value: float, step: float, largest: float) -> str:
    value = value or 0.0
    if 0 < step < 1e-4 or largest >= 1e15:
        return f"{value:.3g}"
    size, unit = next(((size, unit) for size, unit in _UNITS if largest >= size * 10), (1.0, ""))
    if value == 0:
        return "0"
    decimals = max(0, -math.floor(math.log10(step / size) + 1e-9))
    return f"{value / size:.{decimals}f}{unit}"


def _duration_label(seconds: float) -> str:
    remaining_s = int(seconds)
    if remaining_s == 0:
        return "0"
    parts = []
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"), (1, "s")):
        amount, remaining_s = divmod(remaining_s, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts[:2])


def _clock_label(moment: datetime, step: float) -> str:
    if step >= _DAY or (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M:%S}" if step < _MINUTE else f"{moment:%H:%M}"
