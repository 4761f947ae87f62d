"""Safety of widgets for any words: no terminal control is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import ComposeResult

from k8s.logs import Item, LogLine, Mark, Marker, Target
from tests.support.hosted_view import FramedApp
from tests.tui.console.hostile_words import HOSTILE, NASTY, assert_all_harmless
from tui.jobs.new_job.preflight import PreflightLine
from tui.runs.series import Series
from tui.tables.column import Cell, Column, Row
from tui.widgets.curve_chart import CurveChart, PlotCurve
from tui.widgets.form.job_fields import Notice, PreflightView
from tui.widgets.form.manifest_pane import YamlView
from tui.widgets.log.view import LogView
from tui.widgets.table.table import Table


class Shelf(FramedApp):
    """The widgets that show words from outside."""

    CSS = "Table, LogView, YamlView, CurveChart { height: 6; width: 40; }"

    def compose(self) -> ComposeResult:
        yield Table(COLUMNS)
        yield Notice()
        yield PreflightView()
        yield LogView(name_of=lambda line: line.source.pod)
        yield YamlView()
        yield CurveChart("")

    def say(self, text: str) -> None:
        table = self.query_one(Table)
        table.empty = text
        columns = [Column("name", text, elide="middle", min_width=5), Column("status", text, elide="end")]
        rows = [
            Row(f"{text}{number}", (Cell(text), Cell.of((text, "failed"), (text, ""))), text)
            for number in (0, 1)
        ]
        table.set_columns(columns, rows)
        self.query_one(Notice).show(text)
        self.query_one(PreflightView).show([PreflightLine("error", text)])
        source = Target("default", text, instance=text)
        raw = text.encode("utf-8", "surrogatepass")
        items: list[Item] = [LogLine(1, raw, source, 0, 0), Marker(Mark.NOTE, text, source, 2, 1)]
        self.query_one(LogView).append(items)
        self.query_one(YamlView).show(f"a: {text}")
        self.query_one(CurveChart).set_curves(
            text, [PlotCurve(text, one_point()), PlotCurve(text, one_point())], empty=text
        )


COLUMNS = (Column("name", "NAME"), Column("status", "STATUS"))


def one_point() -> Series:
    series = Series()
    series.append([(1, 1.0, 0.5)])
    return series


async def show_all(texts: Sequence[str]) -> None:
    app = Shelf()
    async with app.run_test(size=(60, 40)) as pilot:
        for text in texts:
            app.say(text)
            await pilot.pause()
            assert_all_harmless(app)


@settings(max_examples=5, derandomize=True)
@given(st.lists(NASTY, min_size=5, max_size=10))
def test_widgets_render_any_text_harmlessly(texts: list[str]) -> None:
    asyncio.run(show_all(texts))


@pytest.mark.slow
async def test_widgets_render_known_hostile_text_harmlessly() -> None:
    await show_all([*HOSTILE.values(), HOSTILE["long"] * 10, "\ud83d half", "\n" * 50, "e" + "\u0301" * 1000])
