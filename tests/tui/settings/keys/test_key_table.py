"""Each key has one binding and one action in each view; help, footer, palette and commands follow.

Only the last test opens a console.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from textual.actions import parse
from textual.binding import Binding
from textual.dom import DOMNode

import tui
from k8s.jobs.permissions import needs_of
from k8s.kinds import JobRef
from tests import ROOT
from tests.support.objects import node, pytorch_job
from tests.support.playground import console_on
from tui.__main__ import main
from tui.app import Console
from tui.runs.store import RunStore
from tui.screens import ACTIONS, key_table
from tui.screens import VIEWS as DECLARED
from tui.screens.base.feed_view import DescribedList
from tui.screens.base.list_view import ListView
from tui.screens.base.request import ActionRequest, Route
from tui.screens.base.view import INTERRUPT, View
from tui.screens.base.view_context import ViewContext
from tui.screens.dialogs.help import ActionProvider, HelpScreen
from tui.screens.lists import compare, contexts, notices, pods, timeline, volumes
from tui.screens.lists.home_panes import PaneName, pane_keys
from tui.screens.lists.jobs import JobsView
from tui.settings.keys import EVERYWHERE, ROW, TABLE, Action, ActionTable, Argument, Key, On, view_keys
from tui.settings.keys.advice import console_advice
from tui.settings.keys.completion import complete, nearest_command
from tui.verbs import window
from tui.verbs.registry import find_functions
from tui.widgets.form.fields import ChoiceField, TextField
from tui.widgets.form.job_fields import FieldsTitle
from tui.widgets.log.view import LogView

JOB = JobRef("lab", "bert", "PyTorchJob", "kubeflow.org/v1")
KEYS: Mapping[str, Key] = {key.id: key for _, keys in key_table().sections for key in keys}
OF_FORMS = (TextField, ChoiceField, FieldsTitle)
"""Widgets with the keys of any form, which are not in the table."""


def subclasses(owner: type[Any]) -> Iterator[type[Any]]:
    """Yield every class of the console below `owner`, all modules imported."""
    for found in pkgutil.walk_packages(tui.__path__, "tui."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    todo = list(owner.__subclasses__())
    while todo:
        each = todo.pop()
        todo += each.__subclasses__()
        if each.__module__.startswith("tui."):
            yield each


def class_of(view: DescribedList) -> type[View]:
    """Return a class with what the list's description says."""
    described = {name: getattr(view, name) for name in ("VIEW", "COLUMNS", "ON_ENTER")}
    return type("Described", (DescribedList,), described)


DESCRIBED = [pods.pods_view(), volumes.volumes_view(), contexts.namespaces_view(), notices.notices_view()]
DESCRIBED += [compare.runs_view(RunStore()), timeline.TimelineView()]
VIEWS: Mapping[str, type[View]] = {
    each.VIEW.name: each for each in (*subclasses(View), *map(class_of, DESCRIBED)) if each.VIEW.name
}
"""Views with keys of their own, by name; of the text views, any."""


def names_of(key: Key) -> list[str]:
    return [name.strip() for name in key.keys.split(",")]


def takes(owner: type[Any], action: str) -> bool:
    """Return True if a Textual action, such as `sort('name')`, has a method that takes its arguments."""
    place, name, arguments = parse(action)
    owners: dict[str, type[Any]] = {"app": Console, "screen": View}
    method = getattr(owners.get(place, owner), f"action_{name}", None)
    if method is None:
        return False
    inspect.signature(method).bind(None, *arguments)
    match name, arguments:
        case "request", (str(wanted),):
            return ACTIONS.find(wanted) is not None
        case "switch", (str(attribute),):
            return hasattr(LogView, attribute)
        case "focus_pane", (pane,):
            return pane in get_args(PaneName)
    return True


def view_of(
    owner: type[View],
    *,
    job: JobRef | None = None,
    is_read_only: bool = False,
    actions: ActionTable = ACTIONS,
) -> View:
    """Create a view without a console, with its keys bound as by mounting it."""
    view: View = owner() if owner is JobsView else owner.__new__(owner)
    if owner is not JobsView:  # the others need a cluster only for what they show
        View.__init__(view)
    view.context = ViewContext(is_read_only=is_read_only, actions=actions)
    view.route = Route(owner.VIEW.name, job=job)
    View.on_mount(view)
    return view


def bound(view: View) -> dict[str, tuple[str | None, str]]:
    """Return the id and the action of each key that a view handles.

    Raises:
        AssertionError: A key has several actions.
    """
    found = {}
    for name, each in view._bindings.key_to_bindings.items():
        (found[name],) = {(binding.id, binding.action) for binding in each}
    return found


@pytest.mark.parametrize("is_read_only", [False, True])
@pytest.mark.parametrize("owner", VIEWS.values(), ids=list(VIEWS))
def test_each_key_of_a_view_is_bound_to_one_action_that_exists(owner: type[View], is_read_only: bool) -> None:
    """Withheld keys stay bound, so that the app explains the refusal."""
    bindings = bound(view_of(owner, is_read_only=is_read_only))
    keys = (*view_keys(owner.VIEW, ACTIONS), *ACTIONS.keys(EVERYWHERE))
    wanted = {name: key for key in keys for name in names_of(key) if key.id != INTERRUPT}
    assert sum(len(names_of(key)) for key in keys) - 1 == len(wanted), "two keys have the same name"
    for name, key in wanted.items():
        assert bindings[name] == (key.id, key.action)
        assert takes(owner, key.action), f"{name}: {key.action}"


def test_each_binding_of_a_widget_is_a_key_of_the_table_with_a_method() -> None:
    for owner in subclasses(DOMNode):
        names = set()
        for binding in Binding.make_bindings(owner.__dict__.get("BINDINGS", ())):
            assert binding.key not in names, f"{binding.key} of {owner.__name__} has two actions"
            names.add(binding.key)
            assert takes(owner, binding.action), f"{binding.action} of {owner.__name__}"
            if owner not in OF_FORMS:
                assert binding.id is not None
                assert binding.key in names_of(KEYS[binding.id]), f"{binding.key} of {owner.__name__}"


FOCUSED = {
    "curves": {"chart.rougher": "app.last_view"},
    "logs": {"log.copy": "app.copy", "log.save": "app.save"},
}
"""Keys of a focused widget that shadow keys of its view, by the view."""


@pytest.mark.parametrize("view", DECLARED, ids=lambda view: view.name)
def test_a_focused_widget_shadows_only_the_intended_keys(view: Any) -> None:
    others = {
        name: key.id
        for key in (*view_keys(view, ACTIONS), *ACTIONS.keys(EVERYWHERE))
        for name in names_of(key)
    }
    shadowed = {key.id: others[name] for key in view.focused for name in names_of(key) if name in others}
    assert shadowed == FOCUSED.get(view.name, {})


def test_each_list_is_sorted_by_name_with_one_key() -> None:
    columns_of = {key.id: str(parse(key.action)[2]) for key in TABLE if key.action.startswith("sort_first")}
    lists = [each for each in VIEWS.values() if issubclass(each, ListView) and each.COLUMNS]
    assert len(lists) > 8
    for owner in lists:
        columns = {f"'{column.key}'" for column in owner.COLUMNS}
        assert any(each in columns_of["table.sort_name"] for each in columns), owner
        ages = columns & {"'age'", "'since'", "'ended'"}
        assert not ages or any(each in columns_of["table.sort_age"] for each in ages), owner


def test_tab_goes_through_the_lists_that_the_footer_names() -> None:
    views = {view.name: view for view in DECLARED}
    chain = ["jobs"]
    while (after := views[chain[-1]].next_view) not in chain:
        chain.append(after)
    assert chain == ["jobs", "nodes", "events", "volumes"] and after == "jobs"
    for view in DECLARED:
        on_tab = [key for key in view_keys(view, ACTIONS) if key.keys == "tab" and "next_view" in key.id]
        assert [key.footer for key in on_tab] == [view.next_view] * bool(view.next_view)
        assert not view.next_view or ACTIONS.find(view.next_view) is not None


OWN: Mapping[str, Sequence[str]] = {
    "text": ("ctrl+d",),
    "yaml": ("ctrl+d",),
    "gpus": ("T", "d"),
    "logs": ("ctrl+d", "f", "l", "p", "s"),
    "curves": ("H", "l", "y"),
}
"""Letters of a job that a view about one, or its focused widget, uses for something else."""


LETTERS = {name: key.action for key in ACTIONS.keys(ROW) for name in names_of(key) if name != "enter"}
"""Actions on a job by letter; each works in the view of one job, and on its row in any list."""


@pytest.mark.parametrize("name", OWN)
def test_the_letters_of_a_job_work_in_each_view_about_one_except_where_it_has_its_own(name: str) -> None:
    bindings = bound(view_of(VIEWS[name], job=JOB))
    declared = VIEWS[name].VIEW
    keys = (*view_keys(declared, ACTIONS), *declared.focused, *TABLE)
    own = {each for key in keys for each in names_of(key)}
    assert own & LETTERS.keys() == set(OWN[name])
    done = {letter for letter in LETTERS if bindings.get(letter, ("", ""))[1] == LETTERS[letter]}
    assert done == LETTERS.keys() - own and bindings.get("enter", ("", ""))[1] != LETTERS["d"]


def test_a_letter_means_the_same_in_each_list_whose_rows_belong_to_jobs() -> None:
    of_jobs = [view for view in DECLARED if view.has_job_rows]
    assert len(of_jobs) == 10
    for view in of_jobs:
        bindings = bound(view_of(VIEWS[view.name]))
        own = {name for key in view_keys(view, ACTIONS) for name in names_of(key)}
        for letter in LETTERS.keys() - own:
            assert bindings[letter][1] == LETTERS[letter]
        assert not own & {*"lmuWXysbHR", "ctrl+d"}


CHANGING = {
    "jobs": {"new"},
    "row": {"clone", "edit", "delete", "suspend", "resume", "shell"},
    "strip": {"gpu_schedule"},
    "nodes": {"gpu_schedule"},
    "gpus": {"gpu_schedule"},
}
"""Keys that may change the cluster, by view."""


def test_only_the_known_keys_change_the_cluster() -> None:
    found: dict[str, set[str]] = {}
    for key in KEYS.values():
        if key.changes_cluster:
            view, _, name = key.id.partition(".")
            found.setdefault(view, set()).add(name)
    assert found == CHANGING


@pytest.mark.parametrize("is_read_only", [False, True])
def test_with_readonly_a_command_that_changes_the_cluster_is_offered_nowhere(is_read_only: bool) -> None:
    view = view_of(JobsView, is_read_only=is_read_only)
    in_help = {shown for shown, _ in helped((), view.context)}
    in_palette = {shortcut for _, shortcut in offered(view)}
    for action in ACTIONS.commands():
        is_there = not (is_read_only and action.changes_cluster)
        assert (action.usage in in_help) == is_there
        if action.argument in ("", "filter", "topic"):
            assert (f":{action.commands[0]}" in in_palette) == is_there
        if action.changes_cluster:
            for word in action.commands:
                assert (
                    nearest_command(f"{word}x", (), ACTIONS, is_read_only=is_read_only) == word
                ) == is_there


def footer_of(view: View) -> list[Key]:
    """Return the keys of the footer; those of home without its panes."""
    return list(View.bar_keys.__get__(view))


def helped(keys: Sequence[Key], context: ViewContext) -> list[tuple[str, str]]:
    screen = HelpScreen("This view", keys, context, {})
    lines = [*screen._section("This view", keys), *screen._section("Everywhere", context.everywhere_keys)]
    return [(shown, words) for shown, words, _ in (*lines, *screen._commands())]


def offered(view: View) -> list[tuple[str, str]]:
    """Return the lines of the palette, each with its key or command."""
    return [(label, shortcut) for label, shortcut, _ in ActionProvider(view)._all()]


@pytest.mark.parametrize("is_read_only", [False, True])
@pytest.mark.parametrize("owner", VIEWS.values(), ids=list(VIEWS))
def test_help_palette_and_footer_have_each_key_of_the_view_that_is_not_withheld(
    owner: type[View], is_read_only: bool
) -> None:
    view = view_of(owner, is_read_only=is_read_only)
    help_lines, palette = helped(view.keys, view.context), offered(view)
    footer = {key.id for key in footer_of(view)}
    shadowed = {name for key in owner.VIEW.focused for name in names_of(key)}
    for key in (*view_keys(owner.VIEW, ACTIONS), *ACTIONS.keys(EVERYWHERE)):
        is_there = not (is_read_only and key.changes_cluster)
        assert ((key.all_shown, key.help) in help_lines) == is_there
        assert ((key.help, key.all_shown) in palette) == (
            is_there and key.id not in ("app.palette", INTERRUPT)
        )
        assert (key.id in footer) == (is_there and bool(set(names_of(key)) - shadowed))


def test_a_focused_node_has_its_keys_in_place_of_those_of_jobs() -> None:
    for is_read_only in (False, True):
        view = view_of(JobsView, is_read_only=is_read_only)
        of_nodes = view.context.keys(ACTIONS.keys("strip"))
        names = {key.id for key in pane_keys("nodes", view.keys, of_nodes, ACTIONS)}
        assert ("strip.gpu_schedule" in names) != is_read_only
        assert "strip.gpu_links" in names and "jobs.mine" in names
        assert not names & {"row.logs", "row.delete"}


@pytest.mark.parametrize("action", ACTIONS.actions, ids=lambda action: action.name)
def test_each_action_has_its_function_and_a_key_or_a_command(action: Action) -> None:
    assert bool(action.subject) != bool(action.method)
    assert (action.name in find_functions(action)) == bool(action.subject)
    for on in action.on:
        owner = Console if action.name == "interrupt" else VIEWS.get(on.view, View)
        assert on.view in (EVERYWHERE, ROW, "strip", *VIEWS)
        assert takes(owner, action.key(on).action)
        assert action.key(on).id in KEYS, "the key has no heading in help and manual"
    if action.permission:
        assert needs_of(action.permission, JOB)
    assert action.on or action.commands
    assert action.name in action.commands or not action.commands


def test_each_action_command_and_id_is_in_the_table_once() -> None:
    names = [each.name for each in ACTIONS]
    words = [word for each in ACTIONS for word in each.commands]
    ids = [key.id for _, keys in key_table().sections for key in keys]
    assert [len(each) for each in (names, words, ids)] == [len(set(each)) for each in (names, words, ids)]


def test_each_declared_view_has_its_class_and_leaves_actions_of_the_table_to_the_app() -> None:
    assert [each.name for each in DECLARED if VIEWS[each.name].VIEW is not each] == []
    names = {f"action_{each.name}" for each in ACTIONS if each.subject}
    for view in (View, *VIEWS.values()):
        assert not names & vars(view).keys(), view


def test_no_module_dispatches_functions_by_name_outside_the_action_table() -> None:
    root = Path(tui.__file__).parent
    found = [path for path in root.rglob("*.py") if re.search(r"getattr\((import_)?module", path.read_text())]
    assert found == []


def test_info_prints_each_id_with_its_keys_and_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["info", "--keys"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for key in KEYS.values():
        (line,) = [line for line in lines if line.split()[:1] == [key.id]]
        assert line.endswith(key.help) and f" {key.all_shown} " in line


NAMES: dict[Argument, list[str]] = {
    "job": ["bert-large", "vit"],
    "namespace": ["all", "vision"],
    "kind": ["pytorchjobs"],
}


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("", ""),
        ("no", "nodes"),
        ("NO", "nodes"),
        ("logs", ""),
        ("logs ", "logs bert-large"),
        ("logs v", "logs vit"),
        ("log v", "log vit"),
        ("ns v", "ns vision"),
        ("jobs x", ""),
        ("nonsense x", ""),
        ("py", "pytorchjobs"),
    ],
)
def test_a_command_is_completed_with_its_argument(typed: str, whole: str) -> None:
    assert complete(typed, NAMES, ACTIONS) == whole


def test_completion_prefers_the_newest_entry_of_the_history() -> None:
    history = ["nodes", "ns vision", "new"]
    assert complete("n", NAMES, ACTIONS, history) == "new"
    assert complete("ns", NAMES, ACTIONS, history) == "ns vision"


@pytest.mark.parametrize(
    ("word", "meant"), [("volums", "volumes"), ("pytorchjob", "pytorchjobs"), ("zzz", ""), ("submt", "")]
)
def test_an_unknown_command_suggests_the_nearest_permitted_command(word: str, meant: str) -> None:
    assert nearest_command(word, NAMES["kind"], ACTIONS, is_read_only=True) == meant


SOURCES = sorted([*(ROOT / "k8s" / "reasons").rglob("*.py"), *(ROOT / "k8s" / "logs").rglob("*.py")])


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Resume it: gpuconsole resume bert", "Resume it: R"),
        ("See what it printed: gpuconsole logs bert -i worker-0", "See what it printed: l on worker-0"),
        ("See what it printed: gpuconsole logs bert -i w-0 -c init", "See what it printed: l on w-0"),
        ("See what it printed: gpuconsole logs bert -i w-0 --previous", "See what it printed: p on w-0"),
        ("See what it printed: gpuconsole logs bert -r 17", "See what it printed: l on rank 17"),
        ("Create the claim, or name one that exists: gpuconsole data list", ":volumes"),
        ("Ask why with: gpuconsole why", "Ask why with: W"),
        ("Start over: gpuconsole sandbox reset", "Start over: gpuconsole sandbox reset"),
    ],
)
def test_advice_names_the_console_key_of_a_command_when_it_has_one(said: str, shown: str) -> None:
    assert console_advice(said, {}).endswith(shown)
    assert console_advice(said, {"row.resume": "ctrl+t"}).endswith(shown.replace(": R", ": ^t"))


def test_every_command_that_diagnosis_advises_has_a_key() -> None:
    texts = re.findall(
        r'f?"([^"\n]*(?:gpuconsole|kubectl) [a-z][^"\n]*)"', "\n".join(map(Path.read_text, SOURCES))
    )
    advised = [
        re.sub(r"\{[^}]*\}", "x", text) for text in texts if ": gpuconsole" in text or ": kubectl" in text
    ]
    assert len(advised) >= 5
    for text in advised:
        assert not re.search("gpuconsole|kubectl", console_advice(text, {})), text


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


@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_new_row_is_in_footer_help_palette_and_completion(is_read_only: bool) -> None:
    actions = ActionTable((*ACTIONS, GREET))
    view = view_of(JobsView, is_read_only=is_read_only, actions=actions)
    is_there = not is_read_only
    assert bound(view)["Z"] == ("jobs.greet", "request('greet')")
    assert (("Z", "greet") in [(key.shown, key.footer) for key in footer_of(view)]) == is_there
    in_help = helped(view.keys, view.context)
    assert (("Z", GREET.help) in in_help, ("greet", GREET.help) in in_help) == (is_there, is_there)
    in_palette = offered(view)
    assert ((GREET.help, "Z") in in_palette, (GREET.help, ":greet") in in_palette) == (is_there, is_there)
    assert complete("gre", {}, actions, is_read_only=is_read_only) == ("greet" if is_there else "")
    assert GREET not in ACTIONS and all(key.id != "jobs.greet" for key in view_keys(JobsView.VIEW, ACTIONS))


async def test_the_key_and_the_commands_of_a_new_row_call_its_function_with_the_marked_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted: list[tuple[str, ...]] = []

    def greet(console: Console, request: ActionRequest) -> None:
        greeted.append(tuple(ref.name for ref in request.targets))

    monkeypatch.setitem(window.FUNCTIONS, "greet", greet)
    jobs = [pytorch_job(name, uid=f"uid-{name}") for name in ("bert", "vit")]
    async with console_on(
        tmp_path, nodes=[node("a", 8)], jobs=jobs, actions=ActionTable((*ACTIONS, GREET))
    ) as play:
        await play.until(lambda: len(play.table.shown_rows) == 2)
        await play.press("V", "G", "V", "Z", "colon", *"hail", "enter")
        await play.until(lambda: len(greeted) == 2)
        assert greeted[0] == ("bert", "vit")
