"""Curves of one or several runs by tag, kept up to date while the runs write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trainer.tfevents import ScalarCurve
from tui.runs.plot import PlotCurve, StepAxis, XAxis
from tui.runs.series import Series
from tui.text.cells import cell_len
from tui.text.natural_order import tell_apart

# Runs in one chart.
MOST_RUNS = 8

# The last part of a tag that maps steps to an axis.
_AXIS_NAMES: dict[str, XAxis] = {
    **dict.fromkeys(("epoch", "epochs", "epoch_num"), "epoch"),
    **dict.fromkeys(
        (
            *("tokens", "tokens_seen", "num_tokens", "n_tokens", "total_tokens", "tokens_total"),
            *("consumed_tokens", "train_tokens", "num_input_tokens_seen", "global_tokens"),
        ),
        "tokens",
    ),
}
# Longer labels lose what all of them share.
_LABEL_CELLS = 20

# Run, folder in it, tag and writer.
_Key = tuple[int, str, str, str]


def labels_of(names: Sequence[str]) -> list[str]:
    """Return labels for runs: long names are shortened to what tells them apart; equal ones are numbered."""
    short = tell_apart(names) if max(map(cell_len, names), default=0) > _LABEL_CELLS else list(names)
    seen = Counter[str]()
    labels = []
    for label in short:
        seen[label] += 1
        labels.append(f"{label} ({seen[label]})" if seen[label] > 1 else label)
    return labels


class Overlay:
    """Curves of runs, to be drawn by tag; new points are appended to the series of before."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Start without points; each run has a label."""
        self._labels = labels
        self._curves: list[list[ScalarCurve]] = [[] for _ in labels]
        self._series: dict[_Key, Series] = {}
        self._axes: dict[tuple[Series, Series], StepAxis] = {}

    def update(self, run: int, curves: Sequence[ScalarCurve]) -> None:
        """Replace the curves of one run."""
        self._curves[run] = list(curves)
        for curve in curves:
            series = self._series.setdefault(_key(run, curve), Series())
            series.update(curve.steps, curve.wall_times, curve.values, [mark.step for mark in curve.restarts])

    def mark_alerts(self, run: int, curve: ScalarCurve, steps: Sequence[int]) -> None:
        """Mark the steps at which a curve of a run began to go wrong."""
        self._series[_key(run, curve)].mark_alerts(steps)

    def points(self, run: int | None = None) -> int:
        """Count the points of one run, or of all."""
        runs = self._curves if run is None else [self._curves[run]]
        return sum(len(curve) for curves in runs for curve in curves)

    def named(self) -> Iterator[tuple[int, str, ScalarCurve]]:
        """Yield the number of the run, the label and the points of each curve."""
        for run, curves in enumerate(self._curves):
            same_tag = Counter(curve.tag for curve in curves)
            same_place = Counter((curve.tag, curve.run) for curve in curves)
            for curve in curves:
                place = curve.run
                if same_place[curve.tag, curve.run] > 1:
                    place = f"{curve.run}/{curve.writer}"
                if len(self._labels) == 1:
                    yield run, place, curve
                else:
                    is_alone = same_tag[curve.tag] == 1
                    yield run, self._labels[run] if is_alone else f"{self._labels[run]} {place}", curve

    def by_tag(self) -> dict[str, list[PlotCurve]]:
        """Return the curves to draw of each tag, in the order of the runs."""
        scalars = [list(self._axis_scalars(run)) for run in range(len(self._labels))]
        tags: dict[str, list[PlotCurve]] = {}
        for run, label, curve in self.named():
            series = self._series[_key(run, curve)]
            axes: dict[XAxis, StepAxis] = {}
            # One of the same folder comes first, but `train/epoch` serves `eval/loss` as well.
            for axis, _, scalar in sorted(scalars[run], key=lambda each: each[1] != curve.run):
                if axis not in axes:
                    pair = series, scalar
                    axes[axis] = self._axes.setdefault(pair, StepAxis(*pair))
            tags.setdefault(curve.tag, []).append(PlotCurve(label, series, axes, len(self._labels) > 1))
        return tags

    def _axis_scalars(self, run: int) -> Iterator[tuple[XAxis, str, Series]]:
        for curve in self._curves[run]:
            axis = _AXIS_NAMES.get(curve.tag.rpartition("/")[2].casefold())
            if axis is not None and len(curve):
                yield axis, curve.run, self._series[_key(run, curve)]


def _key(run: int, curve: ScalarCurve) -> _Key:
    return run, curve.run, curve.tag, curve.writer
