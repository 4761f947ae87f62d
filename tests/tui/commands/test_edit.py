"""`edit`: an editor changes the job, and what it changed is shown, checked and sent."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.objects import pytorch_job
from tests.tui.commands.conftest import CommandLine

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PATH = f"{JOBS}/bert"
SET_AUTO = "sed -i s/nprocPerNode:.*/nprocPerNode:\\ auto/"


@pytest.fixture
def bert(run: CommandLine, cluster: ScriptedCluster, tmp_path: Path) -> CommandLine:
    """Serve a job, and take every change of it."""
    job = pytorch_job("bert")
    for path in (JOBS, "/apis/kubeflow.org/v1/pytorchjobs"):
        cluster.replace(path, page([job]))
    cluster.say(PATH, Answer(job))
    cluster.say(PATH, Answer(job), method="PATCH")
    run.set("KUBE_EDITOR", SET_AUTO)
    run.set("TMPDIR", str(tmp_path))
    return run


async def test_a_change_is_shown_checked_and_sent(bert: CommandLine, cluster: ScriptedCluster) -> None:
    ended = await bert.process("edit", "bert", "--yes")
    assert (ended.status, ended.out) == (0, "PyTorchJob bert is changed.\n"), ended.err
    assert '-  nprocPerNode: "8"\n+  nprocPerNode: auto\n' in ended.err
    dry, real = cluster.asked(PATH, method="PATCH")
    assert dry.query["dryRun"] == "All" and "dryRun" not in real.query
    assert json.loads(real.body)["spec"] == {"nprocPerNode": "auto"}


async def test_nothing_is_sent_without_a_change(bert: CommandLine, cluster: ScriptedCluster) -> None:
    bert.set("KUBE_EDITOR", "true")
    ended = await bert.process("edit", "bert", "--yes")
    assert (ended.status, ended.out, ended.err) == (0, "PyTorchJob bert was not changed.\n", "")
    assert not cluster.asked(PATH, method="PATCH")


async def test_a_refused_change_stays_in_a_private_file(bert: CommandLine, cluster: ScriptedCluster) -> None:
    cluster.replace(PATH, refusal(422, "spec is immutable", "Invalid"), method="PATCH")
    ended = await bert.process("edit", "bert", "--yes")
    ended.reports(
        1, "The cluster says: spec is immutable", "PyTorchJob bert was not changed. Your text is in "
    )
    path = Path(ended.err.split("Your text is in ")[1].rstrip(".\n"))
    assert "nprocPerNode: auto" in path.read_text()
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700


async def test_an_editor_that_fails_or_is_missing_is_named(
    bert: CommandLine, cluster: ScriptedCluster
) -> None:
    bert.set("KUBE_EDITOR", "false")
    (await bert.process("edit", "bert", "--yes")).reports(1, "was not changed. false: exit 1.")
    bert.set("KUBE_EDITOR", "no-such-editor")
    (await bert.process("edit", "bert", "--yes")).reports(1, "$KUBE_EDITOR names no-such-editor")
    assert not cluster.asked(PATH, method="PATCH")


async def test_edit_without_terminal_needs_yes_and_is_refused_with_readonly(bert: CommandLine) -> None:
    (await bert.process("edit", "bert")).reports(2, "pass --yes to edit")
    (await bert.process("--readonly", "edit", "bert", "--yes")).reports(1, "disabled by --readonly")
