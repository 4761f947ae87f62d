"""Keys that come in one packet count each, and reach what they would have reached one by one."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.screen import Screen
from textual.widgets import Input, OptionList, Select, TextArea

from tests.scripted.server import Answer, Asked, Compute, ScriptedCluster
from tests.support.event_files import job_with_event_files, serve_event_files
from tests.support.namespace_objects import CLAIMS, EVENTS, claim, event, in_namespace, serve
from tests.support.objects import pytorch_job
from tests.support.playground import ONE_JOB, Playground, console_on, some_objects
from tests.tui.settings.keys.world import PYTORCH_JOBS, seen, typed, world
from trainer.tfevents import EventWriter
from tui.screens.base.view import View
from tui.screens.dialogs.confirm import DeleteScreen
from tui.screens.lists.jobs import JobsView
from tui.widgets.curve_chart import CurveChart
from tui.widgets.form.manifest_pane import YamlView
from tui.widgets.status_line import KeyBar
from tui.widgets.table.table import Table

ECHO = Compute(lambda asked: Answer(json.loads(asked.body), 201))
"""Answer to a create as a server does that has nothing against it."""


def key(name: str) -> events.Key:
    """Return a key as the terminal's driver makes it."""
    full = name if len(name) > 1 or name.isalnum() else _character_to_key(name)
    letter = " " if name == "space" else name if len(name) == 1 else None
    return events.Key(full, letter)


def place(screen: Screen[Any]) -> str:
    """Return the focused widget and its position among those of its type."""
    focused = screen.focused
    if focused is None:
        return ""
    alike = list(screen.query(type(focused)))
    return f"{type(focused).__name__}#{focused.id} {alike.index(focused)}"


def state(play: Playground) -> list[dict[str, Any]]:
    """Return of each screen, the lowest first, what keys have made of it."""
    found = []
    for screen in play.console.screen_stack:
        fields = [
            each.text if isinstance(each, TextArea) else str(each.value)
            for each in screen.query("Input, TextArea, Select")
            if isinstance(each, Input | TextArea | Select)
        ]
        tables = [(table.cursor_key, tuple(table.marks), table.order) for table in screen.query(Table)]
        lists = [each.highlighted for each in screen.query(OptionList)]
        shown = (screen.route, screen.filter_text) if isinstance(screen, View) else ()
        found.append(
            {
                "screen": type(screen).__name__,
                "shown": shown,
                "focus": place(screen),
                "fields": fields,
                "tables": tables,
                "lists": lists,
            }
        )
    return found


async def after(
    tmp_path: Path, keys: Sequence[str], *, in_one_packet: bool, opened: Sequence[str] = (), shows: str = ""
) -> list[dict[str, Any]]:
    """Return the state that keys lead to in a view that was opened, and shows what it is known by."""
    folder = tmp_path / ("packet" if in_one_packet else "single")
    folder.mkdir()
    async with world(folder, size=(100, 30)) as play:
        play.cluster.say(PYTORCH_JOBS, ECHO, method="POST")
        await play.press(*opened)
        await play.until(seen(play, shows))
        for name in keys:
            play.console.post_message(key(name))
            if not in_one_packet:
                await play.rest()
        await play.rest()
        await play.until_idle()
        await play.rest()
        return state(play)


FORM = ["n", *"x1", "tab", "tab", *"ns1", "tab", *"img1", "tab", "3", "tab", "2"]


QUICK = (
    ["ctrl+d", "right", "enter"],
    ["H", "tab", "enter", "k"],
    ["slash", *"be", "enter", "enter", "l", "slash", *"line", "enter", "escape", "escape"],
    ["q", "escape", "j", "enter", "q", "k"],
)
SLOW = (
    FORM,
    ["ctrl+d", "tab", "enter", "j"],
    ["n", *"abc", "escape", "tab", "enter", "j", "enter"],
    ["n", *"abc", "escape", "enter", "j", "n", "tab", "enter", *"de"],
    ["n", *"abc", "ctrl+s", "tab", "enter", "j"],
    ["n", "pagedown", "pagedown", "3", *"zz"],
    ["n", "ctrl+y", "j", "ctrl+y", "q"],
    ["n", "tab", "enter", "down", "enter", "tab", "7"],
    ["b", *"77", "tab", "8"],
    [*typed("nodes"), "j", "enter", "escape", "tab", "slash", *"zz"],
    ["question_mark", "j", "escape", "j", "enter"],
    ["ctrl+p", *"node", "enter", "j"],
    [*typed("theme"), "down", "down", "enter", "j"],
    [*typed("theme"), "down", "escape", "j", "space"],
    ["space", "j", "space", "ctrl+d", "tab", "tab", "escape", "enter", "tab"],
    [*typed("ctx"), "enter", "question_mark", "j"],
    ["ctrl+d", "ctrl+c", "j"],
)


@pytest.mark.parametrize(
    "keys", [*QUICK, *(pytest.param(keys, marks=pytest.mark.slow) for keys in SLOW)], ids=" ".join
)
async def test_keys_sent_in_one_packet_have_the_same_effect_as_keys_sent_one_by_one(
    tmp_path: Path, keys: Sequence[str]
) -> None:
    one_by_one = await after(tmp_path, keys, in_one_packet=False)
    assert await after(tmp_path, keys, in_one_packet=True) == one_by_one


VIEWS: dict[str, tuple[Sequence[str], str]] = {
    "jobs": ((), "waits"),
    "nodes": (typed("nodes"), "8/8"),
    "node_gpus": ((*typed("nodes"), "enter"), "bert"),
    "job": (("j", "enter"), "master-0"),
    "logs": (typed("logs bert"), "line 98"),
    "curves": (typed("curves bert"), "bert"),
    "yaml": (typed("yaml bert"), "pytorchReplicaSpecs"),
    "why": (typed("why waits"), "Waits"),
    "events": (typed("events"), "notebook"),
    "volumes": (typed("volumes"), "imagenet"),
    "namespaces": (typed("ns"), "nlp"),
    "contexts": (typed("ctx"), "lab"),
    "info": (typed("info"), "Versions"),
    "new": (("n",), "Create"),
}
"""Each view: the keys that open it, and a word that is there once it is."""
ANYWHERE: tuple[tuple[str, ...], ...] = (
    ("j",),
    ("k",),
    ("G",),
    ("space",),
    ("slash", "b", "enter"),
    ("slash", "x", "escape"),
    ("colon", "x", "escape"),
    tuple(typed("nodes")),
    tuple(typed("jobs")),
    (*typed("theme"), "down", "escape"),
    ("question_mark", "j", "escape"),
    ("ctrl+p", "escape"),
    ("ctrl+d", "right", "enter"),
    ("ctrl+d", "escape"),
    ("H", "right", "right", "enter"),
    ("q", "escape", "escape"),
)
"""Keys for any view; none leaves the console or opens a view that only the network fills."""
IN_CONTEXTS = tuple(phrase for phrase in ANYWHERE if phrase[0] not in ("ctrl+d", "H"))
"""Keys for the list of contexts: without those dialogs enter would change the cluster."""
IN_THE_FORM: tuple[tuple[str, ...], ...] = (
    *((letter,) for letter in ("a", "7", "tab", "shift+tab", "backspace", "ctrl+u", "down", "left", "space")),
    ("pagedown",),
    ("pageup",),
    ("ctrl+y",),
    ("enter",),
    ("escape", "escape"),
)
"""Keys for the form for a new job."""
PHRASES = 8
"""Typed in one packet."""


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
async def test_random_keys_in_one_packet_have_the_same_effect_as_one_by_one_in_every_view(
    tmp_path: Path, view: str
) -> None:
    opened, shows = VIEWS[view]
    choice = random.Random(view)
    may_be_typed = {"new": IN_THE_FORM, "contexts": IN_CONTEXTS}.get(view, ANYWHERE)
    phrases = choice.choices(may_be_typed, k=PHRASES)
    keys = [name for phrase in phrases for name in phrase]
    one_by_one = await after(tmp_path, keys, in_one_packet=False, opened=opened, shows=shows)
    at_once = await after(tmp_path, keys, in_one_packet=True, opened=opened, shows=shows)
    assert at_once == one_by_one, " ".join(keys)


@pytest.mark.slow
async def test_enter_typed_ahead_of_the_dry_run_creates_the_job_once(tmp_path: Path) -> None:
    async with world(tmp_path, size=(80, 24)) as play:
        play.cluster.say(PYTORCH_JOBS, ECHO, method="POST")
        # Nothing speaks against the job, whether or not that is known by the time of the first key.
        play.cluster.say(f"{in_namespace(CLAIMS)}/workspace", Answer(claim("workspace")))
        await play.press("n")
        await play.until(seen(play, "Create"))
        for name in ("ctrl+o", "enter", "enter", "enter"):
            play.console.post_message(key(name))
        await play.cluster.until_asked(PYTORCH_JOBS, 2, method="POST")
        await play.rest()
        await play.until_idle()
        asked = play.cluster.asked(PYTORCH_JOBS, method="POST")
        assert ["dryRun" in each.query for each in asked] == [True, False]


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


QUICK_BURSTS = (
    (help_, "j", "k", texts_below_the_title),
    (log, "k", "j", texts_below_the_title),
    (jobs, "j", "k", row_under_the_cursor),
)
SLOW_BURSTS = (
    (help_, "down", "up", texts_below_the_title),
    (card, "j", "k", texts_below_the_title),
    (yaml, "j", "k", texts_below_the_title),
    (manifest, "j", "k", scrolled),
    (curves, "j", "k", focused_chart),
    (curves, "l", "h", texts_below_the_title),
)


@pytest.mark.parametrize(
    ("view", "key", "back", "place"),
    [*QUICK_BURSTS, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_BURSTS)],
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
