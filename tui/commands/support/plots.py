"""Draw curves as text: one with plotext, those of several runs over each other as the console does."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotext

from k8s.text.sanitize import sanitize
from tui.runs.picture import Piece, PlotCurve, PlotOptions, draw
from tui.runs.series import MinMaxLevels, downsample
from tui.runs.ticks import integer_ticks, number_ticks
from tui.text.format import number, plural

HEIGHT = 16
WIDEST = 160
_LARGEST, _SMALLEST = 1e300, 1e-300
# SGR codes of paints.
_COLOURS = {
    "series-1": 36,
    "series-2": 33,
    "series-3": 32,
    "series-4": 35,
    "series-5": 34,
    "series-6": 31,
    "alarm": 31,
    "title": 1,
}
_ASCII = str.maketrans("┌┐└┘─│┤├┬┴┼", "++++-|+++++")


@dataclass(frozen=True, slots=True, eq=False)
class PlotLine:
    """One curve; the three arrays have one length, steps increase."""

    name: str
    """The tag, with the run or file where several curves share it."""
    steps: array[int]
    wall_times: array[float]
    values: array[float]
    run: str = ""


def plot(line: PlotLine, width: int, *, is_ascii: bool = False) -> str:
    """Return a plot of one curve without colours, and a summary line."""
    parts = [sanitize(line.name), _drawn(line, width, is_ascii), _summary(line)]
    return "\n".join(part for part in parts if part)


def plot_overlay(
    tag: str,
    curves: Sequence[PlotCurve],
    lines: Sequence[PlotLine],
    width: int,
    options: PlotOptions,
    *,
    has_colours: bool,
) -> str:
    """Return one chart of the curves of several runs, and a summary line for each."""
    clean = [replace(curve, label=sanitize(curve.label)) for curve in curves]
    width = max(30, min(width, WIDEST))
    picture = draw(sanitize(tag), clean, width, HEIGHT + 2 + len(curves) // 2, options)
    rows = ("".join(_coloured(piece) if has_colours else piece[0] for piece in row) for row in picture.rows)
    summaries = (f"{sanitize(line.run)}: {_summary(line)}" for line in lines)
    return "\n".join([*(row.rstrip() for row in rows), *summaries])


def _coloured(piece: Piece) -> str:
    text, paint = piece
    code = _COLOURS.get(paint)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text


class _Axis:
    """Maps values to 0..1: plotext's compiled part crashes on extreme numbers."""

    def __init__(self, low: float, high: float) -> None:
        if low == high:  # what has no extent, no axis can show
            low, high = low - abs(low) / 10 - 1e-9, high + abs(high) / 10 + 1e-9
        self.low = max(low, -_LARGEST)
        self.high = min(high, _LARGEST)

    def at(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        share = (value / 2 - self.low / 2) / max(self.high / 2 - self.low / 2, _SMALLEST)
        return min(1.0, max(0.0, share))


def _drawn(line: PlotLine, width: int, is_ascii: bool) -> str:
    width = max(30, min(width, WIDEST))
    xs, ys = _thinned(line, 2 * width)
    if len(ys) < 2 or xs[0] == xs[-1]:
        return ""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, HEIGHT)
    horizontal, vertical = _Axis(xs[0], xs[-1]), _Axis(min(ys), max(ys))
    marker = "*" if is_ascii else "braille"
    signal = figure.signal([horizontal.at(x) for x in xs], [vertical.at(y) for y in ys], marker=marker)
    figure.draw(signal.lines())
    for name, axis, ticks in (
        ("x", horizontal, integer_ticks(horizontal.low, horizontal.high, width // 12)),
        ("y", vertical, number_ticks(vertical.low, vertical.high, HEIGHT // 3)),
    ):
        ruler = figure.ruler(name)
        ruler.lim(0.0, 1.0)
        ruler.ticks([axis.at(tick.value) for tick in ticks], [tick.text.removesuffix(".0") for tick in ticks])
    text: str = plotext.uncolorize(figure.build().string())
    text = "\n".join(row.rstrip() for row in text.rstrip("\n").split("\n"))
    return text.translate(_ASCII) if is_ascii else text


def _thinned(line: PlotLine, columns: int) -> tuple[list[float], list[float]]:
    if not line.values:
        return [], []
    first, last = float(line.steps[0]), float(line.steps[-1])
    if first == last:
        return [], []
    bands = MinMaxLevels(line.values)
    bands.catch_up()
    xs: list[float] = []
    ys: list[float] = []
    for span in downsample(line.steps, line.values, bands, low=first, high=last, columns=columns):
        if span.low > span.high:
            continue
        ends: Sequence[float] = (span.low, span.high) if span.first <= span.last else (span.high, span.low)
        for value in dict.fromkeys(ends):
            xs.append(first + span.x * (last - first) / (columns - 1))
            ys.append(value)
    return xs, ys


def _summary(line: PlotLine) -> str:
    finite = [
        (value, step) for value, step in zip(line.values, line.steps, strict=True) if math.isfinite(value)
    ]
    words = [f"last {number(line.values[-1])} at step {line.steps[-1]}"] if line.values else []
    if finite:
        (low, low_step), (high, high_step) = min(finite), max(finite)
        words += [f"lowest {number(low)} at {low_step}", f"highest {number(high)} at {high_step}"]
    if broken := len(line.values) - len(finite):
        words.append(f"{broken} not finite")
    return f"{', '.join(words)}; {plural(len(line.values), 'point')}"
