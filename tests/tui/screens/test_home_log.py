"""Home reads one log at most, that of the job on which the cursor rests, and its loss."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from textual import events
from textual.widget import AwaitMount

from k8s.kinds.job_spec import LOG_DIR_ANNOTATION
from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster
from tests.support.event_files import job_with_event_files, serve_event_files, write_losses
from tests.support.objects import collided, elastic_job, node, pod_of, pytorch_job
from tests.support.playground import Playground, console_on
from tests.support.sample_cluster import ago
from tests.support.screen_text import resize
from tests.tui.screens.home_lab import lab_of, pane, says, shows_rank_0
from tests.tui.settings.keys.world import REVIEWS
from tui.screens.lists.jobs import JobsView
from tui.widgets.home.preview import Preview
from tui.widgets.log.view import LogView


async def test_only_the_log_of_the_selected_job_is_streamed(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(3)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: logs.open == ["job-000-master-0"])
        await play.until(lambda: "step 99/99" in says(play) and "loss" in says(play))
        await play.until(lambda: "rank 0 of 1 · step 99/99 · master-0" in says(play))
        await play.press("j")
        await play.until(lambda: logs.open == ["job-001-master-0"])
        await play.until(lambda: "3 job-001" in says(play) and "step 99/99" in says(play))
        await play.press("g")
        await play.until(lambda: logs.open == ["job-000-master-0"])

        screen = play.console.screen
        assert isinstance(screen, JobsView)
        first, second, _ = sorted(play.console.snapshot.jobs, key=lambda job: job.ref.name)
        (reading,) = [each for each in pane(play).workers if each.group == "tail"]
        opened = len(logs.opened)
        screen.panes.show_soon(second, play.console.snapshot)
        assert not screen.panes.is_idle
        screen.panes.show_soon(first, play.console.snapshot)  # back before the pane has changed
        await play.until(lambda: reading.is_cancelled and pane(play).is_streaming and screen.panes.is_idle)
        assert logs.opened[opened:] == [] and logs.open == ["job-000-master-0"], "the stream goes on"
        (reading,) = [each for each in pane(play).workers if each.group == "tail" and not each.is_finished]
        pane(play).show(second, play.console.snapshot)
        assert reading.is_cancelled and not pane(play).is_idle, "a log is left at once"


async def test_the_log_pane_reopens_by_rank_once_the_ranks_are_known(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(1)
    async with console_on(tmp_path, **objects) as play:
        await play.until(lambda: shows_rank_0(play))
        (job,) = play.console.snapshot.jobs
        instances = tuple(msgspec.structs.replace(each, ranks=()) for each in job.instances)
        unknown = replace(job, instances=instances)
        play.console.snapshot = replace(play.console.snapshot, jobs=(unknown,))
        await play.until(lambda: "3 job-000 · step 99/99 · master-0" in says(play))
        play.console.snapshot = replace(play.console.snapshot, jobs=(job,))
        await play.until(lambda: shows_rank_0(play) and len(logs.open) == 1)


@pytest.mark.slow
async def test_home_shows_rank_0_of_an_elastic_job_from_the_pod_that_prints_it(tmp_path: Path) -> None:
    job, pods = elastic_job("squall")

    def prepare(cluster: ScriptedCluster) -> None:
        for pod, rank, text in zip(pods, (1, 0), ("ready", "step 8/9 loss 0.75"), strict=True):
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
            cluster.say(path, Answer(pod))
            cluster.say(f"{path}/log", Answer(f"{ago(minutes=1)} [rank{rank}]: {text}\n".encode()))

    async with console_on(tmp_path, nodes=[node("a", 8)], pods=pods, jobs=[job], prepare=prepare) as play:
        await play.press("N", "g")
        await play.until(lambda: "rank 0 of 2 · step 8/9 · worker-1" in says(play))
        await play.until(lambda: "0.75" in play.text)
        await play.press("3", "full_stop")
        await play.until(lambda: "rank 1 of 2" in says(play) and "ready" in says(play))


async def test_home_offers_the_run_before_of_a_job_that_printed_nothing_since_its_restart(
    tmp_path: Path,
) -> None:
    job = pytorch_job("relapse", gpus=1)
    again = {"name": "pytorch", "restartCount": 3, "state": {"running": {"startedAt": ago(minutes=1)}}}
    pod = pod_of(job, "master-0", on="a", gpus=1, containerStatuses=[again])

    def prepare(cluster: ScriptedCluster) -> None:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        cluster.say(path, Answer(pod))
        cluster.say(f"{path}/log", Answer(b""))

    async with console_on(tmp_path, nodes=[node("a", 8)], pods=[pod], jobs=[job], prepare=prepare) as play:
        await play.press("N", "g")
        await play.until(lambda: "since the last restart; l, then p shows the run before." in play.text)


@pytest.mark.slow
async def test_a_failed_job_opens_at_the_rank_that_failed_first_in_home_and_logs(tmp_path: Path) -> None:
    job, pods, logs = collided("clash")

    def prepare(cluster: ScriptedCluster) -> None:
        for pod, log in zip(pods, logs, strict=True):
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
            cluster.say(path, Answer(pod))
            cluster.say(f"{path}/log", Answer(log))

    async with console_on(tmp_path, nodes=[node("a", 8)], pods=pods, jobs=[job], prepare=prepare) as play:
        await play.press("N", "g")
        await play.until(lambda: "rank 1 of 2 · worker-0" in says(play) and "row 12 of shard 5" in says(play))
        assert "Connection closed" not in says(play)
        await play.press("l")
        await play.until(lambda: "ranks 1" in play.text and "row 12 of shard 5" in play.text)
        assert "Connection closed" not in play.text


async def test_the_loss_is_drawn_from_event_files_and_continued_from_the_log(tmp_path: Path) -> None:
    objects, logs, say = lab_of(2)
    write_losses(tmp_path / "logs", 50)

    def prepare(cluster: ScriptedCluster) -> None:
        say(cluster)
        serve_event_files(cluster, job_with_event_files("job-000"), tmp_path)

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


@pytest.mark.slow
async def test_a_failed_log_save_is_reported_and_removes_the_saving_message(tmp_path: Path) -> None:
    objects, _, _ = lab_of(1)
    async with console_on(tmp_path, **objects) as play:
        await play.until(lambda: shows_rank_0(play))
        (tmp_path / "state").mkdir(exist_ok=True)
        (tmp_path / "state" / "logs").write_text("in the way")
        await play.press("l")
        await play.until(lambda: "› logs" in play.text and "step 99/99" in play.text)
        await play.press("ctrl+s")
        told = play.console._notifications
        await play.until(lambda: any("Could not save" in each.title for each in told))
        await play.pilot.pause()
        assert "Saving" not in play.text


async def test_the_log_pane_copies_visible_lines_and_saves_the_full_log(
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
        logs = tmp_path / "state" / "logs"
        await play.until(lambda: [len(each.read_text().splitlines()) for each in logs.glob("*.log")] == [99])
        (saved,) = logs.glob("*.log")
        assert saved.name.startswith("job-000-rank-0-")


@pytest.mark.slow
async def test_losses_of_other_jobs_are_not_read_while_a_dialog_covers_home(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:

        def is_reading() -> bool:
            return bool(play.session.life.visible_jobs)

        await play.until(lambda: len(logs.glanced) == 2 and is_reading())
        await play.press("ctrl+d")
        await play.until(lambda: not is_reading())
        play.watches["jobs"].event("MODIFIED", pytorch_job("job-000", gpus=1, resourceVersion="9"))
        play.watches["jobs"].event("ADDED", pytorch_job("job-new", gpus=1))
        await play.until(lambda: any(job.ref.name == "job-new" for job in play.console.snapshot.jobs))
        assert not is_reading()
        await play.press("escape")
        await play.until(is_reading)


@pytest.mark.slow
async def test_a_burst_of_cursor_moves_opens_at_most_one_more_log(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(200)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: len(logs.open) == 1)
        first = len(logs.opened)
        for _ in range(199):  # as they come in one packet
            play.console.post_message(events.Key("j", "j"))
        await play.until(lambda: logs.open == ["job-199-master-0"])
        assert len(logs.opened) - first <= 1


async def test_a_hidden_log_pane_stops_reading_and_resumes_without_repeated_lines(tmp_path: Path) -> None:
    objects, logs, _ = lab_of(2)
    async with console_on(tmp_path, **objects) as play:
        await play.press("N", "g")
        await play.until(lambda: "step 99/99" in says(play) and len(logs.open) == 1)
        for key, *back in (("ctrl+d", "escape"), ("tab", "minus"), ("z", "z")):
            await play.press(key)
            await play.until(lambda: logs.open == [])
            await play.press(*back)
            await play.until(lambda: len(logs.open) == 1)
            log = pane(play)._log
            assert log is not None
            await play.until(lambda log=log: len(log.lines.items) >= 99)  # type: ignore[misc]
            texts = [each.text for each in log.lines.items if hasattr(each, "rank")]
            assert len(texts) == len(set(texts)) == 99, key


async def test_a_missing_log_permission_is_shown_and_no_log_is_requested(tmp_path: Path) -> None:
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


async def test_a_job_without_running_pods_shows_a_message_and_the_preview(tmp_path: Path) -> None:
    waits = pytorch_job("waits", gpus=16)
    async with console_on(tmp_path, nodes=[node("a", 8)], jobs=[waits]) as play:
        await play.until(lambda: "No pod runs yet, so there is no log." in says(play))
        await play.until(lambda: pane(play).query_one(Preview).region.width > 120 // 2)


async def test_moving_the_cursor_while_the_log_is_mounted_leaves_one_log(
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
            await resize(play.pilot, 120, 40)
            await play.until(is_mounting.is_set)
            job_pane.leave()
        job_pane.consider()
        await play.until(lambda: shows_rank_0(play) and "step 99/99 loss 0.091" in says(play))
        assert len(job_pane.query(LogView)) == 1
