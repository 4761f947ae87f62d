"""Home: its panes, the pane that has the keys, what they act on, and the cost of a frame."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Static

from k8s.snapshot import ClusterSnapshot, Missing, Share
from tests.scripted.server import WAIT_S
from tests.support.hosted_view import Hosted, hosted
from tests.support.idle import until
from tests.support.objects import Object, joined, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on
from tests.support.sample_cluster import ago, cluster_of
from tests.support.screen_text import resize
from tests.tui.screens.home_lab import lab_of, pane
from tests.tui.screens.test_jobs import picture
from tests.tui.settings.keys.world import at, seen, titled, typed, world
from tui.runs.journal.choices import read_layout, store_layout
from tui.runs.journal.database import Journal
from tui.screens import ACTIONS
from tui.screens.base.view import View
from tui.screens.lists.home_panes import HomeLayout, HomePanes
from tui.screens.lists.jobs import JobsView
from tui.screens.lists.nodes import NodesView
from tui.screens.lists.users import UsersView
from tui.text.filter_query import parse_filter
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.table.table import Table


async def test_the_panes_of_home_depend_on_the_terminal_size() -> None:
    async with hosted(JobsView(), picture(), (60, 15)) as (app, pilot):
        panes = [app.screen.query_one(NodeBar), app.screen.query_one(JobPane)]
        for size, displayed in (
            *(((60, 15), [False, False]), ((80, 24), [True, False]), ((79, 40), [False, False])),
            *(((120, 31), [True, False]), ((80, 19), [False, False]), ((120, 32), [True, True])),
            *(((120, 31), [True, False]), ((160, 24), [True, True])),
        ):
            await resize(pilot, *size)
            await until(pilot, lambda want=displayed: [each.display for each in panes] == want)  # type: ignore[misc]


async def test_the_job_pane_is_below_or_beside_the_list_and_the_node_bar_above() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        strip, job_pane = app.screen.query_one(NodeBar), app.screen.query_one(JobPane)
        table = app.screen.query_one(Table)
        assert strip.region.bottom <= table.region.y and strip.region.height <= 40 // 3
        assert job_pane.region.y >= table.region.bottom and job_pane.region.width == 120
        await resize(pilot, 160, 45)
        await until(pilot, lambda: job_pane.region.x >= table.region.right)
        assert job_pane.region.bottom == table.region.bottom
        await resize(pilot, 80, 24)
        await until(pilot, lambda: not job_pane.display and strip.region.height == 2)
        await resize(pilot, 60, 15)
        await until(pilot, lambda: not strip.display and table.region.y == 2)


async def test_a_deferred_job_pane_update_is_dropped_while_the_view_closes() -> None:
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
        assert not view.panes.is_idle
        app.exit()


async def test_z_toggles_the_layout_and_the_choice_is_saved_per_context(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    kept = Journal(tmp_path / "state")
    async with console_on(tmp_path, **objects) as play:
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        for layout in (HomeLayout.LIST, HomeLayout.FULL, HomeLayout.LIST):
            await play.press("z")
            assert screen.panes.layout is layout
            for pane_type in (NodeBar, JobPane):
                assert screen.query_one(pane_type).display is (layout is HomeLayout.FULL)
            assert f"Layout: {layout}." in play.text
            assert read_layout(kept, "lab") == layout.value
    async with console_on(tmp_path, **objects) as play:
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        await play.until(lambda: not screen.query_one(NodeBar).display)
        await resize(play.pilot, 60, 15)
        await play.press("z", "1", shows="More panes need 80x20; this terminal has 60x15")
        assert screen.panes.layout is HomeLayout.LIST


async def test_a_stored_layout_that_is_gone_becomes_full_with_a_notice_once(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    store_layout(Journal(tmp_path / "state"), "lab", "list and job")
    for is_noticed in (True, False):
        async with console_on(tmp_path, **objects) as play:
            await play.until(lambda: pane(play).display)
            assert ("The layout 'list and job' is gone" in play.text) is is_noticed


async def test_home_restores_its_cursor_and_focused_pane_after_another_view(tmp_path: Path) -> None:
    objects, _, _ = lab_of(30)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "G", "3", "enter")
        await play.until(titled_logs(play))
        await play.press("escape")
        await play.until(lambda: pane(play).holds_focus and "▸ job-029" in play.text)


def titled_logs(play: Playground) -> Callable[[], bool]:
    return titled(play, "Jobs › job-029 › logs")


async def test_help_and_the_line_below_name_the_keys_of_the_pane_with_the_focus(tmp_path: Path) -> None:
    async with world(tmp_path, size=(120, 50)) as play:

        def last_line() -> str:
            return play.text.splitlines()[-1]

        assert last_line().startswith(" enter job  l logs") and "z layout  b clone" in last_line()
        await play.press("1")
        await play.until(lambda: last_line().startswith(" enter its jobs  esc list  d GPUs  T topology"))
        assert not any(words in last_line() for words in ("l logs", "^d delete", "W why"))
        await play.press("question_mark")
        await play.until(seen(play, "Holders of the node's GPUs"))
        assert "Delete (asks first)" not in play.text
        await play.press("escape", "3")
        await play.until(lambda: last_line().startswith(" enter logs in full  . next rank"))
        assert "n match" not in last_line() and "esc list" in last_line()
        await play.press("colon", "escape")
        # A command gives the keys back to the pane that had them.
        await play.until(lambda: pane(play).holds_focus)
        await play.press("slash", "escape")
        assert play.table.has_focus
        await play.until(lambda: last_line().startswith(" enter job  l logs"))
        await resize(play.pilot, 60, 15)
        await play.until(lambda: "z layout" not in last_line())


async def test_a_closed_command_focuses_the_log_that_came_into_its_pane_meanwhile() -> None:
    async with hosted(JobsView(), picture(jobs=()), (120, 40)) as (app, pilot):
        empty = app.screen.query_one(JobPane)
        await pilot.press("3", "colon")
        log = Static(id="log")
        log.can_focus, empty.can_focus = True, False
        await empty.mount(log)
        await pilot.press("escape")
        await until(pilot, lambda: log.has_focus)


async def test_a_list_without_jobs_leaves_no_empty_pane() -> None:
    async with hosted(JobsView(), picture(jobs=()), (120, 40)) as (app, pilot):
        region = app.screen.query_one(JobPane).region
        await until(pilot, lambda: "The log and loss of the selected job appear here" in app.text)
        assert "│" not in "".join(app.text.splitlines()[region.y : region.bottom])


@pytest.mark.parametrize("make", [JobsView, NodesView, UsersView])
async def test_unread_nodes_and_jobs_are_not_counted_as_zero(make: Callable[[], View]) -> None:
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


_OF_JOBS = {
    on.keys.split(",")[0]: action.name
    for action in ACTIONS
    if action.acts_on_job
    for on in action.on
    if on.view in ("jobs", "row") and on.keys not in ("enter,d", "l", "T")
}
"""Keys of jobs that mean nothing else among the nodes, and what they ask for."""


def test_every_action_with_a_job_s_permission_or_a_job_as_its_argument_acts_on_a_job() -> None:
    of_jobs = {"get job", "patch job", "delete job", "get pods/log", "get pods/exec", "get pods/portforward"}
    for action in ACTIONS:
        if action.permission in of_jobs or action.argument == "job" or action.takes_many:
            assert action.acts_on_job, action.name
    assert len(_OF_JOBS) > 10


async def test_job_keys_do_nothing_and_show_a_message_while_a_node_has_the_focus() -> None:
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


async def test_a_command_without_a_name_takes_no_job_from_the_list_while_a_node_has_the_focus(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as play:
        await play.press("1", *typed("why"))
        await play.until(seen(play, "Which job?"))
        assert play.console.screen.query_one(NodeBar).has_focus
        await play.press("2", *typed("why"))
        await play.until(titled(play, "› why"))


async def test_the_cursor_stays_at_the_top_until_the_first_sync_despite_a_remembered_row() -> None:
    every = picture(is_synced=False)
    begun = [job for job in every.jobs if job.created is not None and not job.status.is_final]
    jobs = sorted(begun, key=lambda job: job.created or datetime.min.replace(tzinfo=UTC))
    async with hosted(JobsView(), replace(every, jobs=tuple(jobs[:2]))) as (app, pilot):
        table = app.screen.query_one(Table)
        await until(pilot, lambda: table.row_count == 2 and app.view.context.rows.get("jobs"))
        app.view.snapshot = every
        await until(pilot, lambda: table.row_count > 2)
        assert table.cursor_key == table.shown_rows[0].key != jobs[1].uid


async def test_the_selected_node_marks_its_jobs_and_enter_filters_the_list_to_them() -> None:
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


def test_a_group_of_a_model_with_spaces_opens_the_nodes_of_that_model() -> None:
    group = SimpleNamespace(cursor="Tesla V100 (16 GB)", is_grouped=True)
    panes: Any = SimpleNamespace(node_bar=group, _context=lambda: SimpleNamespace(strip_by=""))
    argument = HomePanes.nodes_argument.fget(panes)  # type: ignore[attr-defined]
    found = parse_filter(argument.removeprefix("/"), ["MODEL"])
    assert found is not None and not found.problem
    assert found.accepts(["Tesla V100 (16 GB)"], {"model": 0}, {})
    assert not found.accepts(["Tesla V100 (32 GB)"], {"model": 0}, {})


async def test_node_keys_request_their_action_for_the_node_under_the_cursor() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("1", "l", "l")
        for key, action in (("d", "node_gpus"), ("T", "gpu_links"), ("t", "gpu_schedule"), ("n", "new")):
            app.requests.clear()
            await pilot.press(key)
            await until(pilot, lambda action=action: app.requests == [(action, "a100-3", ())])  # type: ignore[misc]
        assert app.view.copy_text() == "a100-3"
        await resize(pilot, 80, 24)
        app.requests.clear()
        await until(pilot, lambda: app.screen.query_one(NodeBar).region.height == 2)
        await pilot.press("1", "d")
        await until(pilot, lambda: "That key is for one node. Several are selected." in app.text)
        assert app.requests == [] and app.view.selected_object() == ""
        assert len(app.view.copy_text().splitlines()) > 1


async def test_marked_jobs_are_targets_only_while_the_list_has_the_focus() -> None:
    async with hosted(JobsView(), picture(), (120, 40)) as (app, pilot):
        await pilot.press("N", "g")
        await until(pilot, lambda: "a100-1 ◆◆◆◆◆◆◆◆ 8/8" in app.text and "◆ on a100-[1-2]" in app.text)
        await pilot.press("space", "j", "space")
        await until(pilot, lambda: "◆" not in app.text and "◇" not in app.text)
        heading = app.text.splitlines()[1]
        assert "nodes 10" in heading and "no room for llm-70b-eval" in heading
        await pilot.press("j", "H")
        await until(pilot, lambda: len(app.requests) == 1)
        (_, _, marked) = app.requests[0]
        job = app.view.current_job()
        assert len(marked) == 2 and job is not None and job.name not in marked
        await pilot.press("3", "H")
        await until(pilot, lambda: app.requests[1:] == [("suspend", "", (job.name,))])
        assert app.view.copy_text() == job.name


async def test_home_gives_the_reason_of_a_waiting_job_once_and_in_full() -> None:
    reason = (
        "Waits for quota: team-speech holds 62 of 64 GPUs of its share, and this job needs 32 more of them"
    )
    shown = picture()
    jobs = [replace(job, reason=reason) if job.ref.name == "llm-70b-eval" else job for job in shown.jobs]
    async with hosted(JobsView(), replace(shown, jobs=tuple(jobs)), (80, 24)) as (app, pilot):
        table = app.screen.query_one(Table)
        waiting = next(row.key for row in table.shown_rows if row.cells[0].text == "llm-70b-eval")
        table.move_to(waiting)

        def told() -> str:
            return " ".join(app.text.replace("┃", "").split())

        await until(pilot, lambda: "no room for llm-70b-eval" in app.text)
        assert reason in told() and told().count("Waits for quota") == 1
        await pilot.press("3")  # now with the pane of the job, too
        await until(pilot, lambda: "Pending  0/32 GPUs" in app.text)
        assert reason in told() and told().count("Waits for quota") == 1


@pytest.mark.slow
async def test_cycling_through_the_lists_with_tab_keeps_the_cursor_on_its_job_and_node(
    tmp_path: Path,
) -> None:
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
        await play.press("tab")
        await play.until(titled(play, "Nodes ("))
        play.console.context.rows["jobs"] = "no such uid"
        await play.press("escape")
        await play.until(titled(play, "Jobs ("))
        await play.until(lambda: play.table.cursor_key == play.table.shown_rows[0].key)


def small_lab(*nodes: Object, **fields: Any) -> ClusterSnapshot:
    """Return a picture of a job that runs on node b, and of one that would fit there or on node a."""
    small = pytorch_job("small", gpus=2, creationTimestamp=ago(minutes=1))
    other = pytorch_job("other", gpus=5, creationTimestamp=ago(hours=1))
    pods = [pod_of(small, "master-0", phase="Pending", gpus=2), pod_of(other, "master-0", on="b", gpus=5)]
    rows, jobs = joined(list(nodes), pods, [small, other])
    return picture(nodes=tuple(rows.values()), jobs=tuple(jobs.values()), **fields)


async def test_a_job_that_would_fit_lights_the_smallest_blocks_and_a_node_names_its_jobs() -> None:
    async with hosted(JobsView(), small_lab(node("a", 8), node("b", 8)), (120, 40)) as (app, pilot):
        await until(pilot, lambda: "b ▮▮▮▮▮◇◇▯ 5/8" in app.text and "◇ 2 free GPUs on b" in app.text)
        await pilot.press("1")
        await until(pilot, lambda: "no job here" in app.text)
        await pilot.press("l")
        await until(pilot, lambda: "◆ other" in app.text)
        strip = app.screen.query_one(NodeBar)
        cursor = strip.look("table--cursor-focused").bgcolor
        lit = [each for each in strip.render_line(1) if each.style and each.style.bgcolor == cursor]
        assert "".join(each.text for each in lit).startswith("▸b ◆◆")


async def test_nodes_of_pods_are_shown_with_a_notice_where_nodes_may_not_be_listed() -> None:
    shown = small_lab(problems={"nodes": Missing("list", "nodes")})
    async with hosted(JobsView(), shown, (120, 40)) as (app, pilot):
        await until(pilot, lambda: "nodes 1 · This user may not list nodes" in app.text)
        await until(pilot, lambda: " b ▮" in app.text)


FEW, MANY = 50, 5_000
SIZE = (200, 60)


@pytest.fixture(scope="module")
def large() -> ClusterSnapshot:
    """Return a cluster of thousands of nodes, and hundreds of jobs on them."""
    cluster = cluster_of(MANY)
    nodes, jobs = joined(cluster["nodes"], cluster["pods"], cluster["jobs"])
    return picture(nodes=tuple(nodes.values()), jobs=tuple(jobs.values()))


def changed(snapshot: ClusterSnapshot, place: int) -> ClusterSnapshot:
    """Return a picture in which one GPU more is held, or given back, on one node."""
    nodes = list(snapshot.nodes)
    (share,) = nodes[place].resources.values()
    held = (share.allocated + 1) % share.total
    resources = {"nvidia.com/gpu": Share(share.total, held, share.unhealthy)}
    nodes[place] = replace(nodes[place], resources=resources)
    return replace(snapshot, nodes=tuple(nodes))


async def calls_of_a_frame(snapshot: ClusterSnapshot, keys: tuple[str, ...], shows: str) -> int:
    """Return the number of function calls, Textual's included, for a frame after one node has changed."""
    async with hosted(JobsView(), snapshot, SIZE) as (app, pilot):
        await pilot.press(*keys)
        await until(pilot, lambda: shows in strip_text(app))
        for place in range(20, 23):
            snapshot = changed(snapshot, place)
            app.view.snapshot = snapshot
            await pilot.pause()
        calls = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        held = strip_text(app), app.text.splitlines()[0]
        sys.setprofile(count)
        app.view.snapshot = changed(snapshot, 30)
        await pilot.pause()
        sys.setprofile(None)
        assert (strip_text(app), app.text.splitlines()[0]) != held
        return calls


def strip_text(app: Hosted) -> str:
    region = app.screen.query_one(NodeBar).region
    return "\n".join(app.text.splitlines()[region.y : region.bottom])


@pytest.mark.parametrize(
    ("keys", "shows"),
    [
        pytest.param(("slash", *"pending", "enter"), "◇ ", id="cursor on a job", marks=pytest.mark.slow),
        pytest.param(("1",), "▸", id="cursor on a group of nodes"),
    ],
)
async def test_a_frame_with_thousands_of_nodes_calls_no_more_than_one_with_fifty(
    large: ClusterSnapshot, keys: tuple[str, ...], shows: str
) -> None:
    few = await calls_of_a_frame(replace(large, nodes=large.nodes[:FEW]), keys, shows)
    many = await calls_of_a_frame(large, keys, shows)
    assert many < 1.5 * few + 3_000, (many, few)
