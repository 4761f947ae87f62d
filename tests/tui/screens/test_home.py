"""Home: three panes by the size of the terminal, which of them has the keys, and that they come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widget import AwaitMount

from k8s.snapshot import ClusterSnapshot
from tests.scripted.server import WAIT_S
from tests.support.hosted_view import hosted
from tests.support.idle import until
from tests.support.objects import node
from tests.support.playground import Playground, console_on, is_settled
from tests.tui.keys.world import titled
from tests.tui.screens.home_lab import lab_of, pane, says, shows_rank_0
from tests.tui.screens.test_jobs import picture
from tui.files.stored_choices import LAYOUTS_FILE
from tui.screens.base.view import View
from tui.screens.lists.home_panes import HomeLayout, layout_for
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.screens.lists.users import UsersView
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.log.view import LogView
from tui.widgets.table.table import Table


@pytest.mark.parametrize(
    ("size", "layout"),
    [
        ((60, 15), HomeLayout.LIST),
        ((79, 40), HomeLayout.LIST),
        ((80, 19), HomeLayout.LIST),
        ((80, 24), HomeLayout.LIST_NODES),
        ((120, 31), HomeLayout.LIST_NODES),
        ((120, 40), HomeLayout.ALL),
        ((160, 24), HomeLayout.ALL),
        ((200, 60), HomeLayout.ALL),
    ],
)
def test_the_panes_go_by_the_size_of_the_terminal(size: tuple[int, int], layout: HomeLayout) -> None:
    assert layout_for(*size, "") is layout
    assert layout_for(*size, "no layout of ours") is layout


async def test_the_job_stands_below_the_list_or_beside_it_and_the_strip_above() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        strip, job_pane = app.screen.query_one(NodeBar), app.screen.query_one(JobPane)
        table = app.screen.query_one(Table)
        assert strip.region.bottom <= table.region.y and strip.region.height <= 40 // 3
        assert job_pane.region.y >= table.region.bottom and job_pane.region.width == 120
        await pilot.resize_terminal(160, 45)
        await until(pilot, lambda: job_pane.region.x >= table.region.right)
        assert job_pane.region.bottom == table.region.bottom
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not job_pane.display and strip.region.height == 2)
        await pilot.resize_terminal(60, 15)
        await until(pilot, lambda: not strip.display and table.region.y == 2)


async def test_what_the_panes_put_off_is_not_shown_while_they_are_closed() -> None:
    async with hosted(JobsView(), picture()) as (app, _):
        view, snapshot = app.screen, picture()
        assert isinstance(view, JobsView)

        async def until_the_table_is_gone() -> None:
            async with asyncio.timeout(WAIT_S):
                while view.query(Table):
                    await asyncio.sleep(0)

        view.query_one(NodeBar).call_later(until_the_table_is_gone)
        job = snapshot.jobs[0]
        view.panes.show_soon(job, snapshot)
        assert not is_settled(view.panes)
        app.exit()


async def test_z_goes_round_the_layouts_and_the_choice_is_kept_for_the_context(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    kept = tmp_path / "state" / LAYOUTS_FILE
    async with console_on(tmp_path, **objects) as play:
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        for layout in (HomeLayout.LIST, HomeLayout.LIST_NODES, HomeLayout.LIST_JOB, HomeLayout.ALL):
            await play.press("z")
            assert screen.panes.layout is layout
            assert screen.query_one(NodeBar).display is layout.has_nodes
            assert screen.query_one(JobPane).display is layout.has_job
            assert f"Layout: {layout}." in play.text
            assert json.loads(kept.read_text()) == {"lab": layout.value}
        await play.press("z", "z")
    async with console_on(tmp_path, **objects) as play:
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        await play.until(lambda: screen.panes.layout is HomeLayout.LIST_NODES)
        kept.write_text("{")
        await play.pilot.resize_terminal(60, 15)
        await play.press("z", "1")
        await play.until(lambda: "More panes need 80x20; this terminal has 60x15" in play.text)
        assert screen.panes.layout is HomeLayout.LIST


async def test_home_comes_back_as_it_was_left(tmp_path: Path) -> None:
    objects, _, _ = lab_of(30)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "G", "3", "enter")
        await play.until(titled_logs(play))
        await play.press("escape")
        await play.until(lambda: pane(play).holds_focus and "▸ job-029" in play.text)


def titled_logs(play: Playground) -> Callable[[], bool]:
    return titled(play, "Jobs › job-029 › logs")


async def test_the_line_below_tells_the_keys_of_the_pane_that_has_them(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:

        def last_line() -> str:
            return play.text.splitlines()[-1]

        assert last_line().startswith(" enter job  l logs") and "z layout  b clone" in last_line()
        await play.press("1")
        await play.until(lambda: last_line().startswith(" enter its jobs  esc list"))
        assert "l logs" not in last_line()
        await play.press("3")
        await play.until(lambda: last_line().startswith(" enter logs in full  . next rank"))
        assert "n match" not in last_line() and "esc list" in last_line()
        await play.press("escape")
        await play.until(lambda: last_line().startswith(" enter job  l logs"))
        await play.pilot.resize_terminal(60, 15)
        await play.until(lambda: "z layout" not in last_line())


async def test_a_cursor_that_moves_on_while_the_log_is_mounted_leaves_one_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, _, _ = lab_of(1)
    async with console_on(tmp_path, **objects, size=(80, 24)) as play:
        job_pane, is_mounting = pane(play), asyncio.Event()
        mount = job_pane.mount

        async def endless(mounting: AwaitMount) -> None:
            await mounting
            is_mounting.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(job_pane, "mount", lambda *widgets: endless(mount(*widgets)))
            await play.pilot.resize_terminal(120, 40)
            await play.until(is_mounting.is_set)
            job_pane.leave()
        job_pane.consider()
        await play.until(lambda: shows_rank_0(play) and "step 99/99 loss 0.091" in says(play))
        assert len(job_pane.query(LogView)) == 1


async def test_a_list_without_jobs_leaves_no_empty_pane(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a", 8)]) as play:
        await play.until(lambda: "The log and loss of the selected job appear here" in says(play))
        assert "│" not in says(play)


@pytest.mark.parametrize("make", [JobsView, NodesView, UsersView])
async def test_what_was_not_read_is_not_counted_as_none(make: Callable[[], View]) -> None:
    states: dict[str, dict[str, Any]] = {
        "reading…": {"is_synced": False},
        "login expired": {"is_synced": False, "stale": "Log in again.", "trouble": "login expired"},
        "no cluster": {"is_synced": True, "stale": "No kubeconfig.", "context": ""},
    }
    async with hosted(make(), ClusterSnapshot()) as (app, pilot):
        for words, state in states.items():
            app.view.snapshot = picture(nodes=(), jobs=(), **state)
            await pilot.pause()
            if make is JobsView:
                await until(pilot, lambda words=words: f"nodes ? · {words}" in app.text)  # type: ignore[misc]
            assert "nothing can run" not in app.text
            assert "(0)" not in app.text and "Σ" not in app.text
