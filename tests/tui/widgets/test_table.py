"""The table: what it shows, what stays while rows change, the messages it posts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import ComposeResult

import themes
from tests.support.screen_text import resize
from tests.support.themed_app import ThemedApp
from tui.tables.column import Cell, Column, Row
from tui.widgets.table.columns import fit_columns
from tui.widgets.table.table import Table

THEMES = (*themes.load(), "textual-light", "nord", "ansi-dark")
COLUMNS = (
    Column("name", "NAME", min_width=12, elide="middle"),
    Column("kind", "KIND", priority=2),
    Column("gpus", "GPUS", "right"),
    Column("node", "NODE", priority=1),
)


def row(name: str, gpus: str = "8/8", detail: str | None = None) -> Row:
    return Row(name, (Cell(name), Cell("PyTorchJob", "quiet"), Cell(gpus), Cell("a100-1")), detail)


def rows(amount: int, *, start: int = 0) -> list[Row]:
    return [row(f"job-{index}") for index in range(start, start + amount)]


class TableApp(ThemedApp[None]):
    def __init__(self, given_rows: Sequence[Row] = ()) -> None:
        super().__init__()
        self.given_rows = given_rows
        self.selected: list[str] = []
        self.highlighted: list[str | None] = []

    def compose(self) -> ComposeResult:
        yield Table(COLUMNS, empty="No jobs in this namespace")

    def on_mount(self) -> None:
        self.table.focus()
        self.table.set_rows(self.given_rows)

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    @property
    def lines(self) -> list[str]:
        return [self.table.render_line(y).text for y in range(self.table.size.height)]

    def on_table_row_selected(self, message: Table.RowSelected) -> None:
        self.selected.append(message.key)

    def on_table_row_highlighted(self, message: Table.RowHighlighted) -> None:
        self.highlighted.append(message.key)


@pytest.mark.slow
async def test_every_theme_and_size_shows_header_and_rows_with_numbers_on_the_right() -> None:
    app = TableApp([row("bert", "8/8", detail="└ waits: 8 GPUs"), row("vit", "16/16")])
    async with app.run_test(size=(200, 60)) as pilot:
        for theme, size in product(THEMES, ((80, 24), (200, 60))):
            app.theme = theme
            await resize(pilot, *size)
            await pilot.pause()
            header, first, detail, second = app.lines[:4]
            assert header.split() == ["NAME", "KIND", "GPUS", "NODE"]
            assert first.startswith(" ▸ bert")
            for focused, look in ((None, "table--cursor"), (app.table, "table--cursor-focused")):
                app.screen.set_focus(focused)
                await pilot.pause()
                style = app.table.render_line(1)._segments[0].style
                assert style and style.bgcolor == app.table.look(look).bgcolor
            assert detail.strip() == "└ waits: 8 GPUs"
            assert second.startswith("   vit")
            assert first.index("8/8") + 3 == second.index("16/16") + 5 == header.index("GPUS") + 4


async def test_the_keys_of_vi_and_k9s_move_the_cursor_and_enter_selects() -> None:
    app = TableApp(rows(100))
    async with app.run_test(size=(80, 24)) as pilot:
        for key, expected in (
            ("j", "job-1"),
            ("down", "job-2"),
            ("k", "job-1"),
            ("G", "job-99"),
            ("g", "job-0"),
            ("up", "job-0"),
            ("ctrl+f", "job-22"),
            ("pagedown", "job-44"),
            ("ctrl+b", "job-22"),
            ("pageup", "job-0"),
            ("end", "job-99"),
            ("home", "job-0"),
        ):
            await pilot.press(key)
            assert app.table.cursor_key == expected
            assert any(line.startswith(f" ▸ {expected} ") for line in app.lines)
        await pilot.press("j", "enter")
        await pilot.pause()
        assert app.selected == ["job-1"]
        assert app.highlighted[-1] == "job-1"

        await pilot.click(Table, offset=(6, 3))
        assert app.table.cursor_key == "job-2"
        await pilot.click(Table, offset=(6, 4), times=2)
        await pilot.pause()
        assert app.selected[1:] == ["job-3"]

        app.table.set_rows([])
        await pilot.press("j", "k", "G", "g", "ctrl+f", "space", "V", "U", "enter")
        await pilot.pause()
        assert any("No jobs in this namespace" in line for line in app.lines)
        assert app.table.cursor_key is None
        assert app.selected[2:] == []


async def test_the_cursor_and_the_scroll_position_survive_changes_of_the_rows() -> None:
    app = TableApp(rows(5))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("j", "j")
        app.table.set_rows([row("new-a"), row("new-b"), *rows(5)])
        await pilot.pause()
        assert app.table.cursor_key == "job-2"
        assert app.lines[5].startswith(" ▸ job-2")

        await pilot.press("G")
        app.table.set_rows(rows(4))
        await pilot.pause()
        assert app.table.cursor_key == "job-3", "the neighbour of the one that is gone"
        assert app.highlighted[-1] == "job-3"

        app.table.set_rows(rows(500))
        await pilot.press("ctrl+f", "ctrl+f", "ctrl+f")
        await pilot.pause()
        top = app.table.top
        app.table.set_rows([*rows(500), row("late")])
        await pilot.pause()
        assert app.table.top == top > 0

        await pilot.press("G")
        app.table.set_rows(rows(3))
        await pilot.pause()
        await pilot.pause()
        assert app.lines[3].startswith(" ▸ job-2")
        assert app.lines[1].startswith("   job-0")


async def test_marks_survive_a_filter_but_not_their_rows() -> None:
    app = TableApp(rows(30))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space", "j", "j", "V")
        assert app.table.marks == ("job-0", "job-1", "job-2")
        app.table.set_filter(lambda shown: shown.key.endswith("2"))
        await pilot.pause()
        assert app.table.row_count == 3
        assert app.table.marks == ("job-0", "job-1", "job-2")
        assert app.table.hidden_marks == 2
        assert app.lines[1].startswith("●▸ job-2")
        app.table.set_filter(lambda shown: False)
        await pilot.pause()
        assert any("Nothing matches; 30 hidden" in line for line in app.lines)
        await pilot.press("U")
        assert not app.table.marks

        app.table.set_filter(None)
        app.table.set_rows(rows(3))
        await pilot.press("g", "space", "j", "space")
        assert list(app.table.marks) == ["job-0", "job-1"]
        app.table.set_rows(rows(2, start=1))
        assert list(app.table.marks) == ["job-1"]
        app.table.set_rows(rows(3))
        assert list(app.table.marks) == ["job-1"], "a new row of the same key is not marked"
        app.table.set_rows(rows(1))
        assert not app.table.marks


@pytest.mark.parametrize(("typed", "shown"), [("node:a100", 3), ("!node:a100", 0), ("kind:pytorch", 0)])
async def test_a_filter_uses_the_columns_that_there_are(typed: str, shown: int) -> None:
    app = TableApp(rows(3))
    async with app.run_test():
        app.table.filter_by(typed)
        without_kind = [row._replace(cells=(row.cells[0], *row.cells[2:])) for row in rows(3)]
        app.table.set_columns((COLUMNS[0], *COLUMNS[2:]), without_kind)
        assert app.table.row_count == shown


async def test_narrow_tables_drop_columns_by_priority_and_count_them() -> None:
    app = TableApp([row("bert-large-finetune-worker-12")])
    async with app.run_test(size=(36, 10)) as pilot:
        await pilot.pause()
        header, first = app.lines[:2]
        assert header.split() == ["NAME", "GPUS", "NODE", "+1>"]
        assert "…-worker-12 " in first
        await resize(pilot, 100, 10)
        await pilot.pause()
        assert app.lines[0].split() == ["NAME", "KIND", "GPUS", "NODE"]
        assert "bert-large-finetune-worker-12" in app.lines[1]

        app.table.set_rows([row("bert", detail="└ waits")])
        for width in (1, 2, 5, 10):
            await resize(pilot, width, 3)
            await pilot.press("j", "ctrl+f")
            assert all(len(line) == width for line in app.lines)

        columns = (Column("kind", "KIND", elide="runs", min_width=8), Column("wide", "WIDE"))
        kinds = [("PyTorch", "Job"), ("MPI", "Job"), ("RayCluster", ""), ("Gang", "Of", "Pods")]
        shown = [
            Row(str(place), (Cell.of(*((each, "") for each in kind)), Cell("w" * 60)))
            for place, kind in enumerate(kinds)
        ]
        await resize(pilot, 75, 24)
        app.table.set_columns(columns, shown)
        await pilot.pause()
        # A cell of runs drops the last ones whole.
        assert [line.split()[-2] for line in app.lines[1:5]] == ["PyTorch", "MPIJob", "RayClus…", "GangOf"]


async def test_a_row_and_its_detail_are_selected_as_one_and_both_visible() -> None:
    app = TableApp([row("a", detail="└ waits: 3 nodes cordoned"), row("b"), row("c")])
    async with app.run_test(size=(80, 10)) as pilot:
        await pilot.press("j")
        assert app.table.cursor_key == "b"
        assert app.lines[2].strip() == "└ waits: 3 nodes cordoned"
        assert app.lines[3].startswith(" ▸ b")
        app.table.set_rows([row(f"job-{index}", detail="└ waits") for index in range(50)])
        await pilot.press("g", *["j"] * 7)
        await pilot.pause()
        at = next(y for y, line in enumerate(app.lines) if "▸" in line)
        assert "└ waits" in app.lines[at + 1]


async def test_a_long_detail_takes_two_lines_of_which_the_second_is_cut() -> None:
    app = TableApp([row("a"), row("b", detail="└ " + "waits for its claim " * 9), row("c")])
    async with app.run_test(size=(80, 8)) as pilot:
        await pilot.press("j")
        parts = [line.strip(" ┃") for line in app.lines[3:5]]
        assert (
            parts[0].endswith("waits for") and parts[1].startswith("its claim waits") and parts[1][-1] == "…"
        )
        assert app.lines[5].startswith("   c") and not app.table.shows_detail("b")
        await pilot.press("j", "k")
        assert app.table.cursor_key == "b", "its lines are one row"
        await resize(pilot, 200, 8)
        await pilot.pause()
        assert app.lines[4].startswith("   c") and app.table.shows_detail("b")
        await resize(pilot, 80, 4)  # of four lines, three are the row of the cursor
        await pilot.pause()
        assert [line[1:4] for line in app.lines[1:]] == ["▸ b", "   ", "   "]


async def test_markup_and_escape_sequences_are_plain_text() -> None:
    nasty = "a[/b]\x1b[31mred\x9b1m\u202e\nend"
    app = TableApp([Row("x", (Cell(nasty), Cell.of((nasty, "failed")), Cell("1"), Cell("")), nasty)])
    async with app.run_test(size=(200, 10)) as pilot:
        await pilot.pause()
        text = "".join(app.lines)
        assert "a[/b]red<U+202E>␊end" in text
        assert not set(text) & {"\x1b", "\x9b", "\u202e", "\n"}


async def test_ten_thousand_rows_are_set_and_moved_through() -> None:
    many = rows(10_000)
    app = TableApp(many)
    async with app.run_test(size=(200, 60)) as pilot:
        app.table.set_rows([*many[1:], row("late")])
        await pilot.press("G")
        assert app.table.cursor_key == "late"


def test_a_narrow_column_comes_back_where_a_wide_one_was_not_enough() -> None:
    columns = [Column("name", "N"), Column("few", "F", priority=2), Column("much", "M", priority=1)]
    fit = fit_columns(columns, [20, 4, 30], 45)
    assert fit.widths == ((0, 20), (1, 4)) and fit.hidden == 1


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4), st.booleans()), min_size=1, max_size=12),
    st.integers(-5, 300),
)
def test_columns_fit_the_width_whenever_the_required_ones_fit(
    natural: list[tuple[int, int, bool]], width: int
) -> None:
    columns = [
        Column(str(index), "", priority=priority, elide="end" if elides else "")
        for index, (_, priority, elides) in enumerate(natural)
    ]
    fit = fit_columns(columns, [cells for cells, _, _ in natural], width)
    assert len(fit.widths) + fit.hidden == len(columns)
    shown = {index for index, _ in fit.widths}
    assert {index for index, column in enumerate(columns) if column.priority == 0} <= shown
    assert all(0 <= cells <= natural[index][0] for index, cells in fit.widths)
    if any(columns[index].priority for index in shown):
        assert sum(cells for _, cells in fit.widths) + 2 * (len(shown) - 1) <= width
