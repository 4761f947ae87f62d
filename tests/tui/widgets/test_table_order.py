"""The table's order, its wide mode and its flashes; and that nothing stale stays on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from textual.app import ComposeResult
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Region

import themes
from tests.support.idle import until
from tests.support.screen_text import resize
from tests.support.themed_app import ThemedApp
from tui.tables.column import Cell, Column, Row
from tui.text.cells import pad
from tui.widgets.table.table import Table
from tui.widgets.table.visible_lines import FLASH_S, ROUND_S, Flashes

COLUMNS = (
    Column("name", "NAME"),
    Column("status", "STATUS", flashes=True),
    Column("gpus", "GPUS", "right", flashes=True, sorts_largest_first=True),
    Column("age", "AGE", "right"),
)


def row(name: str, status: str = "Running", gpus: int | None = 8, detail: str | None = None) -> Row:
    count = "–" if gpus is None else f"{gpus}/8"
    return Row(name, (Cell(name), Cell(status), Cell(count, sort=gpus), Cell("1h")), detail)


class OrderApp(ThemedApp[None]):
    """One table, perhaps in a frame, and a record of its orders."""

    def __init__(
        self, given_rows: Sequence[Row] = (), *, columns: Sequence[Column] = COLUMNS, is_framed: bool = False
    ) -> None:
        super().__init__()
        self.given_rows = given_rows
        self.columns = columns
        self.is_framed = is_framed
        self.orders: list[tuple[str, bool] | None] = []

    def compose(self) -> ComposeResult:
        yield Table(self.columns, classes="pane" if self.is_framed else None)

    def on_mount(self) -> None:
        self.table.focus()
        self.table.set_rows(self.given_rows)
        self.watch(self.table, "order", lambda order: self.orders.append(order), init=False)

    @property
    def table(self) -> Table:
        return self.query_one(Table)


def painted(table: Table) -> list[str]:
    """Return the lines on the screen; in a frame, lines that were not refreshed are old."""
    edge = 1 if table.gutter.width else 0
    lines = table.render_lines(Region(0, 0, table.outer_size.width, table.outer_size.height))
    return [strip.text[edge : strip.cell_length - edge] for strip in lines][edge : len(lines) - edge]


def names(app: OrderApp) -> list[str]:
    return [line[3:].split()[0] for line in painted(app.table)[1:] if line.strip()]


async def test_any_column_can_be_picked_and_sorted_by_and_reversed() -> None:
    app = OrderApp([row("job-10", gpus=4), row("job-2", gpus=16), row("job-1", gpus=None)])
    async with app.run_test(size=(80, 24)) as pilot:

        def underlined() -> list[str]:
            header = app.table.render_lines(Region(0, 0, 80, 1))[0]
            return [segment.text for segment in header if segment.style and segment.style.underline]

        await pilot.press("O")
        assert names(app) == ["job-1", "job-2", "job-10"]
        assert "NAME↑" in painted(app.table)[0]
        await pilot.press("shift+right", "full_stop", "O")
        assert names(app) == ["job-2", "job-10", "job-1"]
        assert "GPUS↓" in painted(app.table)[0]
        await pilot.press("O")
        assert names(app) == ["job-10", "job-2", "job-1"]
        await pilot.press("comma", "shift+left", "O")
        await pilot.pause()
        assert names(app) == ["job-1", "job-2", "job-10"]
        assert app.orders == [("name", False), ("gpus", False), ("gpus", True), ("name", False)]

        app.table.order = None
        await pilot.click(Table, offset=(painted(app.table)[0].index("GPUS"), 0))
        await pilot.pause()
        assert names(app) == ["job-2", "job-10", "job-1"]

    app = OrderApp([row("job-1")])
    async with app.run_test(size=(80, 24)) as pilot:
        assert underlined() == []
        for keys, title in (
            (("full_stop", "full_stop"), "STATUS"),
            (("comma", "comma"), "AGE"),
            (("full_stop",), "NAME"),
        ):
            await pilot.press(*keys)
            assert underlined() == [title]
        await pilot.press("O")
        assert underlined() == [], "the arrow shows it from now on"


async def test_a_long_list_keeps_its_scroll_position_and_shows_a_scrollbar() -> None:
    app = OrderApp([row(f"job-{index}") for index in range(100)])
    async with app.run_test(size=(80, 24)) as pilot:

        def bar() -> list[int]:
            return [y for y, line in enumerate(painted(app.table)) if line.endswith("┃")]

        assert bar()[0] == 1
        for event, top in ((MouseScrollDown, 3), (MouseScrollDown, 6), (MouseScrollUp, 3)):
            app.table.post_message(event(None, 5, 5, 0, 0, 0, shift=False, meta=False, ctrl=False))
            await pilot.pause()
            assert app.table.top == top
            assert names(app)[0] == f"job-{top}"
            assert app.table.cursor_key == "job-0", "the wheel leaves the cursor alone"
        await pilot.press("G")
        assert bar()[-1] == 23

        await pilot.press("g")
        app.table.set_rows([row("new"), *(row(f"job-{index}") for index in range(100))])
        assert names(app)[:2] == ["new", "job-0"], "new rows above the top are visible"
        assert app.table.cursor_key == "job-0"
        app.table.set_rows([row("job-1")])
        assert bar() == []

        app.table.set_rows([row(f"job-{index}") for index in range(500)])
        await pilot.press("g", "O", *["ctrl+f"] * 4, "k", "k")
        await pilot.pause()
        at = next(line for line in painted(app.table) if "▸" in line)
        y = painted(app.table).index(at)
        await pilot.press("O")
        assert painted(app.table)[y] == at, "the cursor keeps its line when the list is reversed"
        assert app.table.top > 300


MANY = tuple(
    Column(f"c{index}", f"COLUMN-{index}", priority=index, elide="middle", max_width=12) for index in range(8)
)


def many(key: str) -> Row:
    return Row(key, tuple(Cell(f"{key}-says-{index}-at-some-length") for index in range(8)))


async def test_wide_tables_show_columns_whole_and_are_scrolled_sideways() -> None:
    app = OrderApp([many("a"), many("b")], columns=MANY)
    async with app.run_test(size=(80, 12)) as pilot:
        assert "a-says-0-at-some-length" not in painted(app.table)[1]
        await pilot.press("ctrl+w")
        header, first = painted(app.table)[:2]
        assert header.split() == ["COLUMN-0", "COLUMN-1", "+6>"]
        assert "a-says-0-at-some-length  a-says-1-at-some-length" in first
        await pilot.press("right", "right")
        assert painted(app.table)[0].split() == ["COLUMN-0", "COLUMN-3", "<2", "+4>"]
        await pilot.press(*["right"] * 20)
        assert painted(app.table)[0].split() == ["COLUMN-0", "COLUMN-7", "<6"]
        await pilot.press("left")
        assert painted(app.table)[0].split() == ["COLUMN-0", "COLUMN-6", "<5", "+1>"]
        await pilot.press("ctrl+w", "right")
        assert painted(app.table)[0].split()[-2:] == ["COLUMN-6", "+1>"]

    app = OrderApp([many("a"), many("b")], columns=MANY)
    async with app.run_test(size=(80, 12)) as pilot:
        await pilot.press("ctrl+w", *["full_stop"] * 8)
        assert "COLUMN-7" in painted(app.table)[0], "a picked column is scrolled to"
        await pilot.press(*["comma"] * 6)
        assert "COLUMN-1" in painted(app.table)[0]


async def test_column_titles_are_sanitized() -> None:
    nasty = "T\x1b[31mI\u202eT"
    app = OrderApp([Row("a", (Cell("a"),))], columns=[Column("t", nasty, min_width=20)])
    async with app.run_test(size=(80, 12)):
        assert "TI<U+202E>T" in painted(app.table)[0]
        assert not set("".join(painted(app.table))) & {"\x1b", "\u202e"}


def reversed_texts(app: OrderApp, y: int) -> list[str]:
    line = app.table.render_lines(Region(0, y, app.table.size.width, 1))[0]
    return [segment.text for segment in line if segment.style and segment.style.reverse]


async def test_only_a_changed_cell_flashes_and_flashes_can_be_turned_off() -> None:
    app = OrderApp([row("a", "Pending"), row("b", "Pending")])
    async with app.run_test(size=(80, 24)) as pilot:
        assert reversed_texts(app, 2) == []
        app.table.set_rows([row("a", "Pending"), row("b", "Running", 4), row("c")])
        assert reversed_texts(app, 2) == ["Running", "4/8"]
        assert reversed_texts(app, 1) == reversed_texts(app, 3) == []
        await until(pilot, lambda: not reversed_texts(app, 2))

        rows = [row(f"job-{index}", str(index), index % 9) for index in range(60)]
        app.table.set_rows(rows)
        app.table.order = ("gpus", False)
        app.table.set_filter(lambda each: each.key.endswith("7"))
        app.table.set_filter(None)
        await pilot.press("G")
        app.table.set_rows([*rows])
        assert [reversed_texts(app, y) for y in range(1, 24)] == [[]] * 23

        app.table.flashes = False
        app.table.set_rows([row("job-1", "other")])
        assert reversed_texts(app, 1) == []


async def test_a_flash_is_visible_under_a_reversed_cursor() -> None:
    app = OrderApp([row("a", "Pending")])
    app.theme = themes.MONO
    async with app.run_test(size=(80, 24)):
        app.table.set_rows([row("a", "Running")])
        line = app.table.render_lines(Region(0, 1, 80, 1))[0]
        straight = [each.text for each in line if each.style and not each.style.reverse]
        assert straight == ["Running"]


HEIGHT = 8
_DETAILS = st.none() | st.just("└ waits")
_ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from([f"job-{index}" for index in range(30)]),
        st.sampled_from(["Running", "Pending"]),
        st.none() | st.integers(0, 8),
        _DETAILS,
    ),
    max_size=30,
    unique_by=lambda each: each.key,
)
_CHANGES = (
    st.tuples(st.just("rows"), _ROWS)
    | st.tuples(st.just("filter"), st.sampled_from(["", "1", "job-2", "zzz"]))
    | st.tuples(st.just("order"), st.none() | st.tuples(st.sampled_from(["name", "gpus"]), st.booleans()))
    | st.tuples(st.just("height"), st.integers(4, 16))
)
_MOVES = st.tuples(st.just("press"), st.sampled_from(["j", "k", "G", "g", "ctrl+f", "ctrl+b"]))
_OTHERS = st.tuples(st.just("press"), st.sampled_from(["space", "V", "U", "ctrl+w", "O", "full_stop"]))
_STEPS = st.lists(_CHANGES | _MOVES | _OTHERS, min_size=3, max_size=15)


def demanded(rows: Sequence[Row], shown: Sequence[str], table: Table) -> list[str]:
    """Return the lines of the rows as they must be painted, by the plainest way to draw them."""
    by_key = {each.key: each for each in rows}
    texts = [[each.cells[index].text for each in rows] + [COLUMNS[index].title] for index in range(4)]
    widths = [max(map(len, column)) for column in texts]
    lines = []
    for key in shown:
        mark, cursor = "●" if key in table.marks else " ", "▸" if key == table.cursor_key else " "
        cells = [
            pad(cell.text, width, column.align)
            for cell, width, column in zip(by_key[key].cells, widths, COLUMNS, strict=True)
        ]
        lines.append(f"{mark}{cursor} {'  '.join(cells)}")
        if detail := by_key[key].detail:
            lines.append(f"     {detail}")
    return [line.rstrip() for line in lines]


async def _go_through(rows: list[Row], steps: Sequence[tuple[str, Any]]) -> None:
    marks: set[str] = set()
    pattern = ""
    app = OrderApp(rows, is_framed=True)
    async with app.run_test(size=(60, HEIGHT)) as pilot:
        table = app.table
        for what, value in steps:
            key = table.cursor_key
            if what == "rows":
                rows = value
                table.set_rows(rows)
                marks &= {each.key for each in rows}
            elif what == "filter":
                pattern = value
                table.set_filter(partial(_has, pattern) if pattern else None)
            elif what == "order":
                table.order = value
            elif what == "height":
                await resize(pilot, 60, value)
            else:
                if value == "space" and key is not None:
                    marks ^= {key}
                await pilot.press(value)
            await pilot.pause()
            shown = [each.key for each in rows if pattern in each.key]
            if value in ("U", "V"):
                marks = set(table.marks)
            elif what != "press" and key in shown:
                assert table.cursor_key == key
            assert set(table.marks) == marks
            assert table.hidden_marks == len(marks - set(shown))
            assert table.row_count == len(shown)
            assert (table.cursor_key in shown) == bool(shown)
            if shown:
                _hold(table, demanded(rows, in_order(rows, shown, table.order), table))


def _has(pattern: str, each: Row) -> bool:
    return pattern in each.key


def in_order(rows: Sequence[Row], shown: Sequence[str], order: tuple[str, bool] | None) -> list[str]:
    """Sort keys by a column of their rows."""
    by, is_turned = order or ("", False)
    by_key = {each.key: each for each in rows}
    size = {key: float(by_key[key].cells[2].sort or 0) for key in shown}
    status = {key: by_key[key].cells[1].text for key in shown}
    numbers = {key: int(key.removeprefix("job-")) for key in shown}
    if by == "gpus":
        missing = [key for key in shown if by_key[key].cells[2].sort is None]
        known = [key for key in shown if key not in missing]
        return [*sorted(known, key=size.__getitem__, reverse=not is_turned), *missing]
    if by == "name":
        return sorted(shown, key=numbers.__getitem__, reverse=is_turned)
    return sorted(shown, key=status.__getitem__, reverse=is_turned) if by == "status" else list(shown)


def _hold(table: Table, wanted: Sequence[str]) -> None:
    """Hold what is painted against all the lines there should be, and where it is scrolled to."""
    on_screen = [line.rstrip(" ┃") for line in painted(table)[1:]]
    assert 0 <= table.top <= max(0, len(wanted) - len(on_screen))
    assert on_screen == [*wanted[table.top :], *[""] * len(on_screen)][: len(on_screen)]
    assert any(line[1:2] == "▸" for line in on_screen)


# Examples take long enough as they are found; making them smaller takes minutes.
@settings(max_examples=30, phases=(Phase.explicit, Phase.generate))
@given(_ROWS, _STEPS)
@pytest.mark.slow
def test_after_any_steps_the_table_shows_current_rows_with_the_cursor_visible(
    rows: list[Row], steps: list[tuple[str, Any]]
) -> None:
    asyncio.run(_go_through(rows, steps))


FLASH_COLUMNS = (Column("name", "NAME"), Column("status", "STATUS", flashes=True), Column("age", "AGE"))


def flash_row(status: str, age: str = "1m", key: str = "a") -> Row:
    return Row(key, (Cell("bert"), Cell(status), Cell(age)))


def noted(before: Row, after: Row) -> Flashes:
    flashes = Flashes()
    flashes.record(FLASH_COLUMNS, {before.key: before}, [after], 10.0)
    return flashes


def test_a_changed_cell_in_a_flashing_column_is_recorded() -> None:
    assert noted(flash_row("Pending"), flash_row("Running")).of("a") == (1,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (flash_row("Running"), flash_row("Running", age="2m")),
        (flash_row("Running 59m"), flash_row("Running 1h00m")),
        (flash_row("Running"), flash_row("Failed", key="new")),
    ],
)
def test_changed_ages_and_new_rows_do_not_flash(before: Row, after: Row) -> None:
    flashes = noted(before, after)
    assert flashes.of(after.key) == ()
    assert flashes.next_end_s is None


def test_flashes_of_nearby_changes_end_together() -> None:
    flashes = noted(flash_row("Pending"), flash_row("Running"))
    flashes.record(FLASH_COLUMNS, {"b": flash_row("Pending", key="b")}, [flash_row("Failed", key="b")], 9.6)
    end_s = flashes.next_end_s
    assert end_s is not None
    assert 10.0 + FLASH_S <= end_s <= 10.0 + FLASH_S + ROUND_S
    flashes.end(end_s - 0.01)
    assert flashes.of("a") == flashes.of("b") == (1,)
    flashes.end(end_s)
    assert flashes.of("a") == flashes.of("b") == ()
    assert flashes.next_end_s is None
