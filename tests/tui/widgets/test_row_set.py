"""Rows in the order of a column, a filter and live changes, held against the plainest way to do it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tui.tables.column import Cell, Column, Row
from tui.text.natural_order import natural_key
from tui.widgets.table.columns import layout_wide, natural_widths
from tui.widgets.table.row_set import RowCache, RowSet, sort_key, sorted_places, survivor

COLUMNS = (Column("name", "NAME"), Column("size", "SIZE", "right", sorts_largest_first=True))


def row(key: str, name: str = "", size: float | None = None) -> Row:
    return Row(key, (Cell(name or key), Cell("–" if size is None else f"{size:g}", sort=size)))


def names(rows: RowSet) -> list[str]:
    return [each.key for each in rows.shown]


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("worker-2", "worker-10"),
        ("worker-2", "worker-2-copy"),
        ("a9", "a10b"),
        ("a007", "a8"),
        ("9", "a"),
        ("Bert", "vit"),
        ("a" + "9" * 30, "a1" + "0" * 30),
    ],
)
def test_numbers_within_words_are_sorted_naturally(smaller: str, larger: str) -> None:
    assert natural_key(smaller) < natural_key(larger)


def test_case_and_leading_zeros_do_not_affect_the_order() -> None:
    assert natural_key("Rank-07") == natural_key("rank-7")


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.text("abc-", max_size=3))
def test_any_two_numbers_after_a_common_prefix_are_sorted_numerically(
    one: int, other: int, words: str
) -> None:
    assert (natural_key(f"{words}{one}") < natural_key(f"{words}{other}")) == (one < other)


@pytest.mark.parametrize("cell", [Cell(""), Cell("–", "quiet"), Cell("7", sort=float("nan"))])
def test_an_empty_or_nan_cell_has_no_sort_key(cell: Cell) -> None:
    assert sort_key(cell) is None


def test_unknown_values_are_sorted_last_in_both_directions() -> None:
    keys = [None, 3.0, "b", 1.0, None, "a"]
    for largest_first, expected in (
        (False, [1.0, 3.0, "a", "b", None, None]),
        (True, ["b", "a", 3.0, 1.0, None, None]),
    ):
        assert [keys[place] for place in sorted_places(keys, largest_first=largest_first)] == expected


def test_equal_rows_stay_in_the_order_given_when_the_order_is_reversed() -> None:
    rows = RowSet(COLUMNS)
    rows.replace([row("a", size=1), row("b", size=2), row("c", size=1), row("d", size=2)])
    rows.sort(("size", False))
    assert names(rows) == ["b", "d", "a", "c"]
    rows.sort(("size", True))
    assert names(rows) == ["a", "c", "b", "d"]
    rows.sort(None)
    assert names(rows) == ["a", "b", "c", "d"]


def test_a_sort_order_applies_once_its_column_appears() -> None:
    rows = RowSet(COLUMNS)
    rows.sort(("size", False))
    rows.set_columns(COLUMNS[:1], [Row(key, (Cell(key),)) for key in "ab"])
    assert names(rows) == ["a", "b"]
    rows.set_columns(COLUMNS, [row("a", size=1), row("b", size=2)])
    assert names(rows) == ["b", "a"]


def test_a_row_is_filtered_once_while_it_is_the_same_object() -> None:
    asked: list[str] = []

    def wanted(each: Row) -> bool:
        asked.append(each.key)
        return True

    kept = [row("a"), row("b")]
    rows = RowSet(COLUMNS)
    rows.replace(kept)
    rows.filter(wanted)
    rows.replace([*kept, row("c")])
    rows.replace([kept[1], row("a")])
    assert asked == ["a", "b", "c", "a"]


_ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from([f"job-{index}" for index in range(12)]),
        st.sampled_from(["bert", "vit-2", "vit-10", "", "a-very-long-name-of-a-job", "模型"]),
        st.none() | st.integers(0, 3).map(float),
    ),
    max_size=10,
    unique_by=lambda each: each.key,
)
_STEPS = st.lists(
    st.tuples(st.just("rows"), _ROWS)
    | st.tuples(st.just("filter"), st.sampled_from(["", "1", "vit", "zzz"]))
    | st.tuples(
        st.just("sort"), st.none() | st.tuples(st.sampled_from(["name", "size", "gone"]), st.booleans())
    ),
    max_size=12,
)


def _has(pattern: str, each: Row) -> bool:
    return pattern in each.cells[0].text


def plainly(rows: Sequence[Row], pattern: str, order: tuple[str, bool] | None) -> list[str]:
    shown = [each for each in rows if _has(pattern, each)]
    index = {"name": 0, "size": 1}.get(order[0] if order else "")
    if order is None or index is None:
        return [each.key for each in shown]
    known = [each for each in shown if sort_key(each.cells[index]) is not None]
    known.sort(key=lambda each: sort_key(each.cells[index]), reverse=(index == 1) != order[1])  # type: ignore[arg-type, return-value]
    return [each.key for each in (*known, *(each for each in shown if each not in known))]


@given(_STEPS, st.booleans())
def test_incremental_filtering_and_sorting_equals_a_full_recomputation(
    steps: list[tuple[str, Any]], keeps_objects: bool
) -> None:
    rows = RowSet(COLUMNS)
    given_rows: list[Row] = []
    pattern, order = "", None
    for what, value in steps:
        if what == "rows":
            before = {each: each for each in given_rows} if keeps_objects else {}
            given_rows = [before.get(each, each) for each in value]
            rows.replace(given_rows)
        elif what == "filter":
            pattern = value
            rows.filter(partial(_has, pattern) if pattern else None)
        else:
            order = value
            rows.sort(order)
        assert names(rows) == plainly(given_rows, pattern, order)
        assert rows.natural == natural_widths(COLUMNS, given_rows)
        assert [rows.find(key) for key in names(rows)] == list(range(len(rows.shown)))


def test_the_nearest_remaining_row_below_replaces_a_removed_row() -> None:
    rows = RowSet(COLUMNS)
    before = [row(key) for key in "abcde"]
    rows.replace([row(key) for key in "xabe"])
    assert survivor(before, 1, rows) == 2
    assert survivor(before, 2, rows) == 3
    rows.replace([row(key) for key in "ab"])
    assert survivor(before, 4, rows) == 1
    rows.replace([])
    assert survivor(before, 4, rows) is None


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(-3, 200), st.integers(0, 15))
def test_a_wide_table_shows_whole_columns_and_counts_the_others(
    natural: list[int], width: int, skipped: int
) -> None:
    columns = [replace(COLUMNS[0], key=str(index)) for index in range(len(natural))]
    fit = layout_wide(columns, natural, width, skipped)
    shown = [index for index, _ in fit.widths]
    assert len(shown) + fit.hidden + fit.before == len(natural)
    assert shown == [0, *range(1 + fit.before, 1 + fit.before + len(shown) - 1)][: len(natural)]
    assert all(cells == natural[index] for index, cells in fit.widths[2:])
    if width >= 20 and shown:
        assert sum(cells for _, cells in fit.widths) + 2 * (len(shown) - 1) <= width


@given(st.lists(st.integers(1, 30), min_size=2, max_size=12), st.integers(40, 200))
def test_scrolling_a_wide_table_to_its_end_shows_every_column(natural: list[int], width: int) -> None:
    columns = [replace(COLUMNS[0], key=str(index)) for index in range(len(natural))]
    seen: set[int] = set()
    for skipped in range(len(natural)):
        seen |= {index for index, _ in layout_wide(columns, natural, width, skipped).widths}
    assert seen == set(range(len(natural)))
    assert not layout_wide(columns, natural, width, len(natural)).hidden


class Thing(msgspec.Struct, frozen=True):
    name: str
    age_s: float = 0.0


class Maker:
    """Makes rows, and remembers of what."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, thing: Thing) -> Row:
        self.made.append(thing.name)
        return Row(thing.name, (Cell(thing.name),))


def test_only_changed_objects_get_a_new_row() -> None:
    kept, make = RowCache[Thing](), Maker()
    things = [Thing("a"), Thing("b"), Thing("c")]
    first = kept.rows(things, make, drawn_for=1)
    things[1] = Thing("b")
    second = kept.rows(things, make, drawn_for=1)
    assert make.made == ["a", "b", "c", "b"]
    assert second[0] is first[0]
    assert second[1] is not first[1]


def test_cached_rows_follow_the_given_order_and_rows_of_removed_objects_are_dropped() -> None:
    kept, make = RowCache[Thing](), Maker()
    a, b, c = Thing("a"), Thing("b"), Thing("c")
    kept.rows([a, b, c], make, drawn_for=1)
    assert [row.key for row in kept.rows([c, a], make, drawn_for=1)] == ["c", "a"]
    kept.rows([b], make, drawn_for=1)
    assert make.made == ["a", "b", "c", "b"]


def test_all_cached_rows_are_rebuilt_when_their_dependencies_change() -> None:
    kept, make = RowCache[Thing](), Maker()
    things = [Thing("a"), Thing("b")]
    kept.rows(things, make, drawn_for=(True, False))
    kept.rows(things, make, drawn_for=(True, True))
    assert make.made == ["a", "b", "a", "b"]


def test_rows_can_be_made_in_steps_between_which_others_are_drawn() -> None:
    kept, make = RowCache[Thing](), Maker()
    a, b, c = Thing("a"), Thing("b"), Thing("c")
    steps = kept.steps([a, b, c], make, drawn_for=1)
    next(steps)
    kept.rows([a], make, drawn_for=1)
    assert [*steps] == [None, None]
    assert [row.key for row in kept.rows([c, b, a], make, drawn_for=1)] == ["c", "b", "a"]
    assert make.made == ["a", "b", "c"]
    steps = kept.steps([a, b, c], make, drawn_for=2)
    next(steps)
    kept.rows([b], make, drawn_for=3)
    assert [*steps] == []
    kept.rows([a, b, c], make, drawn_for=3)
    assert make.made[3:] == ["a", "b", "a", "c"]


def test_a_row_is_rebuilt_each_second_while_young_and_only_when_its_shown_age_changes_later() -> None:
    kept, make = RowCache[Thing](), Maker()
    things = [Thing("young", 10.0), Thing("old", 3600.0)]
    for now_s in (0.0, 0.5, 1.0, 20.0, 36.0):
        kept.rows(things, make, drawn_for=1, now_s=now_s, age_s=lambda thing: thing.age_s)
    assert make.made.count("young") == 4
    assert make.made.count("old") == 2
