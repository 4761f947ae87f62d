"""Text in the cells of a terminal, counted as Rich counts them; percentages over time in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len as rich_cell_len

from tui.text import cells
from tui.text.cells import cell_len
from tui.text.sparkline import GAP, LEVELS, level, sparkline, trend

CLEAN = st.characters(exclude_categories=["Cc", "Cs"])
"""Characters of shown text, which has no control characters; see `k8s.text.sanitize`."""
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
"""Three people and what joins them: one picture of two cells."""


def test_every_narrow_character_takes_the_cells_that_rich_gives_it() -> None:
    # Of texts with others Rich is asked.
    shown = [chr(code) for code in range(0x20, 0x3000) if code != 0x7F]
    assert [char for char in shown if cells.cell_len(char) != rich_cell_len(char)] == []


@given(st.text(st.one_of(CLEAN, st.sampled_from("\u200d\ufe0f1❤中é…▮")), max_size=40))
def test_a_text_is_as_wide_as_in_rich(text: str) -> None:
    assert cells.cell_len(text) == rich_cell_len(text)


def test_a_grapheme_cluster_is_never_split() -> None:
    assert cells.head(f"{FAMILY}a", 2) == FAMILY
    assert cells.tail(f"a{FAMILY}", 2) == FAMILY
    assert cells.head(FAMILY, 1) == ""
    assert cells.head("1\ufe0f2", 2) == "1\ufe0f"


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("bert-large-worker-12", 20, "bert-large-worker-12"),
        ("bert-large-ft-worker-12", 20, "bert-larg…-worker-12"),
        ("bert-large-ft-worker-12", 12, "b…-worker-12"),
        ("bert-large-ft-worker-12", 9, "…orker-12"),
        ("bert-large-ft-worker-12", 4, "…-12"),
        ("bert-large-ft-worker-12", 1, "…"),
        ("bert-large-ft-worker-12", 0, ""),
        ("模型训练任务-worker-3", 14, "模型…-worker-3"),
        ("no-number-at-its-end", 11, "no-nu…s-end"),
    ],
)
def test_a_shortened_name_keeps_its_suffix(name: str, width: int, shown: str) -> None:
    assert cells.elide_middle(name, width) == shown


@given(st.text(CLEAN, max_size=60), st.integers(-1, 70))
def test_shortened_text_never_takes_more_cells_than_given(text: str, width: int) -> None:
    for shorten in (cells.elide_middle, cells.elide_end, cells.head, cells.tail):
        assert cells.cell_len(shorten(text, width)) <= max(0, width)


@given(st.text("模型ab-_.0123456789", min_size=1, max_size=40), st.integers(0, 999), st.integers(6, 60))
def test_the_number_of_a_name_is_never_lost(stem: str, number: int, width: int) -> None:
    assert cells.elide_middle(f"{stem}-{number}", width).endswith(f"-{number}")


@given(st.text(CLEAN, max_size=30), st.integers(0, 60))
def test_padded_text_takes_exactly_the_cells_given(text: str, width: int) -> None:
    wanted = max(width, cells.cell_len(text))
    assert cells.cell_len(cells.pad(text, width)) == cells.cell_len(cells.pad(text, width, "right")) == wanted


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
