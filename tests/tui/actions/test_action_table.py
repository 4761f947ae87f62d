"""One row of the action table is all that it takes: every place that names an action follows from it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.widgets import OptionList

import tui
from k8s.jobs.permissions import needs_of
from k8s.kinds import JobRef
from tests.support.objects import node, pytorch_job
from tests.support.playground import Playground, console_on
from tui.actions import find_functions, window
from tui.app import Console
from tui.keys import EVERYWHERE, Action, ActionTable, On, view_keys
from tui.screens import ACTIONS
from tui.screens import VIEWS as DECLARED
from tui.screens.base.request import ActionRequest
from tui.screens.base.view import View
from tui.screens.lists.jobs import JobsView

JOB = JobRef("lab", "bert", "PyTorchJob", "kubeflow.org/v1")


def subclasses(owner: type[DOMNode]) -> Iterator[type[DOMNode]]:
    """Yield every class of ours below `owner`, all modules imported."""
    for found in pkgutil.walk_packages(tui.__path__, "tui."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    todo = list(owner.__subclasses__())
    while todo:
        each = todo.pop()
        todo += each.__subclasses__()
        if each.__module__.startswith("tui."):
            yield each


VIEWS = {each.VIEW.name: each for each in subclasses(View) if issubclass(each, View) and each.VIEW.name}
"""The views that have keys of their own, by their names."""
VIEWS["strip"] = JobsView  # a part of it that is bound to keys of its own, for which the view is asked


def has_method(owner: type[object], action: str) -> bool:
    """Tell whether a Textual action, as `sort('name')` or `app.focus_next`, has a method there."""
    place, _, name = action.partition("(")[0].rpartition(".")
    owners: dict[str, type[object]] = {"app": Console, "screen": View}
    return callable(getattr(owners.get(place, owner), f"action_{name}", None))


@pytest.mark.parametrize("action", ACTIONS.actions, ids=lambda action: action.name)
def test_every_row_resolves(action: Action) -> None:
    assert bool(action.subject) != bool(action.method)
    assert (action.name in find_functions(action)) == bool(action.subject)
    for on in action.on:
        assert on.view == EVERYWHERE or on.view in VIEWS
        owner = Console if action.name == "interrupt" else VIEWS.get(on.view, View)
        assert has_method(owner, action.key(on).action)
    if action.permission:
        assert needs_of(action.permission, JOB)
    assert action.on or action.commands, "nobody can ask for it"
    assert action.name in action.commands or not action.commands


def test_every_action_and_command_stands_once_in_the_table() -> None:
    names = [each.name for each in ACTIONS]
    words = [word for each in ACTIONS for word in each.commands]
    assert (len(names), len(words)) == (len(set(names)), len(set(words)))


def test_every_key_that_a_view_or_widget_handles_itself_has_its_method() -> None:
    for view in VIEWS.values():
        assert [key.id for key in view.VIEW.keys if not has_method(view, key.action)] == []
    for owner in subclasses(DOMNode):
        for binding in Binding.make_bindings(owner.__dict__.get("BINDINGS", ())):
            assert has_method(owner, binding.action), f"{binding.id} of {owner.__name__}"


def test_no_view_forwards_an_action_of_the_table() -> None:
    """The app does them; a view says only what is selected."""
    names = {f"action_{each.name}" for each in ACTIONS if each.subject}
    for view in (View, *VIEWS.values()):
        assert not names & vars(view).keys(), view


def test_every_declared_view_has_its_class() -> None:
    assert [each.name for each in DECLARED if VIEWS[each.name].VIEW is not each] == []


def test_nothing_dispatches_by_name_past_the_table() -> None:
    root = Path(tui.__file__).parent
    found = [path for path in root.rglob("*.py") if re.search(r"getattr\((import_)?module", path.read_text())]
    assert found == []


GREETED: list[tuple[str, ...]] = []
"""Whom the action below was asked to greet."""


def greet(console: Console, request: ActionRequest) -> None:
    """Greet the selected jobs."""
    GREETED.append(tuple(ref.name for ref in request.targets))
    console.notify("Hello there.")


GREET = Action(
    name="greet",
    help="Greet the selected jobs",
    footer="greet",
    subject="window",
    on=(On("jobs", "Z"),),
    commands=("greet", "hail"),
    changes_cluster=True,
    takes_many=True,
)


async def offered(play: Playground) -> str:
    """Return what the palette offers once it has offered all."""

    def options() -> str:
        return "\n".join(str(each.prompt) for each in play.console.screen.query_one(OptionList).options)

    await play.until(lambda: play.console.screen.query(OptionList) and ":quit " in options())
    return options()


@pytest.mark.parametrize("is_read_only", [False, True])
async def test_a_row_that_is_added_is_in_footer_help_palette_commands_and_completion(
    tmp_path: Path, is_read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(window.FUNCTIONS, "greet", greet)
    GREETED.clear()
    is_there = not is_read_only
    jobs = [pytorch_job(name, uid=f"uid-{name}") for name in ("bert", "vit")]
    async with console_on(
        tmp_path,
        nodes=[node("a", 8)],
        jobs=jobs,
        size=(200, 120),
        actions=ActionTable((*ACTIONS, GREET)),
        is_read_only=is_read_only,
    ) as play:
        await play.until(lambda: len(play.table.shown_rows) == 2)
        assert ("Z greet" in play.text.splitlines()[-1]) == is_there
        await play.press("question_mark")
        await play.until(lambda: "Commands, after :" in play.text)
        assert (play.text.count("Greet the selected jobs") == 2) == is_there
        await play.press("escape", "ctrl+p")
        palette = await offered(play)
        assert ("Z           Greet the selected jobs" in palette) == is_there
        assert (":greet      Greet the selected jobs" in palette) == is_there
        await play.press("escape", "colon", *"gre")
        assert ("greet" in play.text) == is_there
        await play.press("tab", "escape", "V", "G", "V", "Z")
        if is_there:
            await play.until(lambda: GREETED == [("bert", "vit")])
            await play.until(lambda: "Hello there." in play.text)
            await play.press("colon", *"hail", "enter")
            await play.until(lambda: len(GREETED) == 2)
        else:
            await play.press("colon", *"hail", "enter")
            await play.until(lambda: "Changes are disabled by --readonly." in play.text)
            assert GREETED == []


def test_a_row_that_is_added_changes_no_other_table() -> None:
    assert GREET not in ACTIONS and all(key.id != "jobs.greet" for key in view_keys(JobsView.VIEW, ACTIONS))
