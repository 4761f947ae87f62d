"""A few bars that show whether values fall."""

from __future__ import annotations

from tui.text.trend import trend


def test_bars_show_whether_values_fall_and_what_is_no_number() -> None:
    assert trend([7, 6, 5, 4, 3, 2, 1]) == "▇▆▅▄▃▂▁"
    assert trend([1.0]) == "" and trend([]) == ""
    assert trend([2.0, 2.0]) == "▁▁"
    assert trend([1.0, float("nan"), 3.0]) == "▁✕▇"
    assert len(trend(list(map(float, range(1000))))) == 8
