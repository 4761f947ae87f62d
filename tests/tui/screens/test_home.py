"""Home: three panes by the size of the terminal, one log at most, and what they point at in each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from textual import events

from k8s.job_spec import LOG_DIR_ANNOTATION
from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster, Stream
from tests.support.hosted_view import hosted
from tests.support.idle import until
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.sample_cluster import ago
from tests.tui.console.test_console import Playground, console_on
from tests.tui.feeds.test_loss_feed import with_event_files
from tests.tui.keys.test_keys_of_logs import saved_lines
from tests.tui.keys.world import PODS, REVIEWS, titled
from tests.tui.screens.test_jobs import picture
from tui.files.layout_file import FILE
from tui.screens.lists.home_layout import HomeLayout, layout_for
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_strip import NodeStrip
from tui.widgets.preview import Preview
from tui.widgets.table.table import Table

_RUNS = {"name": "pytorch", "state": {"running": {"startedAt": ago(hours=2)}}, "restartCount": 0}


class Logs:
    """The logs of all pods; which are followed at this moment, which ever were, which were read once."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.opened: list[str] = []
        self.glanced: list[str] = []
        at = ago(minutes=1)
        self._said = "".join(f"{at} step {step}/99 loss {9 / step:.3f}\n" for step in range(1, 100)).encode()

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        name = request.path.split("/")[-2]
        if request.query.get("follow") != "true":
            self.glanced.append(name)
            return await Answer(self._said).answer(request, closing)
        self.open.append(name)
        self.opened.append(name)
        try:
            return await Stream(self._said).answer(request, closing)
        finally:
            self.open.remove(name)


def lab_of(amount: int) -> tuple[dict[str, Any], Logs, Callable[[ScriptedCluster], None]]:
    """Return so many jobs of one pod each, their logs, and what lets a cluster answer for them."""
    jobs = [
        pytorch_job(f"job-{number:03}", gpus=1, creationTimestamp=ago(hours=1)) for number in range(amount)
    ]
    pods = [pod_of(job, "master-0", on="a", gpus=1, containerStatuses=[_RUNS]) for job in jobs]
    logs = Logs()

    def say(cluster: ScriptedCluster) -> None:
        for pod in pods:
            name = pod["metadata"]["name"]
            cluster.say(f"{PODS}/{name}", Answer(pod))
            cluster.say(f"{PODS}/{name}/log", logs)

    return {"nodes": [node("a", 8), node("b", 8)], "pods": pods, "jobs": jobs, "prepare": say}, logs, say


def pane(play: Playground) -> JobPane:
    return play.console.screen_stack[1].query_one(JobPane)


def says(play: Playground) -> str:
    """Return what stands in the pane of the job."""
    region = pane(play).region
    lines = play.text.splitlines()[region.y : region.bottom]
    return "\n".join(line[region.x : region.right] for line in lines)


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
        strip, job_pane = app.screen.query_one(NodeStrip), app.screen.query_one(JobPane)
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


async def test_z_goes_round_the_layouts_and_the_choice_is_kept_for_the_context(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    kept = tmp_path / "state" / FILE
    async with console_on(tmp_path, **objects) as play:
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        for layout in (HomeLayout.LIST, HomeLayout.LIST_NODES, HomeLayout.LIST_JOB, HomeLayout.ALL):
            await play.press("z")
            assert screen.panes.layout is layout
            assert screen.query_one(NodeStrip).display is layout.has_nodes
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


async def test_one_log_is_read_that_of_the_job_on_which_the_cursor_rests(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(3)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: logs.open == ["job-000-master-0"])
        await play.until(lambda: "step 99/99" in says(play) and "loss" in says(play))
        await play.until(lambda: "rank 0 of 1 · step 99/99 · master-0" in says(play))
        await play.press("j")
        await play.until(lambda: logs.open == ["job-001-master-0"])
        await play.until(lambda: "3 job-001" in says(play) and "step 99/99" in says(play))


def shows_rank_0(play: Playground) -> bool:
    return "job-000 · rank 0 of 1 · step 99/99 · master-0" in says(play)


async def test_a_log_is_that_of_a_rank_once_it_is_known_which_ranks_there_are(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(1)
    async with console_on(tmp_path, **objects) as play:
        await play.until(lambda: shows_rank_0(play))
        (job,) = play.console.snapshot.jobs
        instances = tuple(msgspec.structs.replace(each, ranks=()) for each in job.instances)
        pane(play).show(replace(job, instances=instances), play.console.snapshot)
        await play.until(lambda: "3 job-000 · step 99/99 · master-0" in says(play))
        pane(play).show(job, play.console.snapshot)
        await play.until(lambda: shows_rank_0(play) and len(logs.open) == 1)


async def test_a_log_is_left_at_once_when_the_cursor_moves_on(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: len(logs.open) == 1)
        (reading,) = [each for each in pane(play).workers if each.group == "tail"]
        other = next(job for job in play.console.snapshot.jobs if job.ref.name == "job-001")
        pane(play).show(other, play.console.snapshot)
        assert reading.is_cancelled and not pane(play).is_settled


async def test_a_log_is_read_on_when_the_cursor_comes_back_before_the_pane_has_changed(
    tmp_path: Path,
) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: logs.open == ["job-000-master-0"])
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        first, second = sorted(play.console.snapshot.jobs, key=lambda job: job.ref.name)
        screen.panes.show_soon(second, play.console.snapshot)
        assert not screen.panes.is_settled
        screen.panes.show_soon(first, play.console.snapshot)
        await play.until(lambda: logs.open == [])
        await play.until(lambda: logs.open == ["job-000-master-0"] and screen.panes.is_settled)
        assert logs.opened == ["job-000-master-0"] * 2


async def test_the_loss_is_drawn_from_event_files_and_from_where_they_end_from_the_log(
    tmp_path: Path,
) -> None:
    objects, logs, say = lab_of(2)
    learns: list[Object] = []

    def prepare(cluster: ScriptedCluster) -> None:
        say(cluster)
        learns.append(with_event_files(cluster, "job-000", tmp_path, 50))

    objects["jobs"][0]["metadata"]["annotations"] = {LOG_DIR_ANNOTATION: "/w/logs"}
    async with console_on(tmp_path, **{**objects, "prepare": prepare}) as play:
        await play.press("N", "g")
        await play.until(lambda: logs.open == ["job-000-master-0"])
        await play.until(lambda: _drawn(play) == ("train/loss", [1000.0 - step for step in range(50)], 99))
        await play.press("j")
        await play.until(lambda: _drawn(play) == ("loss", [], 99))


def _drawn(play: Playground) -> tuple[str, list[float], int]:
    """Return the tag, the values that are far larger than those in the log, and the last step."""
    chart = pane(play)._chart
    if chart is None or not len(chart._series):
        return "", [], 0
    series = chart._series
    return chart._tag, [value for value in series.values if value > 100], series.steps[-1]


async def test_the_log_in_the_pane_is_copied_and_saved_as_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCONSOLE_CLIPBOARD", "file")
    objects, _, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g", "3")
        await play.until(lambda: shows_rank_0(play))
        await play.press("c")
        copied = tmp_path / "state" / "clipboard.txt"
        await play.until(lambda: copied.is_file() and "step 99/99" in copied.read_text())
        assert "step 1/99" not in copied.read_text()
        await play.press("ctrl+s")
        await play.until(lambda: saved_lines(tmp_path / "state") == 99)
        (saved,) = (tmp_path / "state" / "logs").glob("*.log")
        assert saved.name.startswith("job-000-rank-0-")


async def test_no_loss_is_read_while_a_question_covers_home(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        screen = play.console.screen

        def is_reading() -> bool:
            return any(each.group == "losses" and each.is_running for each in screen.workers)

        await play.until(lambda: len(logs.glanced) == 2 and is_reading())
        await play.press("ctrl+d")
        await play.until(lambda: not is_reading())
        play.watches["jobs"].event("MODIFIED", pytorch_job("job-000", gpus=1, resourceVersion="9"))
        play.watches["jobs"].event("ADDED", pytorch_job("job-new", gpus=1))
        await play.until(lambda: any(job.ref.name == "job-new" for job in play.console.snapshot.jobs))
        assert not is_reading()
        await play.press("escape")
        await play.until(is_reading)


async def test_a_burst_of_moves_opens_two_logs_at_most(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(200)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: len(logs.open) == 1)
        first = len(logs.opened)
        for _ in range(199):  # as they come in one packet
            play.console.post_message(events.Key("j", "j"))
        await play.until(lambda: logs.open == ["job-199-master-0"])
        assert len(logs.opened) - first <= 1


@pytest.mark.parametrize(
    ("keys", "back"),
    [
        (("ctrl+d",), ("escape",)),
        (("question_mark",), ("escape",)),
        (("ctrl+p",), ("escape",)),
        (("tab",), ("minus",)),
        (("y",), ("escape",)),
        (("z",), ("z", "z", "z")),
    ],
)
async def test_no_log_is_read_that_nobody_sees_and_it_is_taken_up_where_it_was_left(
    tmp_path: Path, keys: tuple[str, ...], back: tuple[str, ...]
) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: "step 99/99" in says(play) and len(logs.open) == 1)
        await play.press(*keys)
        await play.until(lambda: logs.open == [])
        await play.press(*back)
        await play.until(lambda: len(logs.open) == 1)
        log = pane(play)._log
        assert log is not None
        await play.until(lambda: len(log.lines.items) >= 99)
        texts = [each.text for each in log.lines.items if hasattr(each, "rank")]
        assert len(texts) == len(set(texts)) == 99


async def test_who_may_not_read_logs_is_told_so_and_none_is_asked_for(tmp_path: Path) -> None:
    objects, logs, say = lab_of(2)

    def refuse(asked: Asked) -> Answer:
        attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
        return Answer({"status": {"allowed": attributes["subresource"] != "log"}})

    def prepare(cluster: ScriptedCluster) -> None:
        say(cluster)
        cluster.say(REVIEWS, Compute(refuse), method="POST")

    async with console_on(tmp_path, **{**objects, "prepare": prepare}) as play:
        await play.until(lambda: "may not get pods/log" in says(play))
        assert logs.opened == logs.glanced == []


async def test_who_may_not_list_nodes_is_told_so_above_those_that_pods_are_on(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    async with console_on(tmp_path, refused="nodes", **objects) as play:
        await play.until(lambda: "nodes 1 · This user may not list nodes" in play.text)
        await play.until(lambda: " a ◆" in play.text)


async def test_a_job_that_has_not_started_says_so_and_why(tmp_path: Path) -> None:
    waits = pytorch_job("waits", gpus=16)
    async with console_on(tmp_path, nodes=[node("a", 8)], jobs=[waits]) as play:
        await play.until(lambda: "No pod runs yet, so there is no log." in says(play))
        await play.until(lambda: pane(play).query_one(Preview).region.width > 120 // 2)


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


async def test_the_cursor_on_a_node_names_its_jobs_and_lights_its_entry(tmp_path: Path) -> None:
    objects, _, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("1")
        await play.until(lambda: "◆ job-000, job-001" in play.text)
        strip = play.console.screen.query_one(NodeStrip)
        cursor = strip.get_component_rich_style("table--cursor", partial=True).bgcolor
        lit = [each for each in strip.render_line(1) if each.style and each.style.bgcolor == cursor]
        assert "".join(each.text for each in lit).startswith("▸a ◆◆")
        await play.press("l")
        await play.until(lambda: "no job here" in play.text)


async def test_a_list_without_jobs_leaves_no_empty_pane(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a", 8)]) as play:
        await play.until(lambda: "What the job under the cursor says is shown here" in says(play))
        assert "│" not in says(play)
