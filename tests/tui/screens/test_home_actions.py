"""A key of home acts on what has the focus: on the node, on the job, never on what nobody looks at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.hosted_view import hosted
from tests.support.idle import until
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on
from tests.support.sample_cluster import ago
from tests.tui.keys.world import at, seen, titled, typed, world
from tests.tui.screens.home_lab import lab_of, pane
from tests.tui.screens.test_jobs import picture
from tui.screens import ACTIONS
from tui.screens.lists.home_panes import HomePanes
from tui.screens.lists.jobs import JobsView
from tui.text.filter_query import parse_filter
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.table.table import Table

_OF_JOBS = {
    on.keys.split(",")[-1]: action.name
    for action in ACTIONS
    if action.acts_on_job
    for on in action.on
    if on.view == "jobs" and on.keys not in ("enter,d", "l", "T")
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
        await until(pilot, lambda: app.screen.query_one(NodeBar).has_focus)
        for key in _OF_JOBS:
            await pilot.press(key)
            await until(pilot, lambda: "That key is for jobs, and the cursor is on a node" in app.text)
            app.view.flash("")
            await until(pilot, lambda: "That key is for jobs" not in app.text)
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
        await until(pilot, lambda: "That key is for one node. Several are selected." in app.text)
        assert app.requests == [] and app.view.selected_object() == ""
        assert len(app.view.copy_text().splitlines()) > 1


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
        assert play.console.screen.query_one(NodeBar).has_focus
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
        await play.until(seen(play, "Holders of the node's GPUs"))
        assert "Delete (asks first)" not in play.text
        await play.press("escape", "2")
        await play.until(lambda: "^d delete" in last_line(play))


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


async def test_who_may_not_list_nodes_is_told_so_above_those_that_pods_are_on(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    async with console_on(tmp_path, refused="nodes", **objects) as play:
        await play.until(lambda: "nodes 1 · This user may not list nodes" in play.text)
        await play.until(lambda: " a ◆" in play.text)


async def test_the_cursor_lights_the_gpus_of_its_job_and_the_blocks_that_one_could_take() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("N", "g")
        await until(pilot, lambda: "a100-1 ◆◆◆◆◆◆◆◆ 8/8" in app.text and "◆ on a100-[1-2]" in app.text)
        await pilot.press("j")
        await until(pilot, lambda: "◆" not in app.text and "◇" not in app.text)
        heading = app.text.splitlines()[1]
        assert "nodes 10" in heading and "0/11 nodes are available" in heading


async def test_a_job_that_would_fit_lights_the_smallest_blocks_that_do() -> None:
    small = pytorch_job("small", gpus=2, creationTimestamp=ago(minutes=1))
    pods: list[Object] = [pod_of(small, "master-0", phase="Pending", gpus=2)]
    other = pytorch_job("other", gpus=5, creationTimestamp=ago(hours=1))
    pods.append(pod_of(other, "master-0", on="b", gpus=5))
    from tests.support.objects import joined

    nodes, jobs = joined([node("a", 8), node("b", 8)], pods, [small, other])
    shown = picture(nodes=tuple(nodes.values()), jobs=tuple(jobs.values()))
    async with hosted(JobsView(), shown, (120, 40)) as (app, pilot):
        await until(pilot, lambda: "b ▮▮▮▮▮◇◇▯ 5/8" in app.text and "◇ 2 free GPUs on b" in app.text)


async def test_a_node_under_the_cursor_points_at_its_jobs_and_enter_lists_only_them() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("1", "g", "l", "l", "l")
        await until(pilot, lambda: "▸a100-4" in app.text and "◆  sweep-lr-3e4" in app.text)
        assert app.text.count("◆  ") == 2
        await pilot.press("enter")
        table = app.screen.query_one(Table)
        listed = {"sweep-lr-3e4", "notebook-li"}
        await until(pilot, lambda: {row.cells[0].text for row in table.shown_rows} == listed)
        assert "on a100-4" in app.text
        await pilot.press("enter")
        await until(pilot, lambda: app.requests[-1:] == [("nodes", "a100-4", ())])
        await pilot.press("right", "enter", "2")
        assert app.view.step_back()
        await until(pilot, lambda: "◆  " not in app.text and table.row_count == 11)


async def test_the_cursor_on_a_node_names_its_jobs_and_lights_its_entry(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("1")
        await play.until(lambda: "◆ job-000, job-001" in play.text)
        strip = play.console.screen.query_one(NodeBar)
        cursor = strip.get_component_rich_style("table--cursor", partial=True).bgcolor
        lit = [each for each in strip.render_line(1) if each.style and each.style.bgcolor == cursor]
        assert "".join(each.text for each in lit).startswith("▸a ◆◆")
        await play.press("l")
        await play.until(lambda: "no job here" in play.text)


def test_a_group_of_a_model_with_spaces_opens_the_nodes_of_that_model() -> None:
    group = SimpleNamespace(cursor="Tesla V100 (16 GB)", is_grouped=True)
    panes: Any = SimpleNamespace(node_bar=group, _context=lambda: SimpleNamespace(strip_by=""))
    argument = HomePanes.nodes_argument.fget(panes)  # type: ignore[attr-defined]
    found = parse_filter(argument.removeprefix("/"), ["MODEL"])
    assert found is not None and not found.problem
    assert found.accepts(["Tesla V100 (16 GB)"], {"model": 0}, {})
    assert not found.accepts(["Tesla V100 (32 GB)"], {"model": 0}, {})
