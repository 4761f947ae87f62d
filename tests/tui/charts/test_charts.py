"""Curves as text: what is kept of a million points, and how it looks."""

from __future__ import annotations

import math
import random
import time
from array import array
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import GOLDEN
from tui.charts.braille import Canvas
from tui.charts.picture import Picture, PlotCurve, PlotOptions, draw
from tui.charts.series import BLOCK, Series, downsample, value_range
from tui.charts.ticks import clock_ticks, duration_ticks, integer_ticks, log_ticks, number_ticks
from tui.text.cells import cell_len

GOLDEN_CHARTS = GOLDEN / "charts"
START = 1_790_000_000.0


def falling(amount: int = 240, *, seed: int = 1, start: float = 2.4, noise: float = 0.04) -> Series:
    chance = random.Random(seed)
    series = Series()
    series.append(
        (
            index * 100,
            START + index * 30,
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


# Series


def test_points_may_come_one_by_one_or_all_at_once() -> None:
    points = [(step, START + step, math.sin(step)) for step in range(1000)]
    at_once, one_by_one = Series(), Series()
    at_once.append(points)
    for point in points:
        one_by_one.append([point])
    assert at_once.values == one_by_one.values
    assert at_once.bands.between(0, 1000) == one_by_one.bands.between(0, 1000)


def test_a_job_that_went_back_to_a_checkpoint_writes_its_curve_anew() -> None:
    series = of(5, 4, 3, 2, 1)
    series.append([(2, START + 10, 30.0), (3, START + 11, 20.0)])
    assert list(series.steps) == [0, 1, 2, 3]
    assert list(series.values) == [5, 4, 30, 20]
    assert series.restarts == [2]


def test_a_step_written_twice_counts_once_and_is_no_restart() -> None:
    series = of(5, 4)
    series.append([(1, START + 2, 3.5)])
    assert list(series.values) == [5, 3.5]
    assert series.restarts == []


def test_a_clock_that_goes_back_is_held() -> None:
    series = Series()
    series.append([(0, 100.0, 1), (1, 90.0, 1), (2, math.nan, 1), (3, 101.0, 1)])
    assert list(series.wall_times) == [100, 100, 100, 101]


def test_an_update_reads_only_what_is_new_unless_the_start_changed() -> None:
    series = of(1, 2, 3)
    cuts = series.cuts
    series.update([0, 1, 2, 3], [START] * 4, [1, 2, 3, 4])
    assert (list(series.values), series.cuts) == ([1, 2, 3, 4], cuts)
    series.update([0, 1], [START] * 2, [9, 8], restarts=[1])
    assert (list(series.values), series.restarts) == ([9, 8], [1])
    assert series.cuts > cuts


@given(st.lists(st.floats(), max_size=600), st.integers(0, 600), st.integers(0, 600))
def test_bands_know_what_a_reading_of_the_stretch_would_find(
    values: list[float], one: int, other: int
) -> None:
    start, end = sorted((min(one, len(values)), min(other, len(values))))
    series = of(*values)
    finite = [value for value in values[start:end] if math.isfinite(value)]
    assert series.bands.between(start, end) == (
        min(finite, default=math.inf),
        max(finite, default=-math.inf),
    )
    assert series.broken_between(start, end) == end - start - len(finite)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(allow_nan=False, allow_infinity=False)), max_size=200),
    st.sampled_from([0.3, 0.9, 0.999]),
)
def test_a_series_cut_and_continued_is_like_one_written_straight(
    points: list[tuple[int, float]], weight: float
) -> None:
    series, kept = Series(), dict[int, float]()
    for step, value in points:
        series.append([(step, START, value)])
        series.smoothed(weight)
        kept = {earlier: kept[earlier] for earlier in kept if earlier < step} | {step: value}
    straight = Series()
    straight.append((step, START, value) for step, value in kept.items())
    assert list(series.steps) == list(straight.steps) == sorted(kept)
    assert series.values == straight.values
    assert series.smoothed(weight).values == straight.smoothed(weight).values


def test_after_going_back_bands_and_broken_values_are_those_of_a_fresh_series() -> None:
    for back in [1, 63, 64, 65, 300, 1000]:

        def value(step: int) -> float:
            return math.nan if step % 37 == 0 else math.sin(step) * step

        first = 1000 - back
        again = [(step, START, value(step + 1) / 1000) for step in range(first, 1100)]
        series, fresh = Series(), Series()
        series.append((step, START, value(step)) for step in range(1000))
        series.append(again)
        fresh.append([*((step, START, value(step)) for step in range(first)), *again])
        for start in range(0, 1100, 13):
            for end in (start, start + 5, first, 1000, 1100):
                assert series.bands.between(start, end) == fresh.bands.between(start, end)
                assert series.broken_between(start, end) == fresh.broken_between(start, end)
        assert list(series.broken) == list(fresh.broken)


def test_smoothing_follows_tensorboards_rule() -> None:
    values = [4.0, 2.0, math.nan, 3.0, math.inf, 1.0]
    weight, mean, count, expected = 0.6, 0.0, 0, list[float]()
    for value in values:
        if math.isfinite(value):
            mean = mean * weight + (1 - weight) * value
            count += 1
            expected.append(mean / (1 - weight**count))
        else:
            expected.append(value)
    smoothed = of(*values).smoothed(weight).values
    assert [repr(value) for value in smoothed] == [repr(value) for value in expected]


def test_smoothing_a_long_series_is_the_same_in_one_go_and_in_pieces() -> None:
    chance = random.Random(4)
    points = [(step, START, chance.random()) for step in range(20_000)]
    at_once, pieces = Series(), Series()
    at_once.append(points)
    for start in range(0, len(points), 777):
        pieces.append(points[start : start + 777])
        pieces.smoothed(0.99)
    assert at_once.smoothed(0.99).values == pytest.approx(pieces.smoothed(0.99).values, rel=1e-9)


def test_a_constant_series_is_not_changed_by_smoothing() -> None:
    assert list(of(*[0.1] * 500).smoothed(0.999).values) == pytest.approx([0.1] * 500)


# Downsampling


def test_every_extreme_value_is_kept() -> None:
    values = [0.0] * 10_000
    values[1234], values[8765] = 50.0, -50.0
    series = of(*values)
    spans = downsample(series.steps, series.values, series.bands, low=0, high=9_999, columns=100)
    assert len(spans) == 100
    assert value_range(spans) == (-50, 50)
    assert spans[-1].last == 0.0


@given(
    st.lists(st.floats(allow_nan=True), min_size=1, max_size=400),
    st.integers(2, 200),
    st.floats(-100, 500),
    st.floats(0.001, 900),
)
def test_spans_lie_in_order_on_the_columns_there_are(
    values: list[float], columns: int, low: float, width: float
) -> None:
    series = of(*values)
    spans = downsample(series.steps, series.values, series.bands, low=low, high=low + width, columns=columns)
    places = [span.x for span in spans]
    assert places == sorted(set(places))
    assert all(0 <= place < columns for place in places)


# Canvas


def test_eight_dots_share_a_cell() -> None:
    canvas = Canvas(2, 1)
    canvas.column(0, 0, 3, 1)
    canvas.column(3, 1, 2, 2)
    assert canvas.row(0) == [("⡇", 1), ("⠰", 2)]


def test_the_later_owner_has_a_shared_cell_alone() -> None:
    canvas = Canvas(1, 1)
    canvas.column(0, 0, 3, 1)
    canvas.column(1, 0, 0, 2)
    assert canvas.row(0) == [("⠈", 2)]


def test_a_line_is_never_interrupted() -> None:
    canvas = Canvas(20, 10)
    canvas.line((0, 0), (39, 39), 1)
    assert all(any(owner for _, owner in canvas.row(y)) for y in range(10))


# Ticks


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(2, 20))
def test_ticks_are_few_round_and_inside(low: float, width: float, most: int) -> None:
    high = low + width
    if not high > low:
        return
    ticks = number_ticks(low, high, most)
    assert len(ticks) <= most
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert all(low - slack <= tick.value <= high + slack for tick in ticks)


def test_ticks_are_labelled_alike() -> None:
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
    assert [tick.text for tick in clock_ticks(START, START + 7_200, 5, UTC)] == [
        "14:30",
        "15:00",
        "15:30",
        "16:00",
    ]
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


@pytest.mark.parametrize("name", PICTURES)
def test_a_chart_looks_like_its_picture(name: str) -> None:
    curves, view = PICTURES[name]
    drawn = text_of(draw("train/loss", curves, 72, 14, view))
    path = GOLDEN_CHARTS / f"{name}.txt"
    assert path.exists(), f"No picture yet. Look at this one; if it is right, save it as {path}:\n{drawn}"
    assert drawn == path.read_text(encoding="utf-8")


def test_a_restart_is_marked_on_the_axis() -> None:
    series = of(*range(100, 0, -1))
    series.append((step, START + 200 + step, 50.0) for step in range(40, 80))
    drawn = draw("loss", [PlotCurve("bert", series)], 72, 10, PlotOptions())
    assert ("↻", "note") in drawn.rows[-1]


def test_broken_values_are_an_alarm_on_the_axis_and_in_the_title() -> None:
    drawn = draw("loss", [PlotCurve("bert", of(1, 2, math.nan, 4))], 72, 10, PlotOptions())
    assert ("✕", "alarm") in drawn.rows[-1]
    assert ("1 nan or inf", "alarm") in drawn.rows[0]


def test_raw_points_stay_visible_under_the_smoothed_curve() -> None:
    drawn = draw("loss", [PlotCurve("bert", falling(noise=0.5))], 72, 14, PlotOptions(smoothing=0.9))
    paints = {paint for row in drawn.rows for _, paint in row}
    assert {"raw-1", "series-1", "axis", "title"} <= paints


def test_curves_differ_by_their_dashes_where_there_is_no_colour() -> None:
    curves = [PlotCurve(str(level), of(*[float(level)] * 200)) for level in range(3)]
    rows = text_of(draw("loss", curves, 72, 20, PlotOptions())).splitlines()
    swatches = {rows[1].split(f" {level} ")[0][-3:] for level in range(3)}
    assert len(swatches) == 3


def test_an_ascii_chart_is_ascii() -> None:
    series = of(1, 2, math.nan, 3, math.inf)
    series.append([(1, START, 5.0), (2, START, math.nan), (3, START, 1.0)])
    curves = [PlotCurve("a", series), PlotCurve("b", falling())]
    for axis in ("step", "relative", "wall"):
        view = PlotOptions(x_axis=axis, ascii_only=True, smoothing=0.6, cursor=10)
        assert text_of(draw("loss", curves, 72, 14, view)).isascii()


VIEWS = st.builds(
    PlotOptions,
    x_axis=st.sampled_from(["step", "relative", "wall"]),
    is_log=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.6, 0.999]),
    cursor=st.none() | st.integers(0, 120),
    ascii_only=st.booleans(),
    zone=st.just(UTC),
)
POINTS = st.lists(
    st.tuples(st.integers(-(2**40), 2**40), st.floats(0, 4e9), st.floats()),
    max_size=40,
)


@given(st.lists(POINTS, max_size=3), st.integers(0, 120), st.integers(0, 40), VIEWS)
@settings(max_examples=150)
def test_any_points_can_be_drawn_at_any_size(
    several: list[list[tuple[int, float, float]]], width: int, height: int, view: PlotOptions
) -> None:
    curves = []
    for index, points in enumerate(several):
        series = Series()
        series.append(points)
        curves.append(PlotCurve(f"job-{index}", series))
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
