"""What of a table has just changed, and for how long that is said."""

from __future__ import annotations

import pytest

from tui.tables.column import Cell, Column, Row
from tui.widgets.table.visible_lines import FLASH_S, ROUND_S, Flashes

COLUMNS = (Column("name", "NAME"), Column("status", "STATUS", flashes=True), Column("age", "AGE"))


def row(status: str, age: str = "1m", key: str = "a") -> Row:
    return Row(key, (Cell("bert"), Cell(status), Cell(age)))


def noted(before: Row, after: Row) -> Flashes:
    flashes = Flashes()
    flashes.record(COLUMNS, {before.key: before}, [after], 10.0)
    return flashes


def test_another_text_in_a_column_that_flashes_is_pointed_at() -> None:
    assert noted(row("Pending"), row("Running")).of("a") == (1,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (row("Running"), row("Running", age="2m")),
        (row("Running 59m"), row("Running 1h00m")),
        (row("Running"), row("Failed", key="new")),
    ],
)
def test_ages_and_new_rows_are_no_changes(before: Row, after: Row) -> None:
    flashes = noted(before, after)
    assert flashes.of(after.key) == ()
    assert flashes.next_end_s is None


def test_changes_soon_after_each_other_end_together() -> None:
    flashes = noted(row("Pending"), row("Running"))
    flashes.record(COLUMNS, {"b": row("Pending", key="b")}, [row("Failed", key="b")], 9.6)
    end_s = flashes.next_end_s
    assert end_s is not None
    assert 10.0 + FLASH_S <= end_s <= 10.0 + FLASH_S + ROUND_S
    flashes.end(end_s - 0.01)
    assert flashes.of("a") == flashes.of("b") == (1,)
    flashes.end(end_s)
    assert flashes.of("a") == flashes.of("b") == ()
    assert flashes.next_end_s is None
