"""The entries `aliases`, `columns` and `contexts` of config.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.files.config_file import Config, read_config
from tui.options import Alias, ConsoleOptions, ContextSettings, OwnColumn
from tui.tables import column_keys


def read(folder: Path, text: str) -> Config:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return read_config(path, column_keys)


def test_aliases_are_read_as_in_k9s(tmp_path: Path) -> None:
    text = "aliases:\n  Failed: jobs /status:failed\n  po: ':pods kube-system'\n"
    assert read(tmp_path, text).aliases == {
        "failed": Alias("jobs /status:failed", 2),
        "po": Alias("pods kube-system", 3),
    }


def test_columns_are_read(tmp_path: Path) -> None:
    text = (
        "columns:\n"
        "  jobs: [name, status, {title: TEAM, path: .metadata.labels.team}]\n"
        "  nodes: [name, {title: ZONE, path: '{.metadata.labels.zone}'}]\n"
    )
    assert read(tmp_path, text).columns == {
        "jobs": ("name", "status", OwnColumn("TEAM", ".metadata.labels.team")),
        "nodes": ("name", OwnColumn("ZONE", ".metadata.labels.zone")),
    }


def test_contexts_are_read_in_their_order(tmp_path: Path) -> None:
    text = "contexts:\n  prod-*: {readonly: true, theme: light}\n  '*': {namespace: vision}\n"
    assert read(tmp_path, text).contexts == (
        ContextSettings(pattern="prod-*", read_only=True, theme="light"),
        ContextSettings(pattern="*", namespace="vision"),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
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
        ("columns:\n  jobs: [{title: A, path: '.a['}]\n", "line 2, columns: a ] is missing in '.a['."),
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
    ],
)
def test_what_makes_no_sense_is_named_with_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    found = read(tmp_path, text)
    assert found.problems[0].startswith(f"{tmp_path / 'config.yaml'}, {words}")
    assert not found.aliases and not found.columns


def test_a_mistake_makes_no_other_context_writable(tmp_path: Path) -> None:
    text = "contexts:\n  lab: {readonly: maybe}\n  prod: {readonly: true, colour: red}\n  prod: {}\n"
    found = read(tmp_path, text)
    assert len(found.problems) == 1
    assert ConsoleOptions(contexts=found.contexts).in_context("prod").is_read_only


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
def test_the_first_matching_entry_counts_and_flags_count_more(
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
def test_any_value_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(json.dumps({key: value}))
    found = read_config(path, column_keys)
    assert all(str(path) in problem for problem in found.problems)
    ConsoleOptions(contexts=found.contexts).in_context("a")
