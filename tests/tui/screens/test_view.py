"""Features of every view: the way back, prompt, palette, the user's own keys, a least size."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Label

from tests.support.objects import pytorch_job
from tests.support.playground import console_on, some_objects
from tests.support.screen_text import resize
from tests.tui.settings.keys.world import typed
from tui import screens
from tui.app import Console
from tui.screens import key_table
from tui.screens.base.feed_view import DescribedList
from tui.screens.base.list_view import ListView
from tui.screens.base.request import Route
from tui.screens.base.view import TooSmall
from tui.screens.job.job import JobView
from tui.screens.job.logs import LogsScreen
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.settings.keys.advice import REMOVED
from tui.tables.column import Cell, Column, Row
from tui.widgets.table.table import Table


@pytest.mark.slow
async def test_minus_toggles_between_the_last_two_views_without_growing_the_stack(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("minus")
        assert "No previous view yet" in play.text
        await play.press("enter", shows=JobView)
        for _ in range(3):
            await play.press("minus", shows=JobsView)
            await play.press("minus", shows=JobView)
        assert len(play.console.screen_stack) <= 3
        await play.press("colon", *"nodes", "enter", shows=NodesView)
        await play.press("minus", shows=JobView)


async def test_minus_returns_to_the_view_below_on_the_screen_stack(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("enter", shows=JobView)
        job_view, depth = play.console.screen, len(play.console.screen_stack)
        await play.press("y")
        await play.until(lambda: len(play.console.screen_stack) == depth + 1)
        await play.press("minus")
        await play.until(lambda: play.console.screen is job_view)
        assert len(play.console.screen_stack) == depth


class Drawn(ListView):
    """A list of jobs that writes down, for each time it draws, how many there are, and whether they flash."""

    COLUMNS = (Column("name", "NAME"),)

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[int, bool]] = []

    def render_rows(self, table: Table) -> None:
        table.set_rows([Row(job.uid, (Cell(job.ref.name),)) for job in self.snapshot.jobs])
        self.draws.append((table.row_count, table.flashes))


async def test_a_view_redraws_below_a_dialog_but_below_another_view_only_when_shown_again(
    tmp_path: Path,
) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        console, jobs = play.console, Drawn()
        assert isinstance(console, Console)
        console.views.switch(Route("drawn"), jobs)

        async def add_job(name: str) -> None:
            play.watches["jobs"].event("ADDED", pytorch_job(name))
            await play.until(lambda: name in {job.ref.name for job in console.snapshot.jobs})
            await play.pilot.pause()

        await play.until(lambda: jobs.draws)
        assert jobs.draws[0] == (2, False), "what is there from the start does not flash"
        await play.press("question_mark")
        assert console.screen is not jobs
        await add_job("below a question")
        assert jobs.draws[-1] == (3, True)
        await play.press("escape")
        before = len(jobs.draws)
        await play.press("colon", *"ctx", "enter")
        await play.until(lambda: not jobs.is_shown)
        for name in ("one", "two", "three"):
            await add_job(name)
        assert len(jobs.draws) == before
        await play.press("escape")
        await play.until(lambda: jobs.is_shown)
        assert jobs.draws[before:] == [(6, True)]


async def test_commands_in_one_packet_are_all_run(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        for key in (*typed("jobs"), *typed("nodes"), *typed("logs bert")):
            play.console.post_message(events.Key(key, " " if key == "space" else None))
        await play.until(lambda: isinstance(play.console.screen, LogsScreen))
        await play.press("escape", shows=NodesView)
        assert not play.console.screen.is_prompt_open  # type: ignore[attr-defined]
        assert len(play.console.screen_stack) == 2


async def test_enter_runs_the_typed_command_rather_than_the_suggestion(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("colon", *"nod", "enter", shows=JobsView)
        assert "Unknown command :nod. Did you mean :node?" in play.text


async def test_a_removed_key_or_command_names_its_replacement(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("ctrl+g", shows="ctrl+g is gone: tab and shift+tab")
        await play.press("colon", *"bundle", "enter", shows="Use gpuconsole info --json, and W, T and l")
        await play.press("tab", "z", shows="The list of nodes has no preview any more")
        pressed = {name for _, keys in key_table().sections for key in keys for name in key.keys.split(",")}
        assert not pressed & REMOVED.keys()


async def test_a_too_small_terminal_shows_a_message_and_restores_the_view_when_resized(
    tmp_path: Path,
) -> None:
    async with console_on(tmp_path, size=(80, 24), **some_objects()) as play:
        await play.press("j")
        await resize(play.pilot, 59, 14)
        await play.until(lambda: isinstance(play.console.screen, TooSmall))
        assert "59x14 is too small." in play.text
        await resize(play.pilot, 5, 2)
        await play.pilot.pause()
        await resize(play.pilot, 60, 15)
        await play.until(lambda: isinstance(play.console.screen, JobsView))
        assert "waits" in play.text
        assert play.table.cursor_key == play.table.shown_rows[1].key


@pytest.mark.parametrize("folder", ["config", pytest.param("c" * 120, marks=pytest.mark.slow)])
async def test_a_user_key_replaces_the_default_key_in_the_view_and_the_footer(
    tmp_path: Path, folder: str
) -> None:
    keys = tmp_path / folder
    keys.mkdir()
    (keys / "keys.yaml").write_text("jobs.next_view: f2\njobs.lgos: L\n")
    async with console_on(tmp_path, config_folder=keys, **some_objects()) as play:
        await play.until(lambda: "keys are not used" in play.text)
        assert "unknown key id 'jobs.lgos'" in " ".join(play.text.replace("│", " ").split())
        await play.press("escape")
        assert "f2 nodes" in play.text
        await play.press("tab", shows=JobsView)
        await play.press("f2", shows=NodesView)


async def test_permissions_are_not_requested_for_a_view_without_its_widgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        monkeypatch.setattr(JobsView, "is_current", True)
        half = JobsView()
        half.session = play.session
        half.on_view_permissions_needed(JobsView.PermissionsNeeded())
        half._add_child(Label(id="title"))  # its table is gone already
        half.on_view_permissions_needed(JobsView.PermissionsNeeded())


async def test_a_chapter_of_the_manual_is_a_view(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("colon", *"help topo", "enter")
        await play.until(lambda: "Manual: topology" in play.text and "GPU topology" in play.text)
        await play.press("escape", "colon", *"help nothing", "enter", shows="No topic 'nothing'")


def every_list(base: type[ListView] = ListView) -> Iterator[type[ListView]]:
    for each in base.__subclasses__():
        yield each
        yield from every_list(each)


def test_a_list_with_its_own_row_handler_prevents_the_default_handler() -> None:
    for module in pkgutil.walk_packages(screens.__path__, f"{screens.__name__}."):
        importlib.import_module(module.name)
    for each in every_list():
        # Textual calls the handlers of a class and of its bases.
        if opens := vars(each).get("on_table_row_selected"):
            assert ".prevent_default()" in inspect.getsource(opens), each
        else:
            assert each.ON_ENTER or each.__subclasses__() or each in (Drawn, DescribedList), each
