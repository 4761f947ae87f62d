"""What the panes of home point at in each other: a job at its GPUs, a node at its jobs."""

from __future__ import annotations

from pathlib import Path

from tests.support.hosted_view import hosted
from tests.support.idle import until
from tests.support.objects import Object, node, pod_of, pytorch_job
from tests.support.sample_cluster import ago
from tests.tui.console.test_console import console_on
from tests.tui.screens.home_lab import lab_of
from tests.tui.screens.test_jobs import picture
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.node_strip import NodeStrip
from tui.widgets.table.table import Table


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
        strip = play.console.screen.query_one(NodeStrip)
        cursor = strip.get_component_rich_style("table--cursor", partial=True).bgcolor
        lit = [each for each in strip.render_line(1) if each.style and each.style.bgcolor == cursor]
        assert "".join(each.text for each in lit).startswith("▸a ◆◆")
        await play.press("l")
        await play.until(lambda: "no job here" in play.text)
