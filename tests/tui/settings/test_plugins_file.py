"""The user's plugins and causes of failures: used as written, and every invalid entry is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.reasons.failures import CAUSES, triage
from tests.support.failures import container_log
from tui.screens import ACTIONS, VIEWS
from tui.settings.causes_file import UserCauses, read_causes
from tui.settings.plugins_file import UserPlugins, read_plugins

# From k9s' own collection, shortened.
K9S = """
plugins:
  #--- Run a debug container
  stern:
    shortCut: Ctrl-Y
    confirm: false
    description: "Logs <Stern>"
    scopes:
      - pods
    command: stern
    background: false
    args:
      - --tail
      - 50
      - $NAME
      - -n
      - $NAMESPACE
      - --context
      - $CONTEXT
  Remove_finalizers:
    shortCut: "Shift-X "
    override: true
    confirm: true
    dangerous: true
    scopes: [all]
    description: |
      Removes all finalizers
    command: kubectl
    args: [patch, $RESOURCE_NAME.$RESOURCE_GROUP, $NAME]
  helm-values:
    shortCut: v
    description: Values
    scopes: [helm]
    command: sh
"""


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "plugins.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def read(path: Path) -> UserPlugins:
    return read_plugins(path, ACTIONS, VIEWS, {})


def test_without_a_file_there_are_no_plugins(tmp_path: Path) -> None:
    assert read(tmp_path / "plugins.yaml") == UserPlugins()
    assert read(write(tmp_path, "# none yet\nplugins:\n")) == UserPlugins()


def test_a_k9s_plugins_file_is_read(tmp_path: Path) -> None:
    found = read(write(tmp_path, K9S))
    stern, finalizers = found.plugins
    assert found.problems == () and found.unused == ("helm-values (helm)",)
    assert stern.argv == ("stern", "--tail", "50", "$NAME", "-n", "$NAMESPACE", "--context", "$CONTEXT")
    assert [(on.view, on.keys) for on in stern.on] == [("pods", "ctrl+y")]
    assert (stern.commands, stern.asks_first, stern.changes_cluster) == (("stern",), False, False)
    assert {on.view for on in finalizers.on} == {view.name for view in VIEWS}
    assert {on.keys for on in finalizers.on} == {"X"}
    assert finalizers.commands == ("remove_finalizers",)
    assert finalizers.asks_first and finalizers.changes_cluster


def plugin(**fields: object) -> str:
    whole = {"shortCut": "Ctrl-L", "scopes": ["jobs"], "command": "x", **fields}
    return json.dumps({"plugins": {"mine": {name: value for name, value in whole.items() if value != ""}}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugins: [a]\n", "line 1: names and plugins are expected"),
        ("hotKeys: {}\n", "line 1: unknown key hotKeys; plugins are below `plugins:`."),
        ("- a\n", "line 1: keys and values are expected, as `plugins: {NAME: "),
        ("plugins:\n  mine: 1\n", "line 2, mine: a plugin is expected, with shortCut, scopes, command."),
        ("plugins:\n  'a b': {}\n", "line 2, a b: a name of letters, digits and hyphens is expected."),
        ("plugins:\n  mine:\n    scopes: [jobs]\n", "line 2, mine: shortCut, command is missing."),
        (plugin(comand="y"), "line 1, mine: unknown key comand; there are shortCut, description, scopes,"),
        (plugin(pipes=["a"]), "line 1, mine: pipes is not supported; pipe in a shell"),
        (plugin(inputs=[]), "line 1, mine: inputs is not supported; let the program ask."),
        (plugin(shortCut="Alt-L"), "line 1, mine: shortCut: 'Alt-L' is not a key that every terminal sends"),
        (plugin(shortCut=["a"]), "line 1, mine: shortCut: a text is expected."),
        (plugin(shortCut="b"), "line 1, mine: b is row.clone in jobs, so it is not bound there."),
        (plugin(shortCut="j", override=True), "line 1, mine: j is table.down in jobs, so it is not bound"),
        (plugin(shortCut="/", override=True), "line 1, mine: / is app.filter in jobs, so it is not bound"),
        (plugin(shortCut="w", scopes=["logs"]), "line 1, mine: w is log.wrap in logs, so it is not bound"),
        (plugin(shortCut="b", scopes=["logs"]), "line 1, mine: b is row.clone in logs, so it is not bound"),
        (plugin(shortCut="y", scopes=["all"]), "line 1, mine: y is row.yaml in jobs, "),
        (plugin(scopes=["jbos"]), "line 1, mine: unknown scope jbos; did you mean jobs?"),
        (plugin(scopes="jobs"), "line 1, mine: scopes: a list is expected, as [a, b]."),
        (plugin(scopes=[None]), "line 1, mine: scopes: a text is expected."),
        (plugin(command=None), "line 1, mine: command: a text is expected."),
        (plugin(command="a\0"), "line 1, mine: command: a text is expected."),
        (plugin(command=" "), "line 1, mine: command: a text is expected."),
        (plugin(args=["a", ["b"]]), "line 1, mine: args: a text is expected."),
        (plugin(args=["a\0"]), "line 1, mine: args: a text is expected."),
        (plugin(confirm="soon"), "line 1, mine: confirm: true or false is expected."),
        (plugin(output="file"), "line 1, mine: output: view is expected."),
        (plugin().replace('"mine": {', '"mine": {"command": "y", '), "line 1, mine: command is given twice"),
        (
            plugin().replace("mine", "logs"),
            "line 1, logs: the command :logs is not a plugin's; the key works.",
        ),
        ("plugins:\n  a: [1\n", "line 3: "),
    ],
)
def test_an_invalid_plugin_entry_is_reported_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    assert read(path).problems[0].startswith(f"{path}, {words}")


def test_two_plugins_do_not_share_a_key_or_a_name(tmp_path: Path) -> None:
    entry = "{shortCut: Ctrl-L, scopes: [jobs, pods], command: x, override: true}"
    text = f"plugins:\n  a: {entry}\n  b: {entry}\n  A: {entry}\n"
    found = read(write(tmp_path, text))
    assert [len(each.on) for each in found.plugins] == [2, 0]
    assert [problem.partition(", ")[2] for problem in found.problems] == [
        "line 3, b: ^l is plugin a in jobs, pods, so it is not bound there.",
        "line 4, A: it is given twice; the first is used.",
    ]


def test_plugin_key_conflicts_are_checked_against_the_users_key_bindings(tmp_path: Path) -> None:
    path = write(tmp_path, plugin(shortCut="b"))
    assert read_plugins(path, ACTIONS, VIEWS, {"row.clone": "f5"}).problems == ()
    path = write(tmp_path, plugin(shortCut="F5"))
    assert "f5 is row.clone" in read_plugins(path, ACTIONS, VIEWS, {"row.clone": "f5"}).problems[0]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_read(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, plugin(), mode)
    (problem,) = read(path).problems
    assert problem == f"{path} cannot be read: Others may write to it; run chmod go-w {path}."


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, plugin())
    os.chown(path, 65534, -1)
    found = read(path)
    assert not found.plugins and "cannot be read: It belongs to" in found.problems[0]


_WORDS = st.sampled_from(["plugins", "a", "shortCut", "scopes", "command", "args", "jobs", "Ctrl-L", "$NAME"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_WORDS | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=20,
)


@settings(max_examples=80)
@given(
    st.text(max_size=60) | _VALUES.map(json.dumps) | _VALUES.map(lambda value: json.dumps({"plugins": value}))
)
def test_any_text_is_parsed_and_every_problem_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "plugins.yaml"
    path.write_bytes(text.encode("utf-8", "replace"))
    found = read(path)
    assert all(str(path) in problem for problem in found.problems)
    assert all(each.argv[0] and all("\0" not in word for word in each.argv) for each in found.plugins)


LEASE = r"""
- name: lease lost
  pattern: 'lease (?P<number>\d+) lost'
  sentence: Another job took lease {number}.
  remedy: Wait until it has ended.
  retry: true
"""


def causes_of(tmp_path: Path, text: str) -> UserCauses:
    path = tmp_path / "causes.yaml"
    path.write_text(text)
    return read_causes(path)


def test_a_cause_from_the_users_file_is_matched_before_builtin_causes(tmp_path: Path) -> None:
    found = triage(
        [container_log("RuntimeError: lease 7 lost: Connection refused", ranks=(0,), exit=1)],
        causes_of(tmp_path, LEASE).causes,
    )
    assert found is not None
    assert found.cause is not None
    assert (found.cause.name, found.sentence) == ("lease lost", "Another job took lease 7.")
    assert found.cause.can_retry_help


def test_without_a_causes_file_builtin_causes_are_used(tmp_path: Path) -> None:
    assert read_causes(tmp_path / "causes.yaml") == UserCauses(CAUSES)
    assert causes_of(tmp_path, "") == UserCauses(CAUSES)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lease: lost", ": a list of causes is expected, each with name, pattern and sentence."),
        ("- lease", "line 1: a cause is expected, with name, pattern and sentence."),
        ("- {name: a, pattern: b}", "line 1: sentence is missing."),
        ("- {name: a, pattern: b, sentence: c, cure: d}", "line 1: unknown key cure; there are name, "),
        ("- {name: a, pattern: [b], sentence: c}", "line 1: pattern is a text of at most 500 characters."),
        ("- {name: a, pattern: '(', sentence: c}", "the pattern is not a regular expression: missing )"),
        ("- {name: a, pattern: 'x*', sentence: c}", "line 1: the pattern matches an empty line"),
        ("- {name: a, pattern: 'b(x+)+$', sentence: c}", "line 1: the pattern may take too long"),
        ("- {name: a, pattern: 'b.*.*.*.*.*', sentence: c}", "line 1: the pattern may take too long"),
        ("- {name: a, pattern: b, sentence: c, retry: 3}", "line 1: retry is true or false."),
        ("- {name: a", "line 1: "),
        ("- \x00", " cannot be read: "),
        ("[" + "{a: " * 2000, " cannot be read: it is nested too deeply."),
    ],
)
def test_an_invalid_cause_is_reported_and_valid_causes_are_kept(
    text: str, problem: str, tmp_path: Path
) -> None:
    found = causes_of(tmp_path, f"{LEASE}{text}" if text.startswith("- {") and text.endswith("}") else text)
    assert len(found.problems) == 1
    expected = problem if text.startswith(("lease", "[", "- \x00")) else problem.removeprefix("line 1: ")
    assert expected in found.problems[0]
    assert found.problems[0].startswith(str(tmp_path))
    assert any(cause.name == "lease lost" for cause in found.causes) == text.endswith("}")
