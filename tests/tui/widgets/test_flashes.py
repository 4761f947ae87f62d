"""Marks on recently changed cells of a table, and their duration."""

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


def test_a_changed_cell_in_a_flashing_column_is_recorded() -> None:
    assert noted(row("Pending"), row("Running")).of("a") == (1,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (row("Running"), row("Running", age="2m")),
        (row("Running 59m"), row("Running 1h00m")),
        (row("Running"), row("Failed", key="new")),
    ],
)
def test_changed_ages_and_new_rows_do_not_flash(before: Row, after: Row) -> None:
    flashes = noted(before, after)
    assert flashes.of(after.key) == ()
    assert flashes.next_end_s is None


def test_flashes_of_nearby_changes_end_together() -> None:
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
