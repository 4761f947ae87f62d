"""Curves as text: what is kept of a million points, and how it looks."""

from __future__ import annotations

import math
import os
import random
import re
import time
from array import array
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import GOLDEN
from trainer.tfevents import ScalarCurve
from tui.runs.braille import Canvas
from tui.runs.overlay import Overlay, labels_of
from tui.runs.picture import Drawing, Picture, PlotCurve, PlotOptions, StepAxis, draw
from tui.runs.plot import X_AXES, Plot, XAxis
from tui.runs.series import BLOCK, Series
from tui.runs.ticks import clock_ticks, duration_ticks, integer_ticks, log_ticks, number_ticks
from tui.text.cells import cell_len

GOLDEN_CHARTS = GOLDEN / "charts"
START = 1_790_000_000.0


def falling(
    amount: int = 240, *, seed: int = 1, start: float = 2.4, noise: float = 0.04, began_s: float = START
) -> Series:
    chance = random.Random(seed)
    series = Series()
    series.append(
        (
            index * 100,
            began_s + index * 30,
            start * math.exp(-3 * index / amount) + 0.3 + chance.uniform(-noise, noise),
        )
        for index in range(amount)
    )
    return series


def of(*values: float, start: int = 0) -> Series:
    series = Series()
    series.append((start + index, START + index, value) for index, value in enumerate(values))
    return series


def text_of(picture: Picture) -> str:
    return "\n".join("".join(text for text, _ in row).rstrip() for row in picture.rows) + "\n"


# Canvas


def test_eight_dots_share_a_cell() -> None:
    canvas = Canvas(2, 1)
    canvas.column(0, 0, 3, 1)
    canvas.column(3, 1, 2, 2)
    assert canvas.row(0) == [("⡇", 1), ("⠰", 2)]


def test_a_later_curve_overwrites_a_shared_cell() -> None:
    canvas = Canvas(1, 1)
    canvas.column(0, 0, 3, 1)
    canvas.column(1, 0, 0, 2)
    assert canvas.row(0) == [("⠈", 2)]


def test_a_line_has_no_gaps() -> None:
    canvas = Canvas(20, 10)
    canvas.line((0, 0), (39, 39), 1)
    assert all(any(owner for _, owner in canvas.row(y)) for y in range(10))


# Ticks


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(2, 20))
def test_ticks_are_within_range_and_limited_in_number(low: float, width: float, most: int) -> None:
    high = low + width
    if not high > low:
        return
    ticks = number_ticks(low, high, most)
    assert len(ticks) <= most
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert all(low - slack <= tick.value <= high + slack for tick in ticks)


def test_ticks_between_the_smallest_floats_are_few() -> None:
    for high in (5e-324, 1e-322, 1e-310):
        assert len(number_ticks(0, high, 2)) <= 2
        assert len(number_ticks(-high, high, 8)) <= 8


def test_tick_labels_have_a_uniform_format() -> None:
    assert [tick.text for tick in number_ticks(0.2, 2.7, 6)] == ["0.5", "1.0", "1.5", "2.0", "2.5"]
    assert [tick.text for tick in number_ticks(0, 24_117, 6)] == ["0", "5k", "10k", "15k", "20k"]
    assert [tick.text for tick in number_ticks(0, 2.1e-5, 5)] == ["0", "5e-06", "1e-05", "1.5e-05", "2e-05"]
    assert [tick.text for tick in number_ticks(-1, 1, 5)] == ["-1.0", "-0.5", "0", "0.5", "1.0"]
    assert [tick.text for tick in integer_ticks(0, 2, 10)] == ["0", "1.0", "2.0"]
    assert [tick.text for tick in log_ticks(0.3, 90, 8)] == ["0.5", "1", "2", "5", "10", "20", "50"]
    assert [tick.text for tick in log_ticks(1e-8, 1, 4)] == ["1e-08", "1e-05", "0.01"]


def test_times_have_round_ticks_too() -> None:
    assert [tick.text for tick in duration_ticks(0, 7_800, 5)] == ["0", "30m", "1h", "1h30m", "2h"]
    assert [tick.text for tick in duration_ticks(0, 3, 4)] == ["0s", "1s", "2s", "3s"]
    ticks = [tick.text for tick in clock_ticks(START, START + 7_200, 5, UTC)]
    assert ticks == ["14:30", "15:00", "15:30", "16:00"]
    days = [tick.text for tick in clock_ticks(START, START + 5 * 86_400, 6, UTC)]
    assert days == ["Sep 22", "Sep 23", "Sep 24", "Sep 25", "Sep 26"]


# Pictures

PICTURES: dict[str, tuple[list[PlotCurve], PlotOptions]] = {
    "one-curve": ([PlotCurve("bert", falling())], PlotOptions()),
    "smoothed": ([PlotCurve("bert", falling(noise=0.3))], PlotOptions(smoothing=0.9)),
    "two-curves-relative": (
        [PlotCurve("bert-large-ft", falling()), PlotCurve("vit-h-pretrain", falling(200, seed=2, start=1.5))],
        PlotOptions(x_axis="relative"),
    ),
    "wall-clock": ([PlotCurve("bert", falling())], PlotOptions(x_axis="wall", zone=UTC)),
    "log-axis": ([PlotCurve("bert", falling(start=90.0))], PlotOptions(is_log=True)),
    "log-axis-below-zero": ([PlotCurve("bert", of(10, 1, 0.1, -1, 0, 5, 50))], PlotOptions(is_log=True)),
    "cursor": ([PlotCurve("bert", falling())], PlotOptions(cursor=30)),
    "ascii": (
        [PlotCurve("bert", falling()), PlotCurve("vit", falling(200, seed=2, start=1.5))],
        PlotOptions(ascii_only=True, smoothing=0.6, cursor=30),
    ),
    "diverged": ([PlotCurve("bert", of(3, 2, 1, 2, 4, 9, math.inf, math.nan, math.nan))], PlotOptions()),
    "gap": ([PlotCurve("bert", of(3, 2, math.nan, math.nan, 2, 1))], PlotOptions()),
    "empty": ([PlotCurve("bert", Series())], PlotOptions()),
    "no-curve": ([], PlotOptions()),
    "one-point": ([PlotCurve("bert", of(1.87))], PlotOptions(smoothing=0.6)),
    "constant": ([PlotCurve("bert", of(*[3.0] * 50))], PlotOptions()),
    "only-nan": ([PlotCurve("bert", of(math.nan, math.nan))], PlotOptions()),
    "only-below-zero-on-log": ([PlotCurve("bert", of(-1, 0))], PlotOptions(is_log=True)),
}


def run(number: int, amount: int = 400) -> Series:
    """Return the loss of one of several runs, which started after each other."""
    start, began_s = 2.4 - 0.2 * number, START + number * 4000
    return falling(amount, seed=number, start=start, noise=0.08, began_s=began_s)


def diverged() -> Series:
    series = run(4, 150)
    rising = (1.5**step if step < 12 else math.nan for step in range(60))
    series.append(
        (15_000 + step * 100, START + 20_500 + step * 30, value) for step, value in enumerate(rising)
    )
    return series


def restarted() -> Series:
    series = run(0, 200)
    series.append(
        (12_000 + step * 100, START + 9_000 + step * 30, 1.2 * math.exp(-step / 100)) for step in range(150)
    )
    return series


def with_epochs(label: str, series: Series, steps_per_epoch: int) -> PlotCurve:
    epochs = Series()
    epochs.append((step, START, step / steps_per_epoch) for step in series.steps[::10])
    return PlotCurve(label, series, {"epoch": StepAxis(series, epochs)})


FOUR = [
    PlotCurve("vgg16-topology", run(0)),
    PlotCurve("vgg16-spread", run(1)),
    PlotCurve("resnet50-topology", run(2, 300)),
    PlotCurve("resnet50-spread", run(3, 200)),
]
EIGHT = [PlotCurve(f"sweep-lr-{number}e-3", run(number)) for number in range(8)]
OVERLAYS: dict[str, tuple[list[PlotCurve], PlotOptions]] = {
    "four": (FOUR, PlotOptions(cursor=30)),
    "four-ascii": (FOUR, PlotOptions(ascii_only=True, cursor=30)),
    "four-smoothed-relative": (FOUR, PlotOptions(smoothing=0.9, x_axis="relative")),
    "four-zoomed": (FOUR, PlotOptions(zoom=(25_000.0, 38_000.0))),
    "diverged": ([*FOUR[:2], PlotCurve("diverged", diverged())], PlotOptions(is_log=True)),
    "diverged-clipped": ([*FOUR[:2], PlotCurve("diverged", diverged())], PlotOptions(clips=True)),
    "diverged-ascii": ([*FOUR[:2], PlotCurve("diverged", diverged())], PlotOptions(ascii_only=True)),
    "restarted": ([*FOUR[2:], PlotCurve("restarted", restarted())], PlotOptions()),
    "eight": (EIGHT, PlotOptions(cursor=40)),
    "epochs": (
        [with_epochs("vgg16", run(0), 8_000), with_epochs("resnet50", run(2, 300), 4_000), FOUR[3]],
        PlotOptions(x_axis="epoch", cursor=30),
    ),
}


def assert_is_picture(name: str, drawn: str) -> None:
    path = GOLDEN_CHARTS / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(drawn, encoding="utf-8")
    assert path.exists(), f"No picture yet. Look at this one; if it is right, save it as {path}:\n{drawn}"
    assert drawn == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PICTURES)
def test_a_chart_matches_its_snapshot(name: str) -> None:
    curves, view = PICTURES[name]
    assert_is_picture(name, text_of(draw("train/loss", curves, 72, 14, view)))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("name", OVERLAYS)
def test_overlaid_runs_match_their_snapshot(name: str, size: tuple[int, int]) -> None:
    curves, view = OVERLAYS[name]
    drawn = text_of(draw("train/loss", curves, *size, view))
    assert_is_picture(f"overlay-{name}-{size[0]}x{size[1]}", drawn)


def test_a_restart_is_marked_on_the_axis() -> None:
    series = of(*range(100, 0, -1))
    series.append((step, START + 200 + step, 50.0) for step in range(40, 80))
    drawn = draw("loss", [PlotCurve("bert", series)], 72, 10, PlotOptions())
    assert ("↻", "note") in drawn.rows[-1]


def test_the_start_of_an_alert_is_marked_on_the_axis() -> None:
    series = of(*range(100))
    series.mark_alerts([50])
    row = "".join(
        text for text, _ in draw("loss", [PlotCurve("bert", series)], 72, 10, PlotOptions()).rows[-1]
    )
    assert row.index("!") - row.index("└") == pytest.approx((72 - row.index("└")) / 2, abs=1)


def test_nan_and_inf_values_are_flagged_on_the_axis_and_in_the_title() -> None:
    drawn = draw("loss", [PlotCurve("bert", of(1, 2, math.nan, 4))], 72, 10, PlotOptions())
    assert ("✕", "alarm") in drawn.rows[-1]
    assert ("1 nan or inf", "alarm") in drawn.rows[0]


def test_raw_points_stay_visible_under_the_smoothed_curve() -> None:
    drawn = draw("loss", [PlotCurve("bert", falling(noise=0.5))], 72, 14, PlotOptions(smoothing=0.9))
    paints = {paint for row in drawn.rows for _, paint in row}
    assert {"raw-1", "series-1", "axis", "title"} <= paints


@pytest.mark.parametrize("ascii_only", [False, True])
def test_eight_curves_differ_by_their_markers_where_there_is_no_colour(ascii_only: bool) -> None:
    curves = [PlotCurve(f"run{level}", of(*[float(level)] * 200)) for level in range(8)]
    drawn = draw("loss", curves, 72, 20, PlotOptions(ascii_only=ascii_only))
    rows = text_of(drawn).splitlines()
    legend, plot = " ".join(rows[1:3]), "".join(rows[3:])
    swatches = {legend.split(f" run{level} ")[0][-3:] for level in range(8)}
    assert len(swatches) == 8
    assert all(swatch[1] in plot for swatch in swatches)


@pytest.mark.parametrize("amount", [2, 3, 8, 40])
@pytest.mark.parametrize("size", [(160, 50), (80, 24), (58, 10), (40, 12), (24, 8)])
def test_a_legend_names_every_run_or_counts_the_others(amount: int, size: tuple[int, int]) -> None:
    curves = [PlotCurve(f"the-run-{index:02}", of(1, 2, 5)) for index in range(amount)]
    text = text_of(draw("loss", curves, *size, PlotOptions()))
    named = sum(bool(re.search(f"[ -]{index:02} ", text)) for index in range(amount))
    counted = re.search(r"\+(\d+) more", text)
    assert named + (int(counted[1]) if counted else 0) == amount


def test_the_legend_reads_every_run_at_the_cursor() -> None:
    curves = [PlotCurve("long", of(*range(100))), PlotCurve("short", of(*range(50))), PlotCurve("none", of())]
    drawing = Drawing("loss", curves, 80, 12, PlotOptions(), "")

    columns = drawing.picture(None).columns
    text = text_of(drawing.picture(columns - 1))
    assert re.findall(r"(?:long|short|none) (\S+)", text) == ["99", "–", "–"]
    text = text_of(drawing.picture(0))
    assert re.findall(r"(?:long|short|none) (\S+)", text) == ["0", "0", "–"]
    assert "no points: none" in text


def test_a_moved_cursor_draws_no_curve_again() -> None:
    series = falling()
    drawing = Drawing(
        "loss", [PlotCurve("a", series), PlotCurve("b", falling(seed=2))], 80, 24, PlotOptions(), ""
    )
    one, other = drawing.picture(3), drawing.picture(9)
    assert all(row is same for row, same in zip(one.still[2:], other.still[2:], strict=True))
    assert one.rows != other.rows


def test_runs_without_points_in_view_are_named_under_the_axis() -> None:
    curves = [PlotCurve("long", of(*range(100))), PlotCurve("short", of(*range(50)))]
    assert "no points here: short" in text_of(draw("loss", curves, 80, 12, PlotOptions(zoom=(60.0, 90.0))))
    assert "no points here" not in text_of(draw("loss", curves, 80, 12, PlotOptions(zoom=(40.0, 90.0))))
    epochs = with_epochs("long", of(*range(100)), 10)
    by_epoch = text_of(draw("loss", [epochs, curves[1]], 80, 12, PlotOptions(x_axis="epoch", cursor=70)))
    assert "no epoch: short" in by_epoch
    assert "epoch 8.4" in by_epoch
    nobody = text_of(draw("loss", curves, 80, 12, PlotOptions(x_axis="tokens")))
    assert "No run counts its tokens" in nobody


def test_positions_on_another_axis_are_interpolated_and_monotonic() -> None:
    points, epochs = of(*range(9)), Series()
    axis = StepAxis(points, epochs)
    assert not axis.positions()
    epochs.append([(2, START, 1.0), (4, START, math.nan), (6, START, 3.0), (7, START, 2.0)])
    assert list(axis.positions()) == [1, 1, 1, 1.5, 2, 2.5, 3, 3, 3]
    points.append([(9, START + 9, 0.0)])
    assert list(axis.positions())[-1] == 3
    same = of(*range(3))
    assert StepAxis(same, same).positions() == same.values


def test_epoch_and_token_scalars_of_a_run_become_its_axes() -> None:
    def curve(run: str, tag: str, *values: float) -> ScalarCurve:
        series = of(*values)
        return ScalarCurve(run, tag, "w", series.steps, series.wall_times, series.values, ())

    overlay = Overlay(["a", "b"])
    overlay.update(
        0, [curve("train", "train/epoch", 0, 1), curve("train", "loss", 5, 4), curve("eval", "acc", 1, 2)]
    )
    overlay.update(1, [curve(".", "loss", 3, 2), curve("x", "loss", 1), curve(".", "Num_Tokens", 0, 500)])
    tags = overlay.by_tag()
    assert [each.label for each in tags["loss"]] == ["a", "b .", "b x"]
    assert [sorted(each.axes) for each in tags["loss"]] == [["epoch"], ["tokens"], ["tokens"]]
    assert list(tags["acc"][0].positions("epoch")) == [0, 1]
    assert not len(tags["acc"][0].positions("tokens"))
    assert overlay.points() == 11
    assert overlay.by_tag()["acc"][0].axes["epoch"] is tags["acc"][0].axes["epoch"]


def test_run_labels_are_shortened_to_their_distinguishing_part() -> None:
    assert labels_of(["sweep-of-bert-lr-1e-3-s1", "sweep-of-bert-lr-1e-4-s1"]) == ["1e-3", "1e-4"]
    assert labels_of(["bert-1", "bert-2"]) == ["bert-1", "bert-2"]
    assert labels_of(["a-very-long-name-of-a-run"] * 2) == [
        "a-very-long-name-of-a-run",
        "a-very-long-name-of-a-run (2)",
    ]
    assert labels_of([]) == []


def test_a_zoomed_line_goes_on_to_the_edges() -> None:
    series = Series()
    series.append([(0, START, 1.0), (1000, START + 1, 2.0)])
    drawn = draw("loss", [PlotCurve("a", series)], 40, 12, PlotOptions(zoom=(400.0, 600.0)))
    plot = [row[1:] for row in drawn.rows[1:-1]]
    filled = {x for row in plot for x, char in enumerate("".join(text for text, _ in row)) if char != " "}
    assert len(filled) == drawn.columns


def test_outliers_are_clipped_and_counted() -> None:
    values = [1 + 0.01 * (step % 7) for step in range(1000)]
    values[100] = values[900] = 1e6
    values[500] = -1e6
    clipped = draw("loss", [PlotCurve("a", of(*values))], 80, 20, PlotOptions(clips=True))
    assert "3 outliers beyond the axis" in text_of(clipped)
    assert "1.0" in text_of(clipped)
    assert "1M" not in text_of(clipped)
    assert "no outliers" in text_of(draw("loss", [PlotCurve("a", of(1, 2))], 80, 20, PlotOptions(clips=True)))


@given(
    st.lists(st.floats(), max_size=300),
    st.integers(0, 300),
    st.integers(0, 300),
    st.floats(0, 9),
    st.floats(0, 9),
)
def test_values_outside_a_band_are_counted(
    values: list[float], one: int, other: int, low: float, extent: float
) -> None:
    start, end = sorted((min(one, len(values)), min(other, len(values))))
    found = of(*values).bands.count_outside(start, end, low, low + extent, above=-math.inf)
    part = values[start:end]
    assert found == sum(math.isfinite(value) and not low <= value <= low + extent for value in part)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.floats(-1e6, 1e6)), min_size=1, max_size=8),
    st.integers(1, 8),
    st.integers(20, 90),
    st.integers(8, 30),
    st.booleans(),
)
@settings(max_examples=100)
def test_no_spike_of_any_run_is_hidden(
    spikes: list[tuple[int, float]], amount: int, width: int, height: int, ascii_only: bool
) -> None:
    curves = []
    for index in range(amount):
        values = [float(index)] * 401
        for at, value in spikes[index::amount]:
            values[at] = value
        curves.append(PlotCurve(f"r{index}", of(*values)))
    plot = Plot(curves, width, height, PlotOptions(ascii_only=ascii_only))
    if plot.canvas is None or plot.y_range is None:
        return
    low, high = plot.y_range
    for placed in plot.placed:
        for index, value in enumerate(placed.curve.series.values):
            dot = round((high - value) / (high - low) * (plot.canvas.dots_y - 1))
            column = round(index / 400 * (plot.canvas.dots_x - 1))
            row = dot // (plot.canvas.dots_y // plot.height)
            cells = {(column + side) // (plot.canvas.dots_x // plot.columns) for side in (-1, 0, 1)}
            shown = [plot.canvas.cell(x, row)[0] for x in cells if 0 <= x < plot.columns]
            assert any(text != " " for text in shown), (index, value)


def test_an_ascii_chart_is_ascii() -> None:
    series = of(1, 2, math.nan, 3, math.inf)
    series.append([(1, START, 5.0), (2, START, math.nan), (3, START, 1.0)])
    curves = [PlotCurve("a", series), PlotCurve("b", falling())]
    for axis in X_AXES:
        view = PlotOptions(x_axis=axis, ascii_only=True, smoothing=0.6, cursor=10)
        assert text_of(draw("loss", curves, 72, 14, view)).isascii()


VIEWS = st.builds(
    PlotOptions,
    x_axis=st.sampled_from(X_AXES),
    is_log=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.6, 0.999]),
    cursor=st.none() | st.integers(0, 120),
    ascii_only=st.booleans(),
    zone=st.just(UTC),
    clips=st.booleans(),
    zoom=st.none() | st.tuples(st.floats(), st.floats()) | st.tuples(st.floats(-9, 50), st.floats(-9, 50)),
)
POINTS = st.lists(
    st.tuples(st.integers(-(2**62), 2**62) | st.integers(0, 50), st.floats(), st.floats()), max_size=40
)


@given(st.lists(POINTS, max_size=9), st.integers(0, 120), st.integers(0, 40), VIEWS)
@settings(max_examples=150)
def test_any_points_can_be_drawn_at_any_size(
    several: list[list[tuple[int, float, float]]], width: int, height: int, view: PlotOptions
) -> None:
    curves: list[PlotCurve] = []
    for index, points in enumerate(several):
        series = Series()
        series.append(points)
        axes: dict[XAxis, StepAxis] = {"epoch": StepAxis(series, curves[0].series)} if curves else {}
        curves.append(PlotCurve(f"job-{index}", series, axes))
    drawn = draw("train/loss", curves, width, height, view)
    assert len(drawn.rows) <= height
    assert all(sum(cell_len(text) for text, _ in row) <= width for row in drawn.rows)


@pytest.mark.slow
def test_a_million_points_are_drawn_within_a_blink() -> None:
    chance = random.Random(0)
    amount = 1_000_000
    series = Series()
    series.extend(
        array("q", range(amount)),
        array("d", (START + index for index in range(amount))),
        array("d", (chance.gauss(1, 0.1) for _ in range(amount))),
    )
    best_s = math.inf
    for _ in range(5):
        started = time.process_time()
        draw("train/loss", [PlotCurve("bert", series)], 200, 50, PlotOptions())
        best_s = min(best_s, time.process_time() - started)
    assert best_s < 0.1
    assert len(series) > BLOCK
