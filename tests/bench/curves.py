"""Reading event files and drawing long curves."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from textual.app import ComposeResult

from tests.bench.figures import Figure, best_of, seconds
from tests.support.themed_app import ThemedApp
from trainer.tfevents import EventFolder, EventWriter
from tui.__main__ import GARBAGE
from tui.charts.overlay import Overlay
from tui.charts.picture import PlotCurve, PlotOptions, draw
from tui.charts.series import Series
from tui.widgets.curve_chart import CurveChart

SCALARS = 1_000_000
RUNS, RUN_POINTS, MOVES = 8, 100_000, 50
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
    yield from asyncio.run(_overlay())


async def _overlay() -> list[Figure]:
    """Measure one chart of several runs on a screen of 200x50: the first picture, and a key that reads it."""
    name = f"{RUNS} runs x {RUN_POINTS:,} points overlaid"
    gc.set_threshold(*GARBAGE)  # as the console itself runs
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / f"run-{number}" for number in range(RUNS)]
        for number, folder in enumerate(folders):
            chance = random.Random(number)
            with EventWriter(folder) as writer:
                for step in range(RUN_POINTS):
                    value = math.exp(-step / 30_000) + 0.1 * chance.random() + 0.05 * number
                    writer.write_scalar("train/loss", step, value, 1.7e9 + step)
        app = _Charts()
        async with app.run_test(size=(200, 50)) as pilot:
            chart = app.query_one(CurveChart)
            overlay = Overlay([folder.name for folder in folders])
            events = [EventFolder(folder) for folder in folders]

            def read() -> None:
                for each in events:
                    each.read_new()

            def show() -> None:
                for number, each in enumerate(events):
                    overlay.update(number, each.curves())
                chart.set_curves("train/loss", overlay.by_tag()["train/loss"])
                if "run-7" not in app.text:
                    raise AssertionError(f"no chart of {RUNS} runs:\n{app.text}")

            def move() -> None:
                before = chart.view.cursor
                chart.action_cursor(1)
                if chart.view.cursor == before or "step " not in app.text:
                    raise AssertionError("the cursor did not move")

            read_s, show_s = seconds(read), seconds(show)
            await pilot.pause()
            moves_s = []
            for _ in range(MOVES):
                moves_s.append(seconds(move))
                await pilot.pause()
    return [
        Figure(f"{name}: first chart", read_s + show_s, "of that, reading event files", read_s, "<= 1 s"),
        Figure("  a cursor move, median", sorted(moves_s)[MOVES // 2], "slowest", max(moves_s), "<= 20 ms"),
    ]


class _Charts(ThemedApp[None]):
    """One chart on the whole screen."""

    def compose(self) -> ComposeResult:
        """Lay out the chart."""
        yield CurveChart()


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
