"""The user's own keys: read by id, and told where they make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.files.keys_file import clashes, read_keys
from tui.screens import ACTIONS, key_table
from tui.screens.base.view_context import ViewContext
from tui.screens.lists.nodes import NodesView

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
    keymap, problems = read(tmp_path, f"jobs.logs: {written}\n")
    assert keymap == {"jobs.logs": named}
    assert problems == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs.lgos: L", "/keys.yaml, line 1: unknown key id 'jobs.lgos'; gpuconsole info --keys"),
        ("\njobs.logs: {a: b}", "line 2: jobs.logs wants a key or a list of keys"),
        ("jobs.logs: alt+l", "'alt+l' is not a key that every terminal sends"),
        ("jobs.logs: wombat", "'wombat' is not a key that every terminal sends"),
        ("jobs.logs: ''", "jobs.logs wants a key"),
        ("prompt.submit: x", "prompt.submit cannot be 'x', which is typed as text there"),
        ("[1, 2]", "ids and keys are expected"),
        ("jobs.logs: [", "line 1:"),
    ],
)
def test_an_invalid_key_binding_is_reported_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    keymap, problems = read(tmp_path, text)
    assert keymap == {}
    assert problem in problems


def test_an_unknown_key_id_does_not_discard_the_other_bindings(tmp_path: Path) -> None:
    keymap, problems = read(tmp_path, "jobs.logs: L\nnothing.at_all: x\njobs.curves: f3\n")
    assert keymap == {"jobs.logs": "L", "jobs.curves": "f3"}
    assert problems.count("\n") == 0


def test_a_key_bound_to_two_actions_in_one_view_is_reported(tmp_path: Path) -> None:
    _, problems = read(tmp_path, "jobs.logs: n\n")
    assert "Jobs: n means jobs.logs and jobs.new" in problems


def test_a_key_shadowed_by_the_focused_widget_is_reported() -> None:
    for keymap, words in [
        ({"jobs.logs": "j"}, "Jobs: j means table.down and jobs.logs; the first is done."),
        ({"table.mark": "l"}, "Jobs: l means table.mark and jobs.logs; the first is done."),
        ({"logs.ranks": "j"}, "Logs: j means log.down and logs.ranks; the first is done."),
        ({"log.mark": "r"}, "Logs: r means log.mark and logs.ranks; the first is done."),
        ({"chart.left": "j"}, "Curves: j means chart.left and curves.next; the first is done."),
        ({"strip.left": "W"}, "Beside the jobs: W means strip.left and jobs.why; the first is done."),
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


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f"jobs.logs: {text}".encode()))
def test_any_bytes_are_parsed_or_rejected(raw: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.yaml"
        path.write_bytes(raw)
        found = read_keys(path, TABLE)
        assert all(isinstance(keys, str) and keys for keys in found.keymap.values())
