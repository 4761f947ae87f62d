"""What the column of the loss says: numbers and bars that stand below each other."""

from __future__ import annotations

import math

import pytest

from tui.screens.lists.home_loss import loss_cell


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (1.87, "1.87   "),
        (0.0414, "0.0414 "),
        (0.00462, "0.0046 "),
        (0.0000123, "1e-05  "),
        (-0.000123, "-1e-04 "),
        (12345.6, "12346  "),
        (1.2e9, "1e+09  "),
    ],
)
def test_the_bars_of_all_losses_begin_below_each_other(last: float, words: str) -> None:
    assert loss_cell({"a": [last + 9, last]}, "a").text == f"{words}▇▁"


def test_a_loss_that_is_no_number_is_loud_and_one_that_was_not_read_is_a_dash() -> None:
    assert loss_cell({"a": [1.0, math.nan]}, "a").text == "nan    ✕"
    assert loss_cell({}, "a").text == "–"
