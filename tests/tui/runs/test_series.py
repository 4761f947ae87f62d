"""Series of points: appended, cut, smoothed and summarised for each column of dots."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.runs.test_charts import START, of
from tui.runs.series import Series, downsample, value_range


def test_points_may_come_one_by_one_or_all_at_once() -> None:
    points = [(step, START + step, math.sin(step)) for step in range(1000)]
    at_once, one_by_one = Series(), Series()
    at_once.append(points)
    for point in points:
        one_by_one.append([point])
    assert at_once.values == one_by_one.values
    assert at_once.bands.between(0, 1000) == one_by_one.bands.between(0, 1000)


def test_resuming_from_a_checkpoint_truncates_the_curve_and_records_a_restart() -> None:
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


def test_wall_times_never_decrease() -> None:
    series = Series()
    series.append([(0, 100.0, 1), (1, 90.0, 1), (2, math.nan, 1), (3, 101.0, 1)])
    assert list(series.wall_times) == [100, 100, 100, 101]


def test_an_update_appends_only_new_points_unless_the_start_changed() -> None:
    series = of(1, 2, 3)
    cuts = series.cuts
    series.update([0, 1, 2, 3], [START] * 4, [1, 2, 3, 4])
    assert (list(series.values), series.cuts) == ([1, 2, 3, 4], cuts)
    series.update([0, 1], [START] * 2, [9, 8], restarts=[1])
    assert (list(series.values), series.restarts) == ([9, 8], [1])
    assert series.cuts > cuts


@given(st.lists(st.floats(), max_size=600), st.integers(0, 600), st.integers(0, 600))
def test_bands_give_the_minimum_and_maximum_of_any_range(values: list[float], one: int, other: int) -> None:
    start, end = sorted((min(one, len(values)), min(other, len(values))))
    series = of(*values)
    finite = [value for value in values[start:end] if math.isfinite(value)]
    assert series.bands.between(start, end) == (min(finite, default=math.inf), max(finite, default=-math.inf))
    assert series.broken_between(start, end) == end - start - len(finite)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(allow_nan=False, allow_infinity=False)), max_size=200),
    st.sampled_from([0.3, 0.9, 0.999]),
)
def test_a_truncated_and_continued_series_equals_one_appended_directly(
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


def test_after_truncation_bands_and_broken_values_equal_those_of_a_fresh_series() -> None:
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


def test_incremental_smoothing_equals_smoothing_at_once() -> None:
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
def test_downsampled_spans_are_in_column_order_and_in_range(
    values: list[float], columns: int, low: float, width: float
) -> None:
    series = of(*values)
    spans = downsample(series.steps, series.values, series.bands, low=low, high=low + width, columns=columns)
    places = [span.x for span in spans]
    assert places == sorted(set(places))
    assert all(0 <= place < columns for place in places)
