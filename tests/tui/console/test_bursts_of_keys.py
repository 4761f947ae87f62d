"""Keys that come in one packet count each; keys that the cluster would refuse are dim and say why."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual import events

from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster
from tests.support.event_files import job_with_event_files, serve_event_files
from tests.support.namespace_objects import EVENTS, event, in_namespace, serve
from tests.support.objects import pytorch_job
from tests.support.playground import ONE_JOB, Playground, console_on, some_objects
from tests.tui.settings.keys.world import seen, typed, world
from trainer.tfevents import EventWriter
from tui.screens.dialogs.confirm import DeleteScreen
from tui.screens.lists.jobs import JobsView
from tui.widgets.curve_chart import CurveChart
from tui.widgets.form.manifest_pane import YamlView
from tui.widgets.status_line import KeyBar

PRESSES = 8
"""No view is at its end after so many, and of three charts another one has the focus than after one."""


@asynccontextmanager
async def opened(
    tmp_path: Path, *keys: str, shows: str, size: tuple[int, int] = (80, 20), **objects: Any
) -> AsyncIterator[Playground]:
    async with world(tmp_path, size=size, **objects) as play:
        await play.press(*keys)
        await play.until(seen(play, shows))
        yield play


def help_(tmp_path: Path) -> AbstractAsyncContextManager[Playground]:
    return opened(tmp_path, "question_mark", shows="Open the job")


@asynccontextmanager
async def card(tmp_path: Path) -> AsyncIterator[Playground]:
    async with world(tmp_path, size=(80, 20)) as play:
        long = event("long", ("Pod", "p"), "Long", "\n".join(f"word {number}" for number in range(60)))
        serve(play.cluster, in_namespace(EVENTS), long)
        await play.press(*typed("events"))
        await play.until(seen(play, "pod/p"))
        await play.press("v")
        await play.until(seen(play, "word 0", "word 1"))
        yield play


def yaml(tmp_path: Path) -> AbstractAsyncContextManager[Playground]:
    return opened(tmp_path, *typed("yaml bert"), shows="pytorchReplicaSpecs")


@asynccontextmanager
async def curves(tmp_path: Path) -> AsyncIterator[Playground]:
    """Open three curves of a job."""
    learns = job_with_event_files("learns")
    with EventWriter(tmp_path / "volume" / "logs", flush_s=0) as writer:
        for step in range(50):
            for tag in ("train/loss", "val/accuracy", "weights"):
                writer.write_scalar(tag, step, 0.5 + step / 200)
    async with world(tmp_path, jobs=[learns], batch=[], size=(120, 32)) as play:
        serve_event_files(play.cluster, learns, tmp_path / "volume")
        await play.press(*typed("curves learns"))
        await play.until(seen(play, "3 tags, 150 points", "train/loss", "val/accuracy"))
        yield play


def log(tmp_path: Path) -> AbstractAsyncContextManager[Playground]:
    return opened(tmp_path, *typed("logs bert"), shows="line 98")


@asynccontextmanager
async def manifest(tmp_path: Path) -> AsyncIterator[Playground]:
    async with opened(tmp_path, "n", shows="New job") as play:
        await play.press("ctrl+y")
        await play.until(lambda: play.console.screen.query_one(YamlView).has_focus)
        yield play


def jobs(tmp_path: Path) -> AbstractAsyncContextManager[Playground]:
    many = [pytorch_job(f"job-{number:02}") for number in range(30)]
    return opened(tmp_path, "N", "g", shows="job-05", jobs=many)


def row_under_the_cursor(play: Playground) -> str | None:
    return play.table.cursor_key


def texts_below_the_title(play: Playground) -> list[str]:
    """Return the lines that scroll, without ages, which grow."""
    return [re.sub(r"\d+[smhd]\b", "", line) for line in play.text.splitlines()[2:-1]]


def focused_chart(play: Playground) -> object:
    charts = [*play.console.screen.query(CurveChart)]
    focused = play.console.focused
    return charts.index(focused) if isinstance(focused, CurveChart) else None


def scrolled(play: Playground) -> float:
    return play.console.screen.query_one(YamlView).top_line


QUICK = (
    (help_, "j", "k", texts_below_the_title),
    (log, "k", "j", texts_below_the_title),
    (jobs, "j", "k", row_under_the_cursor),
)
SLOW = (
    (help_, "down", "up", texts_below_the_title),
    (card, "j", "k", texts_below_the_title),
    (yaml, "j", "k", texts_below_the_title),
    (manifest, "j", "k", scrolled),
    (curves, "j", "k", focused_chart),
    (curves, "l", "h", texts_below_the_title),
)


@pytest.mark.parametrize(
    ("view", "key", "back", "place"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
async def test_repeated_keys_in_one_packet_count_individually(
    tmp_path: Path,
    view: Callable[[Path], AbstractAsyncContextManager[Playground]],
    key: str,
    back: str,
    place: Callable[[Playground], object],
) -> None:
    async with view(tmp_path) as play:
        await play.press(key)  # a log follows its end, and a chart is not read, until the first key
        await play.pilot.pause()
        start = place(play)
        await play.press(*[key] * PRESSES)
        one_by_one = place(play)
        assert one_by_one != start
        await play.press(*[back] * PRESSES)
        await play.until(lambda: place(play) == start)
        for _ in range(PRESSES):
            play.console.post_message(events.Key(key, key if len(key) == 1 else None))
        await play.until(lambda: place(play) == one_by_one)


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def refuse_deleting(cluster: ScriptedCluster) -> None:
    def reply(asked: Asked) -> Answer:
        attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
        return Answer({"status": {"allowed": attributes["verb"] != "delete"}})

    cluster.say(REVIEWS, Compute(reply), method="POST")


def all_asked(play: Playground) -> bool:
    """Return True if no worker reviews permissions or is about to."""
    return all(worker.is_finished for worker in play.console.workers if worker.group == "permissions")


async def test_a_forbidden_action_is_dimmed_and_explains_itself_when_pressed(tmp_path: Path) -> None:
    async with console_on(tmp_path, prepare=refuse_deleting, **some_objects()) as play:
        await play.press("j")
        bar = play.console.screen.query_one(KeyBar)
        await play.until(lambda: "row.delete" in bar.refused)
        assert set(bar.refused) == {"row.delete"}
        await play.press("ctrl+d", shows=JobsView)
        assert 'User "li" may not delete pytorchjobs in namespace "default".' in play.text
        assert play.cluster.asked(ONE_JOB, method="DELETE") == []
        await play.press("question_mark", shows='user "li" may')


async def test_all_actions_are_offered_if_access_reviews_are_unavailable(tmp_path: Path) -> None:
    async with console_on(tmp_path, **some_objects()) as play:
        await play.press("j")
        await play.until(lambda: play.cluster.asked(REVIEWS, method="POST"))
        await play.until(lambda: all_asked(play))
        assert play.console.screen.query_one(KeyBar).refused == {}
        await play.press("ctrl+d", shows=DeleteScreen)


async def test_moving_the_cursor_does_not_repeat_access_reviews(tmp_path: Path) -> None:
    async with console_on(tmp_path, prepare=refuse_deleting, **some_objects()) as play:
        await play.press("j")
        bar = play.console.screen.query_one(KeyBar)
        await play.until(lambda: bar.refused)
        await play.until(lambda: all_asked(play))
        asked = len(play.cluster.asked(REVIEWS, method="POST"))
        for _ in range(5):
            await play.press("k", "j")
        await play.until(lambda: all_asked(play))
        assert len(play.cluster.asked(REVIEWS, method="POST")) == asked


def is_refused(play: Playground, id: str) -> bool:
    return id in play.console.screen.query_one(KeyBar).refused


async def test_labelling_a_node_without_permission_is_dimmed_and_explained(tmp_path: Path) -> None:
    def refuse_patching(cluster: ScriptedCluster) -> None:
        def reply(asked: Asked) -> Answer:
            attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
            is_node = attributes["resource"] == "nodes" and attributes["namespace"] == ""
            return Answer({"status": {"allowed": not is_node}})

        cluster.say(REVIEWS, Compute(reply), method="POST")

    async with console_on(tmp_path, prepare=refuse_patching, **some_objects()) as play:
        for key, id in (("1", "strip.gpu_schedule"), ("tab", "nodes.gpu_schedule")):
            await play.press(key)
            await play.until(partial(is_refused, play, id))
            await play.press("t", shows='User "li" may not patch nodes.')
        assert play.cluster.asked("/api/v1/nodes/a", method="PATCH") == []
