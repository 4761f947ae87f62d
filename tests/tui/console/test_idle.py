"""The console is idle once nothing is queued, drawn or running."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.scripted.server import Held, ScriptedCluster, page
from tests.support.playground import EVENTS, console_on, some_objects
from tui.app import Console


async def test_a_view_whose_list_has_not_arrived_is_not_idle(tmp_path: Path) -> None:
    held = Held(page([]))

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.forget(EVENTS)
        cluster.say(EVENTS, held)

    async with console_on(tmp_path, **some_objects(), prepare=prepare) as play:
        await play.press("colon", *"events", "enter")
        await play.cluster.until_asked(EVENTS, 1)
        await play.pilot.pause()
        assert not play.console.is_idle
        held.let_go()
        await play.until_idle()
        assert "No events" in play.text


async def test_the_panes_of_home_are_not_idle_until_they_show_the_row_of_the_cursor(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects(), size=(160, 40)) as play:
        await play.until_idle()
        await play.press("j")
        # The panes wait until the cursor rests.
        assert not play.console.is_idle
        await play.until_idle()
        assert " 3 waits " in play.text


@pytest.mark.parametrize(("group", "is_idle"), [("copy", False), ("follow", True)])
async def test_workers_count_unless_they_follow_something(tmp_path: Path, group: str, is_idle: bool) -> None:
    over = asyncio.Event()

    async def work(_: Console) -> None:
        await over.wait()

    async with console_on(tmp_path, **some_objects()) as play:
        await play.until_idle()
        play.console.begin(work, group=group)
        await play.pilot.pause()
        assert play.console.is_idle is is_idle
        over.set()
        await play.until_idle()


async def test_a_queued_key_and_a_changed_layout_count(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.until_idle()
        with play.console.key_queue.held():
            assert not play.console.is_idle
        assert play.console.is_idle
        play.console.screen.refresh(layout=True)
        assert not play.console.is_idle
        await play.until_idle()
