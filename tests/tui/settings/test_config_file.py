"""The user's config.yaml and keys: used as written, with a message about each invalid entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.screens import ACTIONS, key_table
from tui.screens.base.view_context import ViewContext
from tui.screens.lists.nodes import NodesView
from tui.settings.config_file import Config, read_config
from tui.settings.keys_file import clashes, read_keys
from tui.settings.options import (
    AlertRule,
    Alias,
    ConsoleOptions,
    ContextSettings,
    HistoryOptions,
    NoticeEvent,
    NotifyOptions,
    OwnColumn,
)
from tui.tables import column_keys


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert AlertRule.PLATEAU not in Config().alerts
    assert read_config(tmp_path / "config.yaml") == Config()
    assert read_config(written(tmp_path, "# nothing yet\n")) == Config()


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("theme: light # by day\nfinished_days: 3\n", Config(theme="light", finished_days=3.0)),
        ("accelerators:\n- a.com/npu-*\n- b.com/x\n", Config(accelerators=("a.com/npu-*", "b.com/x"))),
        ("finished_days: 0.5\n", Config(finished_days=0.5)),
        ("finished_days: 36500\n", Config(finished_days=36500.0)),
        ("strip_by: a.io/zone\nloss: off\n", Config(strip_by="a.io/zone", loss=False)),
        ("loss: true\n", Config()),
        ("alerts: off\n", Config(alerts=())),
        ("alerts: [nan, plateau]\n", Config(alerts=(AlertRule.NAN, AlertRule.PLATEAU))),
        ("history: {days: 90, size_mib: 0.0}\n", Config(history=HistoryOptions(days=90, size_mib=0))),
        ("history: off\n", Config(history=HistoryOptions(days=0))),
        ("prometheus: a/b-k8s:9090/prom\n", Config(prometheus="a/b-k8s:9090/prom")),
        ("log_store: lab@https://a.b/c\n", Config(log_store="lab@https://a.b/c")),
        ("notify: off\n", Config(notify=NotifyOptions(events=()))),
        ("notify: {}\n", Config(notify=NotifyOptions())),
        (
            "notify: {events: [failed, nan]}\n",
            Config(notify=NotifyOptions(events=(NoticeEvent.FAILED, NoticeEvent.NAN))),
        ),
        ("notify: {toast: all, counter: off}\n", Config(notify=NotifyOptions(toast="all", counter="off"))),
        ("notify: {terminal: all, bell: off}\n", Config(notify=NotifyOptions(terminal="all", bell="off"))),
        ("notify: {exec: [mail, -s, a b]}\n", Config(notify=NotifyOptions(exec=("mail", "-s", "a b")))),
        ("notify: {exec: mail -s 'a b'}\n", Config(notify=NotifyOptions(exec=("mail", "-s", "a b")))),
        (
            "aliases:\n  Failed: jobs /status:failed\n  po: ':pods kube-system'\n",
            Config(aliases={"failed": Alias("jobs /status:failed", 2), "po": Alias("pods kube-system", 3)}),
        ),
        (
            "columns:\n  jobs: [name, status, {title: TEAM, path: .metadata.labels.team}]\n"
            "  nodes: [name, {title: ZONE, path: '{.metadata.labels.zone}'}]\n",
            Config(
                columns={
                    "jobs": ("name", "status", OwnColumn("TEAM", ".metadata.labels.team")),
                    "nodes": ("name", OwnColumn("ZONE", ".metadata.labels.zone")),
                }
            ),
        ),
        (
            "contexts:\n  prod-*: {readonly: true, theme: light}\n  '*': {namespace: vision}\n",
            Config(
                contexts=(
                    ContextSettings(pattern="prod-*", read_only=True, theme="light"),
                    ContextSettings(pattern="*", namespace="vision"),
                )
            ),
        ),
    ],
)
def test_a_setting_is_read(tmp_path: Path, text: str, config: Config) -> None:
    assert read_config(written(tmp_path, text), column_keys) == config


def test_an_unknown_key_is_reported_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "accelerators: [a.com/b]\nacelerators: [c.com/d]\n? [x]\n: 1\n")
    assert read_config(path) == Config(
        ("a.com/b",), ("acelerators (line 2)", "a key of several parts (line 3)")
    )


# Parts of invalid values that are used nevertheless.
VALID: dict[str, dict[str, Any]] = {
    "theme: dark\nprometheus: http://prom:9090\n": {"theme": "dark"},
    "x: 1\naccelerators:\n- a.com/b\n- 5\n": {"accelerators": ("a.com/b",)},
    "alerts: [nan, high]\n": {"alerts": (AlertRule.NAN,)},
    "notify:\n  toast: all\n  bell: mine\n": {"notify": NotifyOptions(toast="all")},
    "history:\n  days: -1\n  size_mib: 5\n": {"history": HistoryOptions(size_mib=5)},
    "notify:\n  events: [failed,\n    lost]\n": {"notify": NotifyOptions(events=(NoticeEvent.FAILED,))},
    "aliases:\n  a: jobs\n  a: pods\n": {"aliases": {"a": Alias("jobs", 2)}},
    "columns:\n  jobs: [name, name]\n": {"columns": {"jobs": ("name",)}},
    "columns:\n  jobs: [name, nam, status, {title: A}]\n": {"columns": {"jobs": ("name", "status")}},
    "columns:\n  job: [name]\n  nodes: [name]\n": {"columns": {"nodes": ("name",)}},
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "line ") for text in VALID),
        ("accelerators: example.com/npu\n", "line 1, accelerators: a list of resource names is expected."),
        ("x: 1\naccelerators:\n- a.com/b\n- 5\n", "line 4, accelerators: a resource name is expected"),
        ("accelerators: ['']\n", "line 1, accelerators: a resource name is expected"),
        ("accelerators: [[a]]\n", "line 1, accelerators: a resource name is expected"),
        ("accelerators:\n- '*'\n", "line 2, accelerators: * matches resources that are not GPUs."),
        ("strip_by: [zone]\n", "line 1, strip_by: a label of nodes is expected"),
        ("a: 1\nstrip_by:\n", "line 2, strip_by: a label of nodes is expected"),
        ("loss: soon\n", "line 1, loss: true or false is expected."),
        ("loss: !!bool soon\n", "line 1, loss: true or false is expected."),
        ("loss: [true]\n", "line 1, loss: true or false is expected."),
        ("loss: 0\n", "line 1, loss: true or false is expected."),
        ("alerts: [nan, high]\n", "line 1, alerts: nan, diverged, slow or plateau is expected."),
        ("alerts: on\n", "line 1, alerts: a list is expected, of nan, diverged, slow, plateau."),
        ("notify: loud\n", "line 1, notify: settings are expected, as `bell: off`, or off."),
        ("notify:\n  bel: off\n", "line 2, notify: the settings are events, toast, counter, terminal,"),
        ("notify:\n  toast: all\n  bell: mine\n", "line 3, notify: bell: failures, all or off is expected."),
        ("notify: {toast: [mine]}\n", "line 1, notify: toast: mine, all or off is expected."),
        (
            "notify:\n  events: [failed,\n    lost]\n",
            "line 3, notify: events: failed, silent, nan, diverged,",
        ),
        ("notify: {events: failed}\n", "line 1, notify: events: a list is expected, of failed, silent,"),
        ('notify: {exec: "a \'b"}\n', "line 1, notify: exec: a command is expected, as [notify-send,"),
        ("notify: {exec: []}\n", "line 1, notify: exec: a command is expected"),
        ("notify: {exec: [a, 5]}\n", "line 1, notify: exec: a command is expected"),
        ('notify: {exec: ["a\\0"]}\n', "line 1, notify: exec: a command is expected"),
        ("history: 30\n", "line 1, history: settings are expected, as `days: 90`, or off."),
        ("history: {weeks: 1}\n", "line 1, history: the settings are size_mib, days."),
        ("history: {size_mib: 0.5}\n", "line 1, history: size_mib: a number of MiB is expected, from 1 to"),
        ("history: {size_mib: 2e6}\n", "line 1, history: size_mib: a number of MiB is expected"),
        ("history: {days: 36501}\n", "line 1, history: days: a number of days is expected, at most 36500"),
        ("history:\n  days: .nan\n", "line 2, history: days: a number of days is expected"),
        ("theme: [dark]\n", "line 1, theme: the name of a theme is expected, as dark."),
        ("a: 1\ntheme:\n", "line 2, theme: the name of a theme is expected"),
        ("a: 1\nfinished_days: 0\n", "line 2, finished_days: a number of days is expected, more than 0"),
        ("finished_days: -1\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: .nan\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: .inf\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: soon\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days:\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: [7]\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: '7'\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: !!int soon\n", "line 1, finished_days: a number of days is expected"),
        ("finished_days: true\n", "line 1, finished_days: a number of days is expected"),
        ("theme: dark\nprometheus: http://prom:9090\n", "line 2, prometheus: a service is expected"),
        (
            "log_store: https://li:secret@a.b\n",
            "line 1, log_store: a service or a URL without user, password",
        ),
        ("prometheus: [a]\n", "line 1, prometheus: a service is expected"),
        (f"loss: '{'[' * 3000}'\n", "line 1, loss: true or false is expected"),
        (f"finished_days: !!int '{'[' * 3000}'\n", "line 1, finished_days: a number of days"),
        ("aliases: [a]\n", "line 1, aliases: commands are expected, as `failed: jobs /status:failed`."),
        ("aliases:\n  a b: jobs\n", "line 2, aliases: commands are expected"),
        ("aliases:\n  a: [jobs]\n", "line 2, aliases: commands are expected"),
        ("aliases:\n  a: ':'\n", "line 2, aliases: commands are expected"),
        ("aliases:\n  a: jobs\n  a: pods\n", "line 3, aliases: a is given twice."),
        ('aliases: {a: "jobs \\e[31m"}\n', "line 1, aliases: commands are expected"),
        ("columns: [name]\n", "line 1, columns: lists and their columns are expected, as `jobs: [name,"),
        ("columns:\n  job: [name]\n", "line 2, columns: there is no list job; there are jobs, pods, nodes,"),
        ("columns:\n  jobs: name\n", "line 2, columns: lists and their columns are expected"),
        ("columns:\n  jobs: []\n", "line 2, columns: lists and their columns are expected"),
        ("columns:\n  jobs: [nam]\n", "line 2, columns: there is no column nam; there are name, namespace,"),
        ("columns:\n  jobs: [name, name]\n", "line 2, columns: jobs: name is given twice."),
        ("columns:\n  jobs: [{title: A}]\n", "line 2, columns: a title and a path are expected, as {title:"),
        ("columns:\n  jobs: [{title: A, path: b, c: d}]\n", "line 2, columns: a title and a path are"),
        ("columns:\n  jobs: [{title: A, path: '.a['}]\n", "line 2, columns: unexpected '[' in '.a['."),
        ("columns:\n  jobs: [{title: A, path: [b]}]\n", "line 2, columns: a title and a path are expected"),
        (f"columns:\n  jobs: [{{title: {'A' * 31}, path: .b}}]\n", "line 2, columns: a title of at most 30"),
        ("contexts: prod\n", "line 1, contexts: names of contexts and settings are expected, as `prod-*:"),
        ("contexts:\n  prod: true\n", "line 2, contexts: prod: settings are expected, as `readonly: true`."),
        ("contexts:\n  a: {readonly: maybe}\n", "line 2, contexts: a: readonly: true or false is expected."),
        (
            "contexts:\n  a:\n    read_only: true\n",
            "line 3, contexts: a: read_only: the settings are readonly,",
        ),
        ("contexts:\n  a: {namespace: A_b}\n", "line 2, contexts: a: namespace: the name of a namespace is"),
        ("contexts:\n  a: {theme: [x]}\n", "line 2, contexts: a: theme: the name of a theme is expected"),
        ("- accelerators\n", "line 1: keys and values are expected"),
        ("a: 1\nb: [1\n", "line 3: "),
        ("a: \x01\n", "line 1: not valid YAML."),
    ],
)
def test_an_invalid_value_is_reported_with_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    found = read_config(path, column_keys)
    assert found.problems[0].startswith(f"{path}, {words}")
    rest = {name: getattr(found, name) for name in ("problems", "unknown", "contexts")}
    assert found == Config(**rest, **VALID.get(text, {}))


def test_every_invalid_value_is_reported_and_valid_values_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "theme: [a]\nloss: false\nfinished_days: soon\nstrip_by: 5\n")
    found = read_config(path)
    assert not found.loss and found.finished_days == Config().finished_days
    assert [each.split(": ")[0] for each in found.problems] == [
        f"{path}, line {line}, {key}" for line, key in ((1, "theme"), (3, "finished_days"), (4, "strip_by"))
    ]


@pytest.mark.parametrize("text", ["{a: " * 20_000, "a: " + "{a: " * 20_000])
def test_a_deeply_nested_file_is_rejected_with_a_readable_message(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    words = f"{path} cannot be read: it is nested too deeply."
    assert read_config(path).problems == (words,)
    assert read_keys(path, key_table()).problems == (words,)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert f"{path} cannot be read" in read_config(path).problems[0]
    (tmp_path / "folder").mkdir()
    assert "folder cannot be read" in read_config(tmp_path / "folder").problems[0]


@settings(max_examples=50)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_parsed_and_every_problem_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = written(tmp_path_factory.mktemp("any"), text)
    assert all(str(path) in problem for problem in read_config(path).problems)


def test_a_mistake_makes_no_other_context_writable(tmp_path: Path) -> None:
    text = "contexts:\n  lab: {readonly: maybe}\n  prod: {readonly: true, colour: red}\n  prod: {}\n"
    found = read_config(written(tmp_path, text), column_keys)
    assert [problem.split(": ")[1] for problem in found.problems] == ["lab", "prod", "prod is given twice."]
    for name in ("prod", "lab"):
        assert ConsoleOptions(contexts=found.contexts).in_context(name).is_read_only


@pytest.mark.parametrize(
    "text", ["contexts: [{prod: {readonly: true}}]\n", "contexts:\n  prod: {readonly: true\n"]
)
def test_contexts_that_cannot_be_read_disable_changes(tmp_path: Path, text: str) -> None:
    found = read_config(written(tmp_path, text), column_keys)
    assert "changes are disabled" in found.problems[0] and found.problems[0].endswith(".")
    assert ConsoleOptions(contexts=found.contexts).in_context("lab").is_read_only
    assert not read_config(written(tmp_path, "theme: [\n")).contexts


SETTINGS = (
    ContextSettings(pattern="prod-eu", read_only=False),
    ContextSettings(pattern="prod-*", read_only=True, namespace="train", theme="light"),
    ContextSettings(pattern="*", namespace="vision"),
)


@pytest.mark.parametrize(
    ("name", "flags", "found"),
    [
        ("prod-us", {}, (True, "train", "light")),
        ("prod-eu", {}, (False, "train", "light")),
        ("lab", {}, (False, "vision", "")),
        ("lab", {"is_read_only": True}, (True, "vision", "")),
        ("prod-eu", {"is_read_only": True}, (True, "train", "light")),
        ("prod-us", {"namespace": "mine"}, (True, "mine", "light")),
    ],
)
def test_the_first_matching_context_entry_applies_and_flags_override_it(
    name: str, flags: dict[str, object], found: tuple[bool, str, str]
) -> None:
    options = ConsoleOptions(contexts=SETTINGS, **flags)  # type: ignore[arg-type]
    once = options.in_context(name)
    assert (once.is_read_only, once.namespace, once.context_theme) == found
    assert once.in_context("lab").is_read_only == bool(flags.get("is_read_only"))
    assert once.in_context("prod-us").is_read_only


_NAMES = st.sampled_from(["jobs", "nodes", "name", "status", "title", "path", "readonly", "*", "a"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | _NAMES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(st.sampled_from(["aliases", "columns", "contexts"]), _VALUES)
def test_any_value_of_a_list_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(json.dumps({key: value}))
    found = read_config(path, column_keys)
    assert all(str(path) in problem for problem in found.problems)
    ConsoleOptions(contexts=found.contexts).in_context("a")


TABLE = key_table()


def read(tmp_path: Path, text: str) -> tuple[dict[str, str], str]:
    path = tmp_path / "keys.yaml"
    path.write_text(text, encoding="utf-8")
    found = read_keys(path, TABLE)
    return dict(found.keymap), "\n".join(found.problems).replace(str(tmp_path), "")


def test_without_a_keys_file_the_default_keys_apply(tmp_path: Path) -> None:
    found = read_keys(tmp_path / "keys.yaml", TABLE)
    assert found.keymap == {}
    assert found.problems == ()


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("L", "L"),
        ("[L, f2]", "L,f2"),
        ("'!'", "exclamation_mark"),
        ("^l", "ctrl+l"),
        ("ctrl-l", "ctrl+l"),
        ("Ctrl+L", "ctrl+l"),
        ("7", "7"),
        ("F5", "f5"),
    ],
)
def test_key_names_are_accepted_in_common_spellings(tmp_path: Path, written: str, named: str) -> None:
    keymap, problems = read(tmp_path, f"row.logs: {written}\n")
    assert keymap == {"row.logs": named}
    assert problems == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs.lgos: L", "/keys.yaml, line 1: unknown key id 'jobs.lgos'; gpuconsole info --keys"),
        ("\nrow.logs: {a: b}", "line 2: row.logs wants a key or a list of keys"),
        ("row.logs: alt+l", "'alt+l' is not a key that every terminal sends"),
        ("row.logs: wombat", "'wombat' is not a key that every terminal sends"),
        ("row.logs: ''", "row.logs wants a key"),
        ("prompt.submit: x", "prompt.submit cannot be 'x', which is typed as text there"),
        ("jobs.logs: L", "unknown key id 'jobs.logs'; use row.logs"),
        ("text.page_up: b", "unknown key id 'text.page_up'; use scroll.page_up"),
        ("pods.sort_name: b", "unknown key id 'pods.sort_name'; use table.sort_name"),
        ("nodes.sort_free: b", "unknown key id 'nodes.sort_free'; use table.sort"),
        ("[1, 2]", "ids and keys are expected"),
        ("row.logs: [", "line 1:"),
    ],
)
def test_an_invalid_key_binding_is_reported_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    keymap, problems = read(tmp_path, text)
    assert keymap == {}
    assert problem in problems


def test_an_unknown_key_id_does_not_discard_the_other_bindings(tmp_path: Path) -> None:
    keymap, problems = read(tmp_path, "row.logs: L\nnothing.at_all: x\nrow.curves: f3\n")
    assert keymap == {"row.logs": "L", "row.curves": "f3"}
    assert problems.count("\n") == 0


def test_a_key_bound_to_two_actions_in_one_view_is_reported(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "row.logs: n\n")
    assert "Jobs: n means jobs.new and row.logs" in problems


def test_a_key_shadowed_by_the_focused_widget_is_reported() -> None:
    for keymap, words in [
        ({"row.logs": "j"}, "Jobs: j means table.down and row.logs; the first is done."),
        ({"table.mark": "l"}, "Jobs: l means table.mark and row.logs; the first is done."),
        ({"logs.ranks": "j"}, "Logs: j means scroll.down and logs.ranks; the first is done."),
        ({"log.mark": "r"}, "Logs: r means log.mark and logs.ranks; the first is done."),
        ({"chart.left": "j"}, "Curves: j means chart.left and curves.next; the first is done."),
        ({"strip.left": "W"}, "Beside the jobs: W means strip.left and row.why; the first is done."),
    ]:
        assert words in clashes(keymap, TABLE)


def test_the_footer_omits_keys_shadowed_by_other_bindings() -> None:
    view = NodesView()
    view.context = ViewContext({"nodes.gpu_links": "j", "nodes.next_view": "o"}, actions=ACTIONS)
    shown = {key.id: key.keys for key in view.bar_keys}
    assert "nodes.gpu_links" not in shown and shown["nodes.next_view"] == "o"
    assert "nodes.largest_job" not in shown


def test_default_keys_do_not_clash() -> None:
    assert list(clashes({}, TABLE)) == []
    assert list(clashes({key.id: key.keys for _, keys in TABLE.sections for key in keys}, TABLE)) == []


def test_ids_are_unique() -> None:
    ids = [key.id for _, table in TABLE.sections for key in table]
    assert len(ids) == len(set(ids))


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"row.logs: {text}".encode()))
def test_any_bytes_are_parsed_or_rejected(raw: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.yaml"
        path.write_bytes(raw)
        found = read_keys(path, TABLE)
        assert all(isinstance(keys, str) and keys for keys in found.keymap.values())
