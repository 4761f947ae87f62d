"""The keys that edit a job and show its commands, and those of the dialogs that they open."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.scripted.server import Answer
from tests.tui.keys.proofs import Hands, proves
from tests.tui.keys.world import BERT, PYTORCH_JOBS, at, changes, seen, titled, typed, unseen, world
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.terminal import clipboard, pod_shell


@pytest.fixture(autouse=True)
def editor(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set the user's editor; at first one that is not installed."""
    for name in ("KUBE_EDITOR", "VISUAL"):
        monkeypatch.delenv(name, raising=False)

    def choose(words: str) -> None:
        monkeypatch.setenv("EDITOR", words)

    choose("none-1")
    return choose


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run programs without a terminal, which tests do not have."""

    async def run(argv: Sequence[str], env: Mapping[str, str], hand_over: object) -> int:
        process = await asyncio.create_subprocess_exec(*argv, env=env)
        return await process.wait()

    monkeypatch.setattr(pod_shell, "run_program", run)


@proves("jobs.edit", "job.edit")
async def test_without_its_editor_the_key_says_what_is_missing(
    tmp_path: Path, editor: Callable[[str], None]
) -> None:
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        await play.press("N", "g")
        await hands.press("jobs.edit", seen(play, "$EDITOR names none-1, which is not found."))
        editor("none-2")
        await play.press("enter")
        await play.until(titled(play, "Jobs › bert   "))
        await hands.press("job.edit", seen(play, "$EDITOR names none-2"))
        editor("none-3")
        await play.press("Y")
        await play.until(titled(play, "Jobs › bert › YAML"))
        await play.press("e")
        await play.until(seen(play, "$EDITOR names none-3"))
        await play.press("escape", "y")
        await play.until(titled(play, "Jobs › bert › Pod bert-master-0 › YAML"))
        await play.press("e")
        await play.until(seen(play, "Only jobs are edited here."))
        assert changes(play) == []


@pytest.mark.usefixtures("programs")
async def test_the_change_of_an_editor_is_shown_and_applied_once_confirmed(
    tmp_path: Path, editor: Callable[[str], None]
) -> None:
    editor("sed -i s/nprocPerNode:.*/nprocPerNode:\\ auto/")
    async with world(tmp_path) as play:
        path = f"{PYTORCH_JOBS}/bert"
        play.cluster.say(path, Answer(BERT), method="PATCH")
        await play.press("N", "g", "e")
        await play.until(seen(play, "Apply this change to PyTorchJob bert?", "+  nprocPerNode: auto"))
        await play.press("enter")
        await play.until(seen(play, "PyTorchJob bert was not changed. Your text is in "))
        await play.press(*typed("edit bert"))
        await play.until(seen(play, "Apply this change"))
        await play.press("left", "enter")
        await play.until(seen(play, "PyTorchJob bert is changed."))
        *dry, last = play.cluster.asked(path, method="PATCH")
        assert [each.query.get("dryRun") for each in dry] == ["All", "All"] and "dryRun" not in last.query
        assert json.loads(last.body) == {
            "metadata": {"uid": "job-bert", "resourceVersion": "1"},
            "spec": {"nprocPerNode": "auto"},
        }


@pytest.mark.usefixtures("programs")
async def test_an_editor_that_changes_nothing_sends_nothing(
    tmp_path: Path, editor: Callable[[str], None]
) -> None:
    editor("true")
    async with world(tmp_path) as play:
        await play.press("N", "g", "e", "e")
        await play.until(seen(play, "PyTorchJob bert was not changed."))
        assert changes(play) == []


@proves("jobs.commands", "job.commands", "job_commands.copy", "job_commands.close")
async def test_commands_of_a_job_are_listed_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(clipboard.OVERRIDE, "osc52")
    monkeypatch.setenv("TERM", "xterm-256color")
    async with world(tmp_path) as play:
        hands = Hands.on(play)
        written: list[str] = []
        monkeypatch.setattr(play.console, "write_to_terminal", written.append)
        listed = seen(play, "Commands for PyTorchJob bert")
        await play.press("N", "g")
        await play.until(at(play, "bert"))
        await hands.press("jobs.commands", listed)
        await hands.press("job_commands.close", unseen(play, "Commands for"), undo=["X"])
        await hands.press("job_commands.copy", seen(play, "sent to the terminal's clipboard"), undo=["X"])
        copied = base64.b64decode(written[0].split(";")[-1].rstrip("\x07")).decode()
        kubeconfig = tmp_path / "kubeconfig"
        assert copied == f"gpuconsole --kubeconfig {kubeconfig} -n default get PyTorchJob/bert"
        await play.press("escape", "enter")
        await play.until(titled(play, "Jobs › bert   "))
        await play.press("j")
        await hands.press("job.commands", seen(play, "logs -f PyTorchJob/bert -i worker-0"))
        assert seen(play, "kubectl logs -f bert-worker-0 -c pytorch")()
        assert changes(play) == []


async def test_with_readonly_no_command_that_changes_the_job_is_listed(tmp_path: Path) -> None:
    async with world(tmp_path, is_read_only=True) as play:
        await play.press("N", "g", "X")
        await play.until(seen(play, "gpuconsole why PyTorchJob/bert"))
        assert not any(word in play.text for word in (" delete ", " patch ", " scale ", " edit ", " shell "))


@proves("confirm.page_down", "confirm.page_up")
async def test_a_long_question_is_scrolled(tmp_path: Path) -> None:
    async with world(tmp_path, size=(80, 24)) as play:
        hands = Hands.on(play)
        details = "\n".join(f"change {number}." for number in range(13))
        play.console.push_screen(ConfirmScreen("Apply?", details, "Apply"))
        await play.until(seen(play, "change 0.", "PgDn scroll"))
        last = seen(play, "change 12.")
        await hands.press("confirm.page_down", last, undo=["pageup"])
        await play.press("pagedown")
        await hands.press("confirm.page_up", seen(play, "change 0."), undo=["pagedown"])
