"""The visible rows and scroll thumb of a widget, and the status line above every view."""

from __future__ import annotations

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from k8s.logs import LogLine, Target
from k8s.snapshot import ClusterSnapshot, Missing
from tests.support.objects import joined, node, pod_of, pytorch_job
from tui.tables.column import Cell, Column, Row
from tui.widgets.log.lines import LogViewport
from tui.widgets.log.paint import plain_text
from tui.widgets.status_line import StatusLine
from tui.widgets.table.row_set import RowSet
from tui.widgets.table.visible_lines import TableViewport
from tui.widgets.viewport import Viewport

SOURCE = Target("lab", "bert-worker-0")


def viewport(height: int, row_count: int, top: float = 0) -> Viewport:
    view = Viewport()
    view.resize(height, row_count)
    view.scroll_to(top)
    return view


def log_lines(start: int, end: int) -> list[LogLine]:
    return [LogLine(number, b"line %d" % number, SOURCE, number, 0) for number in range(start, end)]


def row(key: str, detail: str | None = None) -> Row:
    return Row(key, (Cell(key),), detail)


def texts(view: LogViewport) -> list[str]:
    return [plain_text(item) for item in view.items]


@given(height=st.integers(0, 60), row_count=st.integers(0, 5000), row=st.integers(-10, 6000))
def test_the_scroll_thumb_stays_inside_and_touches_an_end_only_at_that_end(
    height: int, row_count: int, row: int
) -> None:
    view = viewport(height, row_count, row)
    if row_count <= height:
        assert not view.thumb and view.top == 0
    elif height:
        assert 0 <= view.thumb.start < view.thumb.stop <= height
        assert view.top > 0 or view.thumb.start == 0
        assert not view.is_at_end or view.thumb.stop == height


def test_the_scroll_thumb_length_is_the_share_of_visible_rows() -> None:
    assert viewport(20, 20).thumb == range(0)
    assert viewport(20, 40).thumb == range(10)
    assert viewport(20, 40, math.inf).thumb == range(10, 20)
    assert len(viewport(20, 100_000, 50_000).thumb) == 1


def test_revealing_a_row_scrolls_no_further_than_needed() -> None:
    view = viewport(10, 100, 50)
    view.reveal(55, 56)
    assert view.top == 50
    view.reveal(60, 61)
    assert view.top == 52
    view.reveal(30, 31)
    assert view.top == 30
    view.resize(10, 12)
    assert view.rows == range(2, 12)


def test_a_followed_log_shows_its_end_and_a_scrolled_log_keeps_its_position() -> None:
    view = LogViewport(max_items=1000)
    view.resize(3)
    assert view.add(log_lines(0, 10))
    assert texts(view) == ["line 7", "line 8", "line 9"]
    view.scroll_to(4, is_up=True)
    assert not view.add(log_lines(10, 20))
    assert (texts(view), view.new_lines) == (["line 4", "line 5", "line 6"], 10)
    with view.keep_position():
        view.lines.set_filter("line .?[5-9]$", hides=True)
    assert texts(view)[0] == "line 5"
    view.scroll_to(math.inf, is_up=False)
    assert view.follows and view.new_lines == 0 and texts(view)[-1] == "line 19"


def test_the_table_cursor_and_the_rows_above_it_stay_while_rows_change() -> None:
    rows = RowSet([Column("name", "NAME")])
    view = TableViewport(rows)
    view.resize(4)
    with view.keep_position():
        rows.replace([row(f"job-{number}", "waits") for number in range(10)])
    view.move_to(5)
    assert (view.cursor, view.top, view.visible_rows) == (5, 8, range(4, 6))
    kept = [each for each in rows.rows if each.key != "job-0"]
    with view.keep_position():
        rows.replace([row("job-new"), row("job-newer"), *kept])
    assert view.cursor_row == row("job-5", "waits")
    assert [rows.shown[place].key for place in view.visible_rows] == ["job-4", "job-5"]
    with view.keep_position():
        rows.replace([])
    assert view.cursor_row is None and not view.visible_rows and not view.thumb


BERT = pytorch_job("bert")
NODES = Missing("list", "nodes", why='The cluster says: user "li" cannot list nodes')
PODS = Missing("list", "pods", shown="vision", why="The cluster says: no")


ENDS: list[tuple[dict[str, object], str]] = [
    ({}, "live"),
    ({"is_synced": False}, "reading…"),
    ({"stale": "reset", "trouble": "away", "stale_since_s": -725.0}, "away, 12m old"),
    ({"stale": "over", "trouble": "login expired", "stale_since_s": -725.0}, "login expired, 12m old"),
    ({"stale": "500", "trouble": "failing", "stale_since_s": -725.0}, "failing, 12m old"),
    ({"stale": "no kubeconfig"}, "away"),
    ({"throttled_until_s": -5.0}, "live"),
    ({"problems": {"nodes": NODES}}, "live, 1 not readable"),
    ({"problems": {"pods": PODS}, "namespace": "vision"}, "live"),
    ({"problems": {"pods": PODS}}, "live, only namespace vision"),
    ({"problems": {"pods": PODS, "nodes": NODES}}, "live, 1 not readable"),
]


class Lined(App[None]):
    def compose(self) -> ComposeResult:
        yield StatusLine()


async def test_the_status_line_shows_the_freshness_and_completeness_of_the_data() -> None:
    rows, jobs = joined([node("n1")], [pod_of(BERT, "master-0", on="n1", gpus=5)], [BERT])
    app = Lined()
    async with app.run_test(size=(100, 3)) as pilot:

        async def line_of(**fields: object) -> str:
            line = app.query_one(StatusLine)
            shown = {"nodes": tuple(rows.values()), "jobs": tuple(jobs.values()), "is_synced": True, **fields}
            for name in ("stale_since_s", "throttled_until_s"):
                if isinstance(ago_s := shown.get(name), float):
                    shown[name] = asyncio.get_running_loop().time() + ago_s
            line.snapshot = ClusterSnapshot(context="lab", user="li", **shown)  # type: ignore[arg-type]
            await pilot.pause()
            return line.render().plain

        for fields, end in ENDS:
            assert (await line_of(**fields)).rstrip().endswith(f" {end}"), fields
        line = await line_of(stale="busy", trouble="throttled", throttled_until_s=3599.5)
        assert "throttled by the server for 3" in line
        for problems, gpus in (
            ({}, "5/8 ─"),
            ({"nodes": NODES}, "5/? partial"),
            ({"pods": PODS}, "5/8 partial"),
        ):
            assert gpus in await line_of(problems=problems)
