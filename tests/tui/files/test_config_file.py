"""The user's config.yaml: what it sets, and what is said of one that makes no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.files.config_file import Config, read_config
from tui.files.keys_file import read_keys
from tui.options import AlertRule, NoticeEvent, NotifyOptions
from tui.screens import key_table


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert read_config(tmp_path / "config.yaml") == Config()
    assert read_config(written(tmp_path, "# nothing yet\n")) == Config()


def test_the_theme_to_begin_with_is_read(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "theme: light # by day\nfinished_days: 3\n")).theme == "light"


def test_further_accelerators_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "accelerators:\n- example.com/npu-*\n- other.com/x\n")
    assert read_config(path) == Config(accelerators=("example.com/npu-*", "other.com/x"))


@pytest.mark.parametrize(("text", "days"), [("7", 7.0), ("0.5", 0.5), ("36500", 36500.0)])
def test_how_long_finished_jobs_are_shown_is_read(tmp_path: Path, text: str, days: float) -> None:
    assert read_config(written(tmp_path, f"finished_days: {text}\n")) == Config(finished_days=days)


def test_how_home_sums_nodes_up_and_whether_it_reads_losses_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "strip_by: topology.kubernetes.io/zone\nloss: off\n")
    assert read_config(path) == Config(strip_by="topology.kubernetes.io/zone", loss=False)
    assert read_config(written(tmp_path, "loss: true\n")) == Config()


def test_rules_about_curves_are_chosen(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "alerts: off\n")) == Config(alerts=())
    chosen = (AlertRule.NAN, AlertRule.PLATEAU)
    assert read_config(written(tmp_path, "alerts: [nan, plateau]\n")) == Config(alerts=chosen)
    assert AlertRule.PLATEAU not in Config().alerts


@pytest.mark.parametrize(
    ("text", "notify"),
    [
        ("notify: off\n", NotifyOptions(events=())),
        ("notify: {}\n", NotifyOptions()),
        ("notify: {events: [failed, nan]}\n", NotifyOptions(events=(NoticeEvent.FAILED, NoticeEvent.NAN))),
        ("notify: {toast: all, counter: off}\n", NotifyOptions(toast="all", counter="off")),
        ("notify: {terminal: all, bell: off}\n", NotifyOptions(terminal="all", bell="off")),
        ("notify: {exec: [mail, -s, a b]}\n", NotifyOptions(exec=("mail", "-s", "a b"))),
        ("notify: {exec: mail -s 'a b'}\n", NotifyOptions(exec=("mail", "-s", "a b"))),
    ],
)
def test_how_jobs_are_reported_is_read(tmp_path: Path, text: str, notify: NotifyOptions) -> None:
    assert read_config(written(tmp_path, text)) == Config(notify=notify)


def test_a_key_that_is_no_setting_is_named_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "accelerators: [a.com/b]\nacelerators: [c.com/d]\n? [x]\n: 1\n")
    assert read_config(path) == Config(
        ("a.com/b",), ("acelerators (line 2)", "a key of several parts (line 3)")
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
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
        ("prometheus: [a]\n", "line 1, prometheus: a service is expected"),
        ("- accelerators\n", "line 1: keys and values are expected"),
        ("a: 1\nb: [1\n", "line 3: "),
        ("a: \x01\n", "line 1: not valid YAML."),
    ],
)
def test_what_makes_no_sense_is_named_with_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    found = read_config(path)
    assert found.problems[0].startswith(f"{path}, {words}")
    defaults = Config(problems=found.problems, unknown=found.unknown)
    assert found == replace(defaults, theme="dark") if "theme: dark" in text else found == defaults


def test_every_value_that_makes_no_sense_is_named_and_the_others_hold(tmp_path: Path) -> None:
    path = written(tmp_path, "theme: [a]\nloss: false\nfinished_days: soon\nstrip_by: 5\n")
    found = read_config(path)
    assert not found.loss and found.finished_days == Config().finished_days
    assert [each.split(": ")[0] for each in found.problems] == [
        f"{path}, line {line}, {key}" for line, key in ((1, "theme"), (3, "finished_days"), (4, "strip_by"))
    ]


@pytest.mark.parametrize("text", ["[" * 20_000, "a: " + "[" * 20_000])
def test_a_file_of_many_levels_is_refused_in_plain_words(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    words = f"{path} cannot be read: it is nested too deeply."
    assert read_config(path).problems == (words,)
    assert read_keys(path, key_table()).problems == (words,)


def test_where_prometheus_is_can_be_said(tmp_path: Path) -> None:
    path = written(tmp_path, "prometheus: monitoring/prometheus-k8s:9090/prom\n")
    assert read_config(path).prometheus == "monitoring/prometheus-k8s:9090/prom"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert f"{path} cannot be read" in read_config(path).problems[0]
    (tmp_path / "folder").mkdir()
    assert "folder cannot be read" in read_config(tmp_path / "folder").problems[0]


@settings(max_examples=50)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_read_or_named(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("any"), text)
    assert all(str(path) in problem for problem in read_config(path).problems)
