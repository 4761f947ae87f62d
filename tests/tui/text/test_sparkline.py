"""Percentages over time in one line: one scale, gaps that are seen, and a last cell that is the number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui.text.cells import cell_len
from tui.text.sparkline import GAP, LEVELS, level, sparkline, trend


def test_the_scale_is_fixed_so_that_rows_can_be_compared() -> None:
    assert sparkline([3.0, 4.0, 3.0], 3) == LEVELS[0] * 3
    assert sparkline([97.0, 98.0], 2) == LEVELS[-1] * 2
    assert [level(each) for each in (0, 50, 100, 150, -1)] == ["▁", "▄", "▇", "▇", "▁"]
    assert "█" not in LEVELS


def test_the_last_sparkline_cell_is_the_newest_value_and_others_show_their_maximum() -> None:
    assert sparkline([0, 100, 0, 0, 0, 0, 0], 3) == "▇▁▁"
    assert sparkline([100, 100, 100, 0], 2) == "▇▁"


def test_a_missing_sample_is_a_gap_and_cells_before_the_first_sample_are_blank() -> None:
    assert sparkline([50, None, 50], 5) == f"  ▄{GAP}▄"
    assert sparkline([None], 2) == f" {GAP}"
    assert sparkline([], 4) == "    "
    assert sparkline([1.0], 0) == ""


@given(st.lists(st.one_of(st.none(), st.floats(-10, 200)), max_size=200), st.integers(0, 60))
def test_a_sparkline_has_exactly_the_requested_width(percents: list[float | None], width: int) -> None:
    assert cell_len(sparkline(percents, width)) == width


def test_trend_bars_show_falling_values_and_nan() -> None:
    assert trend([7, 6, 5, 4, 3, 2, 1]) == "▇▆▅▄▃▂▁"
    assert trend([1.0]) == "" and trend([]) == ""
    assert trend([2.0, 2.0]) == "▁▁"
    assert trend([1.0, float("nan"), 3.0]) == "▁✕▇"
    assert len(trend(list(map(float, range(1000))))) == 8
