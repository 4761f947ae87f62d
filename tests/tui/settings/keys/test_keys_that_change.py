"""Keys that change the cluster ask first, with Cancel; with `--readonly` they explain why they do nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.scripted.server import Answer, Compute, page
from tests.support.playground import Playground
from tests.support.terminal import fake_kubectl
from tests.tui.settings.keys.world import (
    PODS,
    PYTORCH_JOBS,
    Desk,
    at,
    changes,
    look_of,
    seen,
    titled,
    typed,
    unseen,
    world,
)
from tui.terminal import pod_shell

NODE = "/api/v1/nodes/a"
DISABLED = "Changes are disabled by --readonly."


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run programs without a terminal, which tests do not have."""

    async def run(argv: Sequence[str], env: Mapping[str, str], hand_over: object) -> int:
        process = await asyncio.create_subprocess_exec(*argv, env=env, stdout=asyncio.subprocess.DEVNULL)
        return await process.wait()

    monkeypatch.setattr(pod_shell, "run_program", run)


async def cancel_at_once(play: Desk, key: str, button: str) -> None:
    """Press a key and enter: the question has the focus on Cancel."""
    await play.press(key)
    await play.until(seen(play, " Cancel "))
    assert look_of(play, " Cancel ") != look_of(play, f" {button} ")
    await play.press("enter")
    await play.until(unseen(play, " Cancel "))


@pytest.mark.slow
async def test_enter_at_once_after_a_key_that_changes_a_job_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        await play.press("N", "g")
        await cancel_at_once(play, "ctrl+d", "Delete")
        await cancel_at_once(play, "H", "Suspend")
        await play.press("enter")
        await play.until(titled(play, "Jobs › bert   "))
        await cancel_at_once(play, "ctrl+d", "Delete")
        await cancel_at_once(play, "H", "Suspend")
        await play.press("escape", "j")
        await play.until(at(play, "paused"))
        await cancel_at_once(play, "R", "Resume")
        assert changes(play) == []
        play.cluster.say(f"{PYTORCH_JOBS}/bert", page([]), method="DELETE")
        await play.press("g", "ctrl+d", "tab", "enter")
        await play.cluster.until_asked(f"{PYTORCH_JOBS}/bert", method="DELETE")
        assert changes(play) == [f"DELETE {PYTORCH_JOBS}/bert"]


@pytest.mark.slow
async def test_enter_at_once_after_a_key_that_labels_a_node_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        for keys, there in ((["1", "g"], "Jobs ("), (typed("nodes"), "Nodes ("), (["enter"], "Nodes › a ")):
            await play.press(*keys)
            await play.until(titled(play, there))
            await cancel_at_once(play, "t", "Label")
        assert changes(play) == []
        play.cluster.say(NODE, page([]), method="PATCH")
        await play.press("t", "tab", "enter")
        await play.cluster.until_asked(NODE, method="PATCH")
        assert changes(play) == [f"PATCH {NODE}"]


@pytest.mark.slow
async def test_keys_and_commands_that_change_something_are_refused_with_readonly(tmp_path: Path) -> None:
    async with world(tmp_path, is_read_only=True) as play:
        await play.press("N", "g")
        for keys, there, refused in (
            ((), "Jobs (", ("n", "b", "e", "ctrl+d", "s")),
            (("enter",), "Jobs › bert   ", ("H", "R")),
            (("W",), "Jobs › bert › why", ("b",)),
            (typed("nodes"), "Nodes (", ("t",)),
        ):
            await play.press(*keys)
            await play.until(titled(play, there))
            before = play.console.views.current
            assert before is not None
            for name in ([name] for name in refused):
                await refuse(play, name)
            await refuse(play, typed("new"))
            assert play.console.screen is before, f"a key of {refused} has opened another view"
        assert changes(play) == []
        assert not play.cluster.asked(f"{PODS}/bert-master-0/exec")


async def refuse(play: Playground, keys: Sequence[str]) -> None:
    view = play.console.views.current
    assert view is not None
    view.set_line("flash", "")
    await play.press(*keys)
    await play.until(seen(play, DISABLED))


async def test_with_readonly_no_command_that_changes_the_job_is_listed(tmp_path: Path) -> None:
    async with world(tmp_path, is_read_only=True) as play:
        await play.press("N", "g", "X")
        await play.until(seen(play, "gpuconsole why PyTorchJob/bert"))
        assert not any(word in play.text for word in (" delete ", " patch ", " scale ", " edit ", " shell "))


async def test_the_edit_key_reports_a_missing_kubectl_and_edits_only_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with world(tmp_path) as play:
        await play.press("N", "g")
        await play.see("e", seen(play, "kubectl, which edits it, is not found."))
        await play.press("enter", "y")
        await play.until(titled(play, "Jobs › bert › Pod bert-master-0 › YAML"))
        await play.see("e", seen(play, "Only jobs are edited here."))
        assert changes(play) == []


@pytest.mark.usefixtures("programs")
async def test_the_edit_key_runs_kubectl_edit_on_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_kubectl(tmp_path / "bin"))
    async with world(tmp_path) as play:
        await play.press("N", "g", "e")
        await play.until(seen(play, "kubectl edit of PyTorchJob bert: exit 3."))
        line = (tmp_path / "bin/line").read_text()
        assert line.startswith(f"--kubeconfig {play.session.options.kubeconfig} --context lab -n default ")
        assert line.endswith(" edit pytorchjobs.kubeflow.org/bert\n")


WORKSPACE = "/api/v1/namespaces/default/persistentvolumeclaims/workspace"
ECHO = Compute(lambda asked: Answer(json.loads(asked.body), 201))
"""Answer of a server that accepts every new object."""


def created(play: Playground) -> list[str]:
    """Return the names of the jobs that were created, dry runs left out."""
    asked = play.cluster.asked(PYTORCH_JOBS, method="POST")
    return [json.loads(each.body)["metadata"]["name"] for each in asked if "dryRun" not in each.query]


@pytest.mark.slow
async def test_keys_of_the_form_move_and_create_the_job_once_confirmed(tmp_path: Path) -> None:
    async with world(tmp_path) as play:
        play.cluster.say(PYTORCH_JOBS, ECHO, method="POST")
        play.cluster.say(WORKSPACE, Answer({"metadata": {"name": "workspace"}, "status": {"phase": "Bound"}}))
        await play.press("n")
        await play.until(at(play, "Name"))
        await play.see("pagedown", at(play, "Code"))
        await play.see("pageup", at(play, "Template"))
        await play.press("tab", "x")
        assert changes(play) == []
        await play.see("ctrl+o", seen(play, "Create PyTorchJob x in default?"))
        assert created(play) == []
        await play.press("enter")
        await play.until(lambda: created(play) == ["x"])
