"""The console on a scripted cluster: what is shown, what keys do, what is never done, and when it is idle."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.cluster.discovery import ServedKinds
from k8s.kinds import JobRef
from tests.scripted.server import Answer, Compute, Held, ScriptedCluster, page, refusal
from tests.support.objects import pytorch_job
from tests.support.playground import EVENTS, LISTS, ONE_JOB, bert, console_on, some_objects, waits
from tests.support.screen_text import resize
from tui.__main__ import GARBAGE
from tui.app import Console
from tui.runs.curve_feed import LOG_HINT
from tui.screens import ACTIONS
from tui.screens.dialogs.confirm import DeleteScreen
from tui.screens.dialogs.help import HelpScreen
from tui.screens.lists.jobs import JobsView
from tui.session.session import Session
from tui.settings.served_kinds import store_served


async def test_the_client_is_closed_even_if_closing_the_session_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(client: Client) -> None:
        closed.append(client)
        await client_close(client)

    closed: list[Client] = []
    client_close = Client.close
    monkeypatch.setattr(Session, "close", AsyncMock(side_effect=asyncio.CancelledError))
    monkeypatch.setattr(Client, "close", close)
    async with console_on(tmp_path, **some_objects()) as play:
        client = play.session.client
    assert closed == [client]


async def test_home_shows_each_job_with_its_status_and_why_it_waits(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        for size in ((80, 24), (120, 40), (200, 60)):
            await resize(play.pilot, *size)
            await play.until(lambda: "? help" in play.text.splitlines()[-1])
            lines = play.text.splitlines()
            assert "lab / default · li" in lines[0]
            assert "8/16" in lines[0] and lines[0].rstrip().endswith("live")
            assert any("bert" in line and "Running" in line and "8/8" in line for line in lines)
            assert any("waits" in line and "Pending" in line and "0/16" in line for line in lines)
            assert "Waits for GPUs: room for 1 of 2 pods, each needs 8" in play.text
            assert "Σ 2 jobs · 8 GPUs held · 16 requested and waiting" in play.text


async def test_delete_focuses_cancel_first_and_keeps_the_row_until_the_server_removes_it(
    tmp_path: Path,
) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        play.cluster.say(ONE_JOB, page([]), method="DELETE")
        await play.press("N", "g", "ctrl+d", shows=DeleteScreen)
        assert "Deletes 2 pods and their logs, and frees 8 GPUs" in play.text
        await play.press("enter", shows=JobsView)
        assert play.cluster.asked(ONE_JOB, method="DELETE") == []

        await play.press("ctrl+d", "tab", "enter")
        await play.cluster.until_asked(ONE_JOB, method="DELETE")
        options = json.loads(play.cluster.asked(ONE_JOB, method="DELETE")[0].body)
        assert options["preconditions"] == {"uid": "job-bert"}
        assert play.table.row_count == 2
        play.forget(bert)
        await play.until(lambda: play.table.row_count == 1)


async def test_a_toast_leaves_the_newest_lines_and_the_title_free(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        title = play.text.splitlines()[0]
        play.console.notify("Reason one.\nReason two.", title="It failed.", severity="error")
        await play.until(lambda: "Reason two." in play.text)
        lines = play.text.splitlines()
        last = max(at for at, line in enumerate(lines) if "Reason" in line)
        assert last < 4 and lines[0].split()[:2] == title.split()[:2]


async def test_marked_jobs_are_deleted_together_even_if_one_deletion_fails(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        second = ONE_JOB.replace("bert", "waits")
        play.cluster.say(ONE_JOB, refusal(403, "li may not delete it", "Forbidden"), method="DELETE")
        play.cluster.say(second, page([]), method="DELETE")
        await play.press("N", "g", "space", "j", "space", "ctrl+d")
        assert "Delete 2 jobs?" in play.text
        await play.press("tab", "enter")
        await play.cluster.until_asked(second, method="DELETE")
        await play.until(lambda: "li may not delete it" in play.text)


async def test_the_field_of_many_deletions_has_the_focus_and_enter_deletes_once_the_words_are_right(
    tmp_path: Path,
) -> None:
    names = [f"sweep-{letter}" for letter in "abcdefg"]
    async with console_on(tmp_path, jobs=[pytorch_job(name) for name in names]) as play:
        paths = [ONE_JOB.replace("bert", name) for name in names]
        for path in paths:
            play.cluster.say(path, page([]), method="DELETE")
        await play.press("N", "g", *("space", "j") * len(names), "ctrl+d", shows=DeleteScreen)
        await play.press(*"delete", "space", "8", "enter", shows=DeleteScreen)
        assert not any(play.cluster.asked(path, method="DELETE") for path in paths)
        await play.press("backspace", "7", "enter")
        for path in paths:
            await play.cluster.until_asked(path, method="DELETE")
        await play.until(
            lambda: "sweep-a, sweep-b, sweep-c, sweep-d, sweep-e, sweep-f and sweep" in play.text
        )


@pytest.mark.slow
@pytest.mark.parametrize("comes", ["at once", "later"])
async def test_after_creating_a_job_the_cursor_is_on_it(tmp_path: Path, comes: str) -> None:
    jobs = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    made = pytorch_job("fresh", workers=1, gpus=1)
    async with console_on(tmp_path, **some_objects()) as play:
        play.cluster.say(jobs, Compute(lambda asked: Answer(json.loads(asked.body), 201)), method="POST")
        play.cluster.accept_companions("default")
        await play.press("j", "n", shows="Create")
        await play.press(*"fresh", "ctrl+o", shows="Create PyTorchJob fresh")
        await play.press("enter", shows="Jobs › fresh › logs")
        if comes == "at once":
            play.watches["jobs"].event("ADDED", made)
            await play.until(lambda: len(play.console.snapshot.jobs) == 3)
        await play.press("escape")
        if comes == "later":
            play.watches["jobs"].event("ADDED", made)
        await play.until(lambda: play.table.row_count == 3)
        assert play.table.cursor_key == made["metadata"]["uid"]
        await play.press("g")
        first = play.table.cursor_key
        play.forget(waits)
        await play.until(lambda: play.table.row_count == 2)
        assert play.table.cursor_key == first


async def test_the_cursor_does_not_jump_to_a_created_job_if_it_was_moved_meanwhile(tmp_path: Path) -> None:
    made = pytorch_job("fresh", workers=1, gpus=1)
    async with console_on(tmp_path, **some_objects()) as play:
        view = play.console.screen
        assert isinstance(view, JobsView)
        view.go_to_created(JobRef("default", "fresh", "PyTorchJob", "kubeflow.org/v1"))
        await play.press("G")
        last = play.table.cursor_key
        play.watches["jobs"].event("ADDED", made)
        await play.until(lambda: play.table.row_count == 3)
        assert play.table.cursor_key == last != made["metadata"]["uid"]


@pytest.mark.slow
async def test_a_command_uses_its_argument_or_reports_an_unexpected_one(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        name = next(job.ref.name for job in play.console.snapshot.jobs)
        for command, words in (
            (f"jobs {name[:3]}", f"/{name[:3]}"),
            ("events /zzz", "/zzz"),
            (f"job {name}", f"Jobs › {name}"),
            ("job nosuch", "No job 'nosuch' here."),
            ("info jobs", ":info takes no argument."),
            ("quit now", ":quit takes no argument."),
            ("vlumes", "Unknown command :vlumes. Did you mean :volumes?"),
            ("zzzz", "Unknown command :zzzz. :aliases lists them."),
            ("bundle", "Unknown command :bundle. Use gpuconsole info --json, and W, T and l on the job."),
            ("ns all", "all namespaces"),
            ("NODES /zzz", "Nothing matches; "),
        ):
            await play.press("colon", *("space" if each == " " else each for each in command), "enter")
            await play.until(lambda words=words: words in play.text)  # type: ignore[misc]
        assert not play.console._notifications, "a toast would cover the next view"


async def test_problems_in_user_files_are_listed_in_one_view_at_start(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text("jobs.lgos: L\nrow.why: j\n")
    problems = ("config.yaml, line 1, theme: no", "config.yaml, line 4, loss: no")
    options: dict[str, Any] = {"config_folder": tmp_path, "config_problems": problems, "kept_theme": "gone"}
    async with console_on(tmp_path, **options, **some_objects()) as play:
        words = (*problems, "jobs.lgos", "j means table.down and row.why", "There is no theme gone.")
        await play.until(lambda: all(each in " ".join(play.text.split()) for each in words))
        await play.press("escape")
        assert isinstance(play.console.screen, JobsView) and not play.console._notifications


async def test_help_shows_every_key_of_the_view_and_every_command(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(100, 220), **some_objects()) as play:
        await play.press("question_mark", shows=HelpScreen)
        await play.until(lambda: "Delete (asks first)" in play.text)
        words = " ".join(play.text.replace("│", " ").split())
        for command in ACTIONS.commands():
            assert command.help in words
        await play.press("escape", shows=JobsView)


async def test_cached_kinds_are_listed_before_api_discovery_answers(tmp_path: Path) -> None:
    held = Held(Answer({"groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1"}]}]}))

    def prepare(cluster: ScriptedCluster) -> None:
        cluster.say("/apis", held)
        served = ServedKinds({"kubeflow.org/v1": frozenset({"pytorchjobs"})})
        store_served(tmp_path / "state", ClusterConfig(host=cluster.host), served)

    async with console_on(tmp_path, prepare=prepare, **some_objects()) as play:
        await play.until(lambda: "Running" in play.text and "PyTorchJob" in play.text)
        assert len(play.cluster.asked("/apis")) == 1
        held.let_go()


async def test_a_lost_cluster_is_reported_and_its_rows_are_kept(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        for path in LISTS.values():
            play.cluster.forget(path)
            play.cluster.forget(path, watch=True)
            play.cluster.say(path, refusal(500, "etcd is gone"))
            play.cluster.say(path, refusal(500, "etcd is gone"), watch=True)
        for watch in play.watches.values():
            watch.drop()
        await play.until(lambda: "away" in play.text.splitlines()[0])
        await play.until(lambda: "etcd is gone" in play.text)
        assert play.table.row_count == 2


async def test_the_curves_view_reports_a_job_without_an_event_file_folder(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        play.cluster.say(ONE_JOB, Answer(bert))
        await play.press("N", "g", "m", shows="declares no folder for event files")
        assert LOG_HINT in play.text


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
