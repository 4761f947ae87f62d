"""Each key of the panes beside the list of jobs does what the table says."""

from __future__ import annotations

from pathlib import Path

from tests.support.objects import node
from tests.support.playground import Playground, console_on
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import PODS, changes, order, seen, title, titled, unseen, world
from tests.tui.screens.home_lab import lab_of
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.job_pane import JobPane
from tui.widgets.home.node_bar import NodeBar
from tui.widgets.table.table import Table


def strip(play: Playground) -> NodeBar:
    return play.console.screen.query_one(NodeBar)


def pane(play: Playground) -> JobPane:
    return play.console.screen.query_one(JobPane)


def says(play: Playground) -> str:
    """Return what stands in the pane of the job, its frame too."""
    region = pane(play).region
    return "\n".join(
        line[region.x : region.right] for line in play.text.splitlines()[region.y : region.bottom]
    )


@proves("jobs.nodes_pane", "jobs.list_pane", "jobs.job_pane")
async def test_digits_give_the_keys_to_a_pane_and_show_it_where_it_is_not_shown(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        screen = play.console.screen
        assert isinstance(screen, JobsView)
        await hands.press("jobs.nodes_pane", lambda: strip(play).has_focus)
        await hands.press("jobs.list_pane", lambda: screen.query_one(Table).has_focus)
        await hands.press("jobs.job_pane", lambda: pane(play).holds_focus, undo=["escape"])
        assert screen.query_one(Table).has_focus
        await play.pilot.resize_terminal(80, 24)
        await play.until(lambda: not pane(play).display)
        await play.press("3")
        await play.until(lambda: pane(play).holds_focus and strip(play).display)
        assert changes(play) == []


@proves(
    "strip.left",
    "strip.right",
    "strip.down",
    "strip.up",
    "strip.first",
    "strip.last",
    "strip.open",
)
async def test_keys_of_the_nodes_move_among_them_and_list_their_jobs(tmp_path: Path) -> None:
    async with world(tmp_path, nodes=[node(name, 8) for name in "abcdefgh"]) as play:
        hands = Hands.on(play)
        await play.press("1")
        cursor = strip(play)
        await hands.press("strip.right", lambda: cursor.cursor == "b", undo=["left"])
        await play.press("right")
        await hands.press("strip.left", lambda: cursor.cursor == "a", undo=["right"])
        await hands.press("strip.first", lambda: cursor.cursor == "a", undo=["G"])
        await play.press("g")
        await hands.press("strip.last", lambda: cursor.cursor == "h", undo=["g"])
        await hands.press("strip.down", lambda: cursor.cursor == "f", undo=["g"])
        await play.press("j")
        await hands.press("strip.up", lambda: cursor.cursor == "a", undo=["j"])
        await play.press("k")
        await play.until(seen(play, "◆  bert"))

        def listed() -> list[str]:
            return order(play, "bert", "waits", "paused")

        await hands.press("strip.open", lambda: listed() == ["bert"] and "on a" in title(play))
        await play.press("enter")
        await play.until(titled(play, "Nodes (8)"))
        await play.until(seen(play, "▸ a "))
        await play.press("escape")
        await play.until(lambda: listed() == ["bert"] and strip(play).has_focus)
        await play.press("escape")
        await play.until(lambda: len(listed()) == 3 and strip(play).has_focus)
        await play.press("escape")
        assert play.console.screen.query_one(Table).has_focus
        assert changes(play) == []


@proves("strip.node_gpus", "strip.gpu_links", "strip.gpu_schedule")
async def test_keys_of_the_nodes_act_on_the_node_under_their_cursor(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands, back = Hands.on(play), ["escape"]
        await play.press("1", "l")
        question = seen(play, "Give the GPUs of b by the links between them?")
        await hands.press("strip.gpu_schedule", question, undo=back)
        await hands.press("strip.gpu_links", titled(play, "Nodes › b › topology"), undo=back)
        await hands.press("strip.node_gpus", titled(play, "Nodes › b "), undo=back)
        assert strip(play).has_focus and strip(play).cursor == "b"
        assert changes(play) == []


@proves("jobs.loss")
async def test_a_key_shows_the_loss_of_running_jobs_or_reads_none(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        hands = Hands.on(play)
        await play.press("z")
        await play.until(seen(play, "LOSS", "0.091  ▇▂▁▁▁▁▁▁"))
        await play.until(lambda: play.text.count("0.091  ▇") == 2)
        await hands.press("jobs.loss", unseen(play, "LOSS"), undo=["x"])
        assert sorted(logs.glanced) == ["job-000-master-0", "job-001-master-0"]


@proves("job_pane.open", "job_pane.next_rank", "job_pane.previous_rank")
async def test_keys_of_the_job_s_pane_step_through_ranks_and_open_the_log(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("N", "g", "3")
        await play.until(lambda: "line 99 of bert-master-0" in says(play))

        def other() -> bool:
            return "line 99 of bert-worker-0" in says(play)

        ranks = next(each for each in play.console.snapshot.jobs if each.ref.name == "bert").instances
        steps = len(ranks[0].ranks)
        await play.press(*["full_stop"] * (steps - 1))
        await hands.press("job_pane.next_rank", other, undo=["comma"])
        await play.press("full_stop")
        await play.until(other)
        await hands.press("job_pane.previous_rank", lambda: "bert-master-0" in says(play), undo=["full_stop"])
        await play.until(other)
        await hands.press("job_pane.open", titled(play, "Jobs › bert › logs"))
        await play.until(seen(play, "line 99 of bert-worker-0"))
        await play.press("escape")
        await play.until(lambda: other() and pane(play).holds_focus)
        assert play.cluster.asked(f"{PODS}/bert-worker-0/log")
        assert changes(play) == []
