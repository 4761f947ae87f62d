"""The console is idle once nothing is queued, drawn or running; the garbage collector delays no key."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scripted.server import Held, ScriptedCluster, page
from tests.support.playground import EVENTS, console_on, some_objects
from tui.__main__ import GARBAGE
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


MOST = 30_000
"""New objects that one look may pass: some milliseconds."""


@contextmanager
def looks() -> Iterator[list[int]]:
    """Let cycles be looked for as the console does; yield how many new objects each look has passed."""
    passed: list[int] = []

    def count(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 0:
            passed.append(len(gc.get_objects(generation=0)))

    was = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*GARBAGE)
    gc.callbacks.append(count)
    try:
        yield passed
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*was)


def test_young_generation_garbage_collection_is_short_enough_for_keys() -> None:
    with looks() as passed:
        kept: list[list[list[int]]] = [[[number]] for number in range(20_000)]
        for round_number in range(3):  # as pods that change: new ones come where older ones go
            kept = [[[number + round_number]] for number, _ in enumerate(kept)]
    assert len(passed) > 5 and max(passed) < MOST


def test_full_garbage_collections_are_rare() -> None:
    new, young, old = GARBAGE
    assert new * young >= 1_000_000 and new * young * old >= 10_000_000
