"""A key of home acts on what has the focus: on the node, on the job, never on what nobody looks at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.hosted_view import hosted
from tests.support.idle import until
from tests.tui.console.test_console import Playground, console_on
from tests.tui.keys.world import at, changes, seen, titled, typed, world
from tests.tui.screens.home_lab import lab_of, pane
from tests.tui.screens.test_jobs import picture
from tui.keys import ACTIONS
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.node_strip import NodeStrip
from tui.widgets.key_bar import KeyBar
from tui.widgets.table.table import Table

_OF_JOBS = {
    on.keys.split(",")[-1]: action.name
    for action in ACTIONS
    if action.acts_on_job
    for on in action.on
    if on.view == "jobs" and on.keys not in ("enter,d", "l")
}
"""Keys of jobs that mean nothing else among the nodes, and what they ask for."""


def test_every_action_with_a_job_s_permission_or_a_job_as_its_argument_acts_on_a_job() -> None:
    of_jobs = {"get job", "patch job", "delete job", "get pods/log", "get pods/exec", "get pods/portforward"}
    for action in ACTIONS:
        if action.permission in of_jobs or action.argument == "job" or action.takes_many:
            assert action.acts_on_job, action.name
    assert len(_OF_JOBS) > 10


async def test_keys_of_jobs_do_nothing_while_a_node_has_the_focus_and_say_so() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("space", "1")
        await until(pilot, lambda: app.screen.query_one(NodeStrip).has_focus)
        for key in _OF_JOBS:
            await pilot.press(key)
            await until(pilot, lambda: "That key is for a job, and the cursor is on a node" in app.text)
            app.view.flash("")
            await until(pilot, lambda: "That key is for a job" not in app.text)
        assert app.requests == []
        assert app.view.current_job() is None and app.view.targets() == [] and not app.view.hidden_targets()
        await pilot.press("2", *_OF_JOBS)
        await until(pilot, lambda: [name for name, *_ in app.requests] == [*_OF_JOBS.values()])


@pytest.mark.parametrize(
    ("key", "action"), [("d", "node_gpus"), ("T", "gpu_links"), ("t", "gpu_schedule"), ("n", "new")]
)
async def test_keys_of_nodes_ask_for_the_node_under_the_cursor(key: str, action: str) -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("1", "l", "l", key)
        await until(pilot, lambda: app.requests == [(action, "a100-3", ())])
        assert app.view.copy_text() == "a100-3"


async def test_keys_of_one_node_say_so_where_the_cursor_is_on_many() -> None:
    async with hosted(JobsView(), picture(), (80, 24)) as (app, pilot):
        await pilot.press("1", "d")
        await until(pilot, lambda: "That key is for one node. These are several." in app.text)
        assert app.requests == [] and app.view.selected_object() == ""
        assert len(app.view.copy_text().splitlines()) > 1


async def test_a_delete_among_the_nodes_asks_nothing_and_deletes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("space", "1", "ctrl+d")
        await play.until(seen(play, "That key is for a job"))
        assert isinstance(play.console.screen, JobsView) and changes(play) == []
        await play.press("2", "ctrl+d")
        await play.until(seen(play, "Delete "))
        assert not isinstance(play.console.screen, JobsView)


async def test_marks_of_the_list_count_only_while_the_list_has_the_focus() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("N", "g", "space", "j", "space", "j", "H")
        await until(pilot, lambda: len(app.requests) == 1)
        (_, _, marked) = app.requests[0]
        job = app.view.current_job()
        assert len(marked) == 2 and job is not None and job.name not in marked
        await pilot.press("3", "H")
        await until(pilot, lambda: app.requests[1:] == [("suspend", "", (job.name,))])
        assert app.view.copy_text() == job.name


async def test_a_command_without_a_name_takes_no_job_from_the_list_while_a_node_has_the_focus(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as play:
        await play.press("1", *typed("why"))
        await play.until(seen(play, "Which job?"))
        assert play.console.screen.query_one(NodeStrip).has_focus
        await play.press("2", *typed("why"))
        await play.until(titled(play, "› why"))


async def test_a_command_gives_the_keys_back_to_the_pane_that_had_them_and_a_filter_to_the_list(
    tmp_path: Path,
) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.until(lambda: logs.open)
        await play.press("3", "colon", "escape")
        assert pane(play).holds_focus
        await play.press("slash", "0", "enter")
        assert play.console.screen.query_one(Table).has_focus


async def test_help_palette_and_the_line_below_tell_the_keys_of_what_has_the_focus(tmp_path: Path) -> None:
    async with world(tmp_path, size=(160, 50)) as play:
        await play.press("1")
        await play.until(lambda: "d GPUs  T topology" in last_line(play))
        assert "^d delete" not in last_line(play) and "W why" not in last_line(play)
        await play.press("question_mark")
        await play.until(seen(play, "Who holds each GPU of the node"))
        assert "Delete (asks first)" not in play.text
        await play.press("escape", "2")
        await play.until(lambda: "^d delete" in last_line(play))


async def test_a_node_is_not_labelled_from_home_with_readonly(tmp_path: Path) -> None:
    async with world(tmp_path, is_read_only=True) as play:
        await play.press("1", "t")
        await play.until(seen(play, "Nothing is changed with --readonly."))
        assert "strip.gpu_schedule" not in {key.id for key in play.console.screen.query_one(KeyBar)._keys}
        assert changes(play) == []


def last_line(play: Playground) -> str:
    return play.text.splitlines()[-1]


async def test_tab_round_the_lists_leaves_the_cursor_on_its_job_and_on_its_node(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g", "j")
        job = play.table.cursor_key
        await play.press("tab", "j")
        await play.until(titled(play, "Nodes (2)"))
        assert at(play, "b")()
        for title in ("Events", "Volumes", "Jobs ("):
            await play.press("tab")
            await play.until(titled(play, title))
        await play.until(lambda: play.table.cursor_key == job)
        await play.press("tab")
        await play.until(at(play, "b"))
        await play.press("escape")
        await play.until(titled(play, "Jobs ("))
        await play.until(lambda: play.table.cursor_key == job)


async def test_a_job_that_is_gone_when_its_list_comes_back_leaves_the_cursor_at_the_top(
    tmp_path: Path,
) -> None:
    objects, _, _ = lab_of(3)
    async with console_on(tmp_path, **objects) as play:
        await play.press("G", "tab")
        await play.until(titled(play, "Nodes ("))
        play.console.context.rows["jobs"] = "no such uid"
        await play.press("escape")
        await play.until(titled(play, "Jobs (3)"))
        await play.until(lambda: play.table.cursor_key == play.table.shown_rows[0].key)


async def test_the_cursor_is_at_the_top_while_the_first_lists_come_in_whatever_was_there_before() -> None:
    every = picture(is_synced=False)
    begun = [job for job in every.jobs if job.created is not None and not job.status.is_final]
    jobs = sorted(begun, key=lambda job: job.created or datetime.min.replace(tzinfo=UTC))
    async with hosted(JobsView(), replace(every, jobs=tuple(jobs[:2]))) as (app, pilot):
        table = app.screen.query_one(Table)
        await until(pilot, lambda: table.row_count == 2 and app.view.context.rows.get("jobs"))
        app.view.snapshot = every
        await until(pilot, lambda: table.row_count > 2)
        assert table.cursor_key == table.shown_rows[0].key != jobs[1].uid
