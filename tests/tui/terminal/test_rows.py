"""Partial updates of the screen: their rows are those that Textual renders of the whole."""

from __future__ import annotations

import pytest
from textual._compositor import Compositor
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Region
from textual.widgets import Input, Label, Static

from tui.terminal.driver import PacedApp, RowsCompositor


class Panes(PacedApp[None]):
    CSS = """
    #over { layer: above; offset: 5 3; width: 12; height: 4; background: red; border: solid white; }
    Horizontal { height: 9; layers: below above; } VerticalScroll { width: 30; border: round green; }
    Vertical { padding: 1 2; } Input { height: 3; }
    """

    def compose(self) -> ComposeResult:
        yield Label("title")
        with Horizontal():
            with VerticalScroll():
                yield Static("\n".join(f"line {number}" for number in range(40)))
            with Vertical():
                yield Label("one\ntwo\nthree")
            yield Static("over", id="over")
        yield Input("typed")


@pytest.mark.parametrize(
    "crop", [Region(0, 0, 60, 20), Region(0, 3, 60, 2), Region(7, 4, 3, 3), Region(31, 1, 5, 8)], ids=str
)
async def test_rows_of_a_change_are_those_of_the_whole_screen(crop: Region) -> None:
    app = Panes()
    async with app.run_test(size=(60, 20)) as pilot:
        app.query_one(VerticalScroll).scroll_to(y=7, animate=False)
        await pilot.pause()
        ours = app.screen._compositor
        assert isinstance(ours, RowsCompositor)
        theirs = Compositor()
        theirs.reflow(app.screen, app.size)
        rows = crop.line_range.__contains__
        assert len([*ours._get_renders(crop)]) <= len([*theirs._get_renders(crop)])
        wanted, found = (each._render_chops(crop, rows) for each in (theirs, ours))
        for y in crop.line_range:
            for x, strip in wanted[y].items():
                assert (
                    strip is None
                    or not crop.overlaps(Region(x, y, strip.cell_length, 1))
                    or found[y][x] == strip
                )
