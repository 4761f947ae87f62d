"""Keys that come in one packet reach what they would have reached one by one, in every view."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.screen import Screen
from textual.widgets import Input, OptionList, Select, TextArea

from tests.scripted.server import Answer, Compute
from tests.support.namespace_objects import CLAIMS, claim, in_namespace
from tests.support.playground import Playground
from tests.tui.settings.keys.world import PYTORCH_JOBS, seen, typed, world
from tui.screens.base.view import View
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
