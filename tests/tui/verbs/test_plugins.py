"""Plugins in the console: their keys, arguments, confirmation, and how their programs end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.objects import pytorch_job
from tests.support.playground import Playground, console_on, some_objects
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.documents.text import TextView
from tui.verbs import plugins
from tui.verbs.plugins import Refused, substitute

HOSTILE = "$(touch /tmp/owned); 'a\" `b`"
FACTS = {"NAME": "bert", "NAMESPACE": "lab", "COL-TEAM": HOSTILE, "COL-SUSPEND": "true", "COL-%CPU/L": "5"}


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["x", "$NAME", "-n=$NAMESPACE"], ["x", "bert", "-n=lab"]),
        (["x", "$NAME-debug", "$NAMESPACE/$NAME.yaml"], ["x", "bert-debug", "lab/bert.yaml"]),
        (["x", "${NAME}_1", "${COL-%CPU/L}"], ["x", "bert_1", "5"]),
        (["x", "$!COL-SUSPEND", "$COL-SUSPEND"], ["x", "false", "true"]),
        (["x", "$COL-TEAM", "--team=$COL-TEAM"], ["x", HOSTILE, f"--team={HOSTILE}"]),
        (["sudo", "-u", "li", "kubectl", "$COL-TEAM"], ["sudo", "-u", "li", "kubectl", HOSTILE]),
        (["awk", "{print}", "$COL-TEAM"], ["awk", "{print}", HOSTILE]),
        (["tmux", "new-window", "kubectl logs $NAME"], ["tmux", "new-window", "kubectl logs bert"]),
        (
            ["sh", "-c", "echo $NAME $1 $OTHER", "sh", "$COL-TEAM"],
            ["sh", "-c", "echo bert $1 $OTHER", "sh", HOSTILE],
        ),
        (["sh", "-c", "NAME=a; for NAMESPACE in $NAME; do :; done"], None),
        (["sh", "-c", "echo $POD"], None),
        (
            ["kubectl", "exec", "$NAME", "--", "bash", "-ec", "ls"],
            ["kubectl", "exec", "bert", "--", "bash", "-ec", "ls"],
        ),
        (["x", "$HOME", "$", "$$NAME"], ["x", "$HOME", "$", "$bert"]),
    ],
)
def test_variables_become_parts_of_single_arguments(argv: list[str], found: list[str] | None) -> None:
    assert substitute(argv, FACTS) == (found or argv)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["x", "$POD"], "no $POD"),
        (["x", "$COL-NOWHERE"], "no $COL-NOWHERE"),
        (["x", "a '$POD'"], "no $POD"),
        (["sh", "-c", "echo $COL-TEAM"], "might run"),
        (["sudo", "/bin/bash", "-lc", "echo '$COL-TEAM'"], "might run"),
        (["kubectl", "exec", "a", "--", "sh", "-c", "echo $COL-TEAM"], "might run"),
        (["python3", "-c", "print('$COL-TEAM')"], "might run"),
        (["ssh", "host", "echo", "$COL-TEAM"], "might run"),
        (["tmux", "new-window", "$COL-TEAM"], "might run"),
        (["tmux", "split-window", "-h", "less $COL-TEAM"], "might run"),
        (["screen", "-X", "exec", "$COL-TEAM"], "might run"),
        (["sudo", "-s", "echo", "$COL-TEAM"], "might run"),
        (["sudo", "-u", "li", "-i", "echo", "$COL-TEAM"], "might run"),
        (["awk", 'BEGIN{system("$COL-TEAM")}'], "might run"),
        (["sed", "s/a/$COL-TEAM/e"], "might run"),
        (["vim", "+!$COL-TEAM"], "might run"),
        (["git", "-c", "core.pager=$COL-TEAM", "log"], "might run"),
        (["unknown-runner", "run '$COL-TEAM'"], "might run"),
    ],
)
def test_missing_variables_and_shell_injectable_values_are_rejected(argv: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words.replace("$", r"\$")):
        substitute(argv, FACTS)


PYTHON = {"command": sys.executable, "scopes": ["jobs"]}
SHOW = "import sys; print(*map(repr, sys.argv[1:]), sep='\\n'); print('\\x1b[31mred\\x1b[0m')"
FAIL = "import sys; print('\\x1b]0;title\\x07no quota', file=sys.stderr); sys.exit(3)"
PLUGINS: dict[str, dict[str, Any]] = {
    "show": {
        **PYTHON,
        "shortCut": "Ctrl-L",
        "output": "view",
        "args": ["-c", SHOW, "$NAMESPACE", "$NAME", "$POD"],
    },
    "fail": {**PYTHON, "shortCut": "F5", "background": True, "args": ["-c", FAIL]},
    "hello": {
        **PYTHON,
        "shortCut": "y",
        "override": True,
        "description": "Say hello",
        "background": True,
        "overwriteOutput": True,
        "args": ["-c", "print('hello')"],
    },
    "gone": {"command": "/nowhere/program", "shortCut": "Shift-E", "scopes": ["jobs"]},
    "risky": {
        **PYTHON,
        "shortCut": "Shift-Q",
        "dangerous": True,
        "confirm": True,
        "background": True,
        "args": ["-c", "pass", "$NAME", "a b"],
    },
    "here": {"command": "true", "shortCut": "Shift-B", "scopes": ["nodes"], "args": ["$POD"]},
}


@asynccontextmanager
async def console(
    tmp_path: Path, plugin: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Playground]:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "plugins.yaml").write_text(
        json.dumps({"plugins": {**PLUGINS, **({"more": plugin} if plugin else {})}})
    )
    (folder / "plugins.yaml").chmod(0o600)
    async with console_on(tmp_path, **{**some_objects(), **more}) as play:
        yield play


async def test_plugins_run_on_the_selected_row(tmp_path: Path) -> None:
    async with console(tmp_path) as play:
        await play.until(lambda: play.table.move_to(play.console.snapshot.jobs[0].uid))
        job = play.console.snapshot.jobs[0].ref.name
        await play.press("ctrl+l")
        await play.until(lambda: isinstance(play.console.screen, TextView) and "red" in play.text)
        assert f"'default'\n '{job}'\n '{job}-master-0'\n red\n" in play.text.replace("┃", "")
        await play.press("escape")
        await play.press("f5")
        await play.until(lambda: "fail failed: exit 3." in play.text)
        assert "no quota" in play.text and "title" not in play.text
        await play.press("y")
        await play.until(lambda: "hello is done. hello" in play.text)
        await play.press("E")
        await play.until(lambda: "There is no program" in play.text)


@pytest.mark.slow
async def test_plugins_are_available_as_commands_and_listed_in_the_help(tmp_path: Path) -> None:
    async with console(tmp_path, size=(120, 60)) as play:
        await play.press("question_mark")
        assert "Say hello" in play.text and "YAML of the job, or of" not in play.text
        await play.press("escape")
        await play.press("colon", *"hel", "l")
        assert ":hello" in play.text
        await play.press("tab", "enter")
        await play.until(lambda: "hello is done. hello" in play.text)
        await play.press("colon", *"nodes", "enter")
        await play.press("B")
        await play.until(lambda: "has no $POD" in play.text)


async def test_a_confirmation_shows_the_exact_command(tmp_path: Path) -> None:
    async with console(tmp_path) as play:
        job = play.console.views.current and play.console.views.current.current_job()
        assert job
        await play.press("Q")
        assert isinstance(play.console.screen, ConfirmScreen)
        assert f"-c pass {job.name} 'a b'" in " ".join(play.text.replace("│", "").split())
        await play.press("enter")
        assert "risky" not in play.text
        await play.press("Q", "tab", "enter")
        await play.until(lambda: "risky is done." in play.text)


async def test_dangerous_plugins_are_hidden_if_nothing_may_be_changed(tmp_path: Path) -> None:
    async with console(tmp_path, is_read_only=True) as play:
        await play.press("Q")
        assert "changes are disabled" in play.text.lower()
        await play.press("y")
        await play.until(lambda: "hello is done. hello" in play.text)


async def test_a_background_plugin_process_ends_with_the_console(tmp_path: Path) -> None:
    waits = (
        "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); time.sleep(600)"
    )
    file = tmp_path / "pid"
    plugin = {**PYTHON, "shortCut": "F6", "background": True, "args": ["-c", waits, str(file)]}
    async with console(tmp_path, plugin) as play:
        await play.press("f6")
        await play.until(lambda: file.exists() and file.read_text().endswith("\n"))
    pid = int(file.read_text())
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it goes on")


async def test_long_plugin_output_is_truncated_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_MOST_BYTES", 2**20)
    many = "for _ in range(20000): print('x' * 99)"
    plugin = {**PYTHON, "shortCut": "F6", "output": "view", "args": ["-c", many]}
    async with console(tmp_path, plugin) as play:
        await play.press("f6")
        await play.until(lambda: isinstance(play.console.screen, TextView) and "xxx" in play.text)
        await play.press("G")
        assert "-- Only the first 1 MiB are kept." in play.text


async def test_hostile_job_names_are_passed_as_single_quoted_arguments(tmp_path: Path) -> None:
    hostile = pytorch_job("x;touch$IFS'a", workers=1)
    async with console(tmp_path, jobs=[hostile], pods=[]) as play:
        await play.press("ctrl+l")
        await play.until(lambda: "no $POD" in play.text)
        await play.press("Q")
        assert "'x;touch$IFS'" in "".join(play.text.replace("│", "").split())
