"""Reading event files and drawing long curves."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, best_of, seconds
from trainer.tfevents import EventFolder, EventWriter
from tui.charts.picture import PlotCurve, PlotOptions, draw
from tui.charts.series import Series

SCALARS = 1_000_000
TAGS = ("train/loss", "train/lr", "train/images_per_s")


def measure() -> Iterator[Figure]:
    """Compare with TensorBoard's reader and with plotext."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = EventWriter(folder)
        for step in range(SCALARS // len(TAGS) + 1):
            for tag in TAGS[: SCALARS - step * len(TAGS)]:
                writer.write_scalar(tag, step, math.exp(-step / 50_000) + 0.1 * math.sin(step), 1.7e9 + step)
        writer.flush()
        events = EventFolder(folder)
        ours_s = seconds(events.read_new)
        read = sum(len(curve) for curve in events.curves())
        if read != SCALARS:
            raise AssertionError(f"read {read} of {SCALARS} scalars")
        yield Figure(
            f"read {SCALARS:,} scalars", ours_s, "EventAccumulator", _accumulator_s(folder), ">= 20x"
        )
        writer.write_scalar(TAGS[0], SCALARS, 1.0)
        writer.flush()
        append_s = seconds(events.read_new)
        yield Figure("read again after one more", append_s, "reading all of it", ours_s, "O(append)")
        writer.close()
    series = Series()
    steps = range(SCALARS)
    values = [math.exp(-step / 200_000) + 0.1 * math.sin(step) for step in steps]
    series.extend(steps, [float(step) for step in steps], values)
    curves = [PlotCurve("run", series)]

    def draw_ours() -> None:
        series.version += 1
        draw("train/loss", curves, 200, 50, PlotOptions())

    yield Figure(
        "draw 1,000,000 points at 200x50", best_of(3, draw_ours), "plotext", _plotext_s(values), "<= 20 ms"
    )


def _accumulator_s(folder: Path) -> float:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return seconds(accumulator.Reload)


def _plotext_s(values: list[float]) -> float:
    import plotext

    steps = list(range(len(values)))

    def plot() -> None:
        figure = plotext.figure
        figure.clear()
        figure.plot_size(200, 50)
        figure.draw(figure.signal(steps, values, marker="braille"))
        figure.build()

    return seconds(plot)
