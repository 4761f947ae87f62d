"""The chart as a widget: what its keys do, and that it draws no more than it must."""

from __future__ import annotations

import math
from datetime import UTC

from textual.app import ComposeResult

import themes
from tests.support.screen_text import resize
from tests.support.themed_app import ThemedApp
from tui.runs.series import Series
from tui.widgets.curve_chart import CurveChart, PlotCurve, PlotOptions


def falling(amount: int = 500) -> Series:
    series = Series()
    series.append((step, 1_790_000_000.0 + step, 2 * math.exp(-step / 200) + 0.3) for step in range(amount))
    return series


class ChartApp(ThemedApp[None]):
    def __init__(self, *curves: PlotCurve, view: PlotOptions | None = None) -> None:
        super().__init__()
        self.curves = curves
        self.first_view = view

    def compose(self) -> ComposeResult:
        yield CurveChart("train/loss", self.curves, view=self.first_view)

    def on_mount(self) -> None:
        self.chart.focus()

    @property
    def chart(self) -> CurveChart:
        return self.query_one(CurveChart)


def lines(app: ChartApp) -> list[str]:
    return [app.chart.render_line(y).text for y in range(app.chart.size.height)]


async def test_a_chart_fills_its_space_in_every_theme() -> None:
    curves = [PlotCurve(f"job-{index}", falling()) for index in range(7)]
    app = ChartApp(*curves, view=PlotOptions(smoothing=0.6, cursor=3))
    async with app.run_test(size=(120, 30)) as pilot:
        for theme in (*themes.load(), "textual-light", "nord", "ansi-dark"):
            app.theme = theme
            await pilot.pause()
            assert "job-6" in lines(app)[2]
    app = ChartApp(PlotCurve("bert", falling()))
    async with app.run_test() as pilot:
        for size in ((80, 24), (200, 60), (10, 4), (1, 1)):
            await resize(pilot, *size)
            await pilot.pause()
            assert all(len(line) == size[0] for line in lines(app))
            if size[0] >= 80:
                assert lines(app)[0].startswith("train/loss  0.465")
                assert "└0" in lines(app)[-1]


async def test_keys_move_the_cursor_and_change_the_view() -> None:
    app = ChartApp(PlotCurve("bert", falling()), view=PlotOptions(zone=UTC))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("l")
        assert app.chart.view.cursor == 0
        assert "step 0" in lines(app)[0]
        assert "train/loss  2.3" in lines(app)[0]
        await pilot.press("L", "l", "h", "H", "h", "h")
        assert app.chart.view.cursor == 0
        await pilot.press("0", "h")
        assert "step 499" in lines(app)[0]
        await pilot.press("0")
        assert app.chart.view.cursor is None

        await pilot.press("plus", "plus")
        assert "smooth 0.6" in lines(app)[0]
        await pilot.press("minus", "y")
        assert lines(app)[0].rstrip().endswith("smooth 0.3  log")
        await pilot.press("x")
        assert "6m" in lines(app)[-1]
        await pilot.press("x")
        assert "14:16" in lines(app)[-1]
        await pilot.press("x", *["minus"] * 3, "y")
        assert app.chart.view == PlotOptions(zone=UTC)

        await pilot.press("h", "H", "H", "H")
        before = lines(app)[0].split("step ")[1].split()[0]
        await resize(pilot, 160, 40)
        await pilot.pause()
        after = lines(app)[0].split("step ")[1].split()[0]
        assert abs(int(after) - int(before)) < 10


async def test_curves_are_replaced_and_grow_and_each_picture_is_drawn_once() -> None:
    app = ChartApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert any("No points yet" in line for line in lines(app))
        app.chart.set_curves("eval/loss", [], empty="No event files in /logs")
        await pilot.pause()
        assert any("No event files in /logs" in line for line in lines(app))
        app.chart.set_curves(
            "eval/loss", [PlotCurve("a\x1b[31m", falling()), PlotCurve("b\u202e", falling())]
        )
        await pilot.pause()
        assert "b<U+202E>" in lines(app)[1]
        assert "\x1b" not in "".join(lines(app))

        series = falling()
        app.chart.set_curves("train/loss", [PlotCurve("bert", series)])
        await pilot.pause()
        first = app.chart._picture()
        lines(app)
        assert app.chart._picture() is first
        series.append([(500, 1_790_000_500.0, math.nan)])
        app.chart.show_new_points()
        await pilot.pause()
        assert lines(app)[0].startswith("train/loss  nan")
        assert "✕" in lines(app)[-1]
