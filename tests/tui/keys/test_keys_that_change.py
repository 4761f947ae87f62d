"""A key that changes something on the cluster asks first, with Cancel; with --readonly there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from tests.scripted.server import page
from tests.support.playground import Playground
from tests.tui.keys.proofs import names_of
from tests.tui.keys.world import (
    PODS,
    PYTORCH_JOBS,
    at,
    changes,
    look_of,
    seen,
    titled,
    typed,
    unseen,
    world,
)
from tui.keys import Key
from tui.screens import ACTIONS, key_table

CHANGING: dict[str, list[Key]] = {
    place: found
    for place, keys in key_table().sections
    if (found := [key for key in keys if key.changes_cluster])
    and place not in ("Pods", "Events", "Users", "Notices")
}
"""The keys that change something, by where they are."""
OPENED = {
    "Jobs": ["g"],
    "One job": ["g", "enter"],
    "The nodes above the jobs": ["1", "g"],
    "Nodes": [*typed("nodes"), "g"],
    "GPUs of a node": [*typed("nodes"), "g", "enter"],
}
"""What is pressed at home, sorted by name, to get there with the job bert or the node a under the cursor."""
TITLES = {
    "Jobs": "Jobs (",
    "One job": "Jobs › bert   ",
    "The nodes above the jobs": "Jobs (",
    "Nodes": "Nodes (",
    "GPUs of a node": "Nodes › a ",
}
"""What the line that says what is shown says there."""
QUESTIONS = {"delete": "Delete", "suspend": "Suspend", "resume": "Resume", "gpu_schedule": "Label"}
"""The keys that must ask, by the ends of their ids, and what the button beside Cancel says."""
NODE = "/api/v1/nodes/a"


@pytest.fixture(autouse=True)
def no_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name an editor that is not installed: there is no terminal for one."""
    monkeypatch.setenv("KUBE_EDITOR", "none")


def test_keys_that_change_something_are_where_these_tests_press_them() -> None:
    assert CHANGING.keys() == OPENED.keys()
    # There, only a shell into the job of the row is opened.
    for place, keys in key_table().sections:
        changing = {key.id.partition(".")[2] for key in keys if key.changes_cluster}
        assert place in CHANGING or changing <= {"shell"}, place
    asking = {key.id.partition(".")[2] for keys in CHANGING.values() for key in keys}
    assert asking == {*QUESTIONS, "clone", "edit", "shell", "new"}


async def go_home(play: Playground) -> None:
    """Go back to the list of jobs, sorted by name, from wherever a key has led to."""
    for _ in range(5):
        if titled(play, " Jobs (")():
            break
        await play.press("escape")
        if seen(play, "Discard your changes?")():
            await play.press("right", "enter")
    await play.press("2")
    if not seen(play, "NAME↑")():  # the list was opened again
        await play.press("N")


async def open_place(play: Playground, place: str, job: str = "bert") -> None:
    """Go there from wherever a key has led to; the jobs are in the order of their names."""
    there = titled(play, f"Jobs › {job}   " if place == "One job" else TITLES[place])
    if there() and TITLES[place] != TITLES["Jobs"]:
        return
    await go_home(play)
    if "ode" in place:
        await play.press(*OPENED[place])
        await play.until(there)
        return
    await play.press("g", *("j" if job == "paused" else ""))
    await play.until(at(play, job))
    if place == "One job":
        await play.press("enter")
        await play.until(there)


@pytest.mark.parametrize("place", OPENED)
async def test_a_key_that_changes_something_and_enter_at_once_change_nothing(
    tmp_path: Path, place: str
) -> None:
    async with world(tmp_path) as play:
        await play.press("N")
        for key in CHANGING[place]:
            what = key.id.partition(".")[2]
            for name in names_of(key.id):
                await open_place(play, place, job="paused" if what == "resume" else "bert")
                await play.press(name)
                if what in QUESTIONS:
                    await play.until(seen(play, " Cancel "))
                    other = QUESTIONS[what]
                    assert look_of(play, " Cancel ") != look_of(play, f" {other} ")
                await play.press("enter")
                if what in QUESTIONS:
                    await play.until(unseen(play, " Cancel "))
                elif what in ("new", "clone"):
                    await play.until(titled(play, "New job"))
        await open_place(play, place)
        assert changes(play) == []
        if "ode" in place:
            play.cluster.say(NODE, page([]), method="PATCH")
            await play.press("t", "tab", "enter")
            await play.cluster.until_asked(NODE, method="PATCH")
            assert changes(play) == [f"PATCH {NODE}"]
            return
        play.cluster.say(f"{PYTORCH_JOBS}/bert", page([]), method="DELETE")
        await play.press("ctrl+d", "tab", "enter")
        await play.cluster.until_asked(f"{PYTORCH_JOBS}/bert", method="DELETE")
        assert changes(play) == [f"DELETE {PYTORCH_JOBS}/bert"]


async def test_with_readonly_such_a_key_does_nothing_and_says_why(tmp_path: Path) -> None:
    async with world(tmp_path, is_read_only=True) as play:
        await play.press("N")
        for place, keys in CHANGING.items():
            await go_home(play)
            await play.press(*OPENED[place])
            await play.until(titled(play, TITLES[place]))
            before = play.console.views.current
            assert before is not None
            for name in (name for key in keys for name in names_of(key.id)):
                before.set_line("flash", "")
                await play.press(name)
                assert play.console.screen is before, f"{place}: {name} has led somewhere"
                await play.until(seen(play, "Changes are disabled by --readonly."))
            before.set_line("flash", "")
            await play.press(*typed("new"))
            await play.until(seen(play, "Changes are disabled by --readonly."))
        assert changes(play) == []
        assert not play.cluster.asked(f"{PODS}/bert-master-0/exec")


@pytest.mark.parametrize("is_read_only", [False, True])
async def test_with_readonly_such_a_key_is_neither_in_footer_nor_help_nor_palette(
    tmp_path: Path, is_read_only: bool
) -> None:
    async with world(tmp_path, is_read_only=is_read_only, size=(170, 120)) as play:
        await play.press("N")
        for place, keys in CHANGING.items():
            await go_home(play)
            await play.press(*OPENED[place])
            await play.until(titled(play, TITLES[place]))
            footer = f"{play.text.splitlines()[-1]} "
            await play.press("question_mark")
            await play.until(seen(play, "Commands, after :"))
            helped = play.text
            await play.press("escape", "ctrl+p")
            offered = await palette(play)
            for key in keys:
                start = key.help[:20]
                assert (f" {key.shown} {key.footer} " in footer) == (bool(key.footer) and not is_read_only)
                assert (start in helped) != is_read_only, f"{start!r} in the help of {place}"
                assert (start in offered) != is_read_only, f"{start!r} in the palette of {place}"
            for command in ACTIONS.commands():
                if command.changes_cluster and not command.argument:  # others need a job
                    assert (f":{command.commands[0]} " in offered) != is_read_only
            await play.press("escape")


async def palette(play: Playground) -> str:
    """Return what the palette offers, once it has offered all."""

    def offered() -> str:
        options = play.console.screen.query_one(OptionList).options
        return "".join(f"{option.prompt}\n" for option in options)

    await play.until(lambda: ":quit " in offered())
    return offered()
