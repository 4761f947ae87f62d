"""Every command on a terminal, against words that want to be obeyed: from files, tags and the cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from k8s.text.sanitize import UNSAFE
from tests.scripted.server import ScriptedCluster, page
from tests.support.objects import RECORDED, pod_of, pytorch_job
from tests.tui.commands.conftest import CommandLine, PretendedTerminal, write_kubeconfig
from trainer.tfevents import EventWriter
from tui.commands import COMMANDS

HOSTILE = "evil\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u200b\x7f\r"
"""Sets the title, clears the screen, turns what is read around, and cannot be seen."""
_ALLOWED = "\r\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the paths of files and folders that have hostile names and hold hostile words."""
    folder = tmp_path / HOSTILE
    folder.mkdir()
    with EventWriter(folder / f"run{HOSTILE}") as events:
        for step in range(5):
            events.write_scalar(f"loss{HOSTILE}", step, step / 2)
    (folder / f"torn{HOSTILE}.tfevents.1").write_bytes(b"no records at all, but long enough to be read")
    manifest = folder / f"job{HOSTILE}.yaml"
    manifest.write_text(json.dumps({"kind": HOSTILE, "apiVersion": HOSTILE, "metadata": {"name": HOSTILE}}))
    (folder / f"broken{HOSTILE}.yaml").write_text("{" + json.dumps(HOSTILE))
    config = tmp_path / "home" / "config" / "gpuconsole"
    config.mkdir(parents=True)
    (config / "templates").mkdir()
    (config / "templates" / f"ours{HOSTILE}.yaml").write_text(json.dumps({"description": HOSTILE}))
    (config / "templates" / f"bad{HOSTILE}.yaml").write_text(json.dumps({HOSTILE: HOSTILE}))
    (config / "config.yaml").write_text(json.dumps({HOSTILE: 1}))
    return {
        "folder": str(folder),
        "empty": str(tmp_path / "home"),
        "manifest": str(manifest),
        "broken": str(folder / f"broken{HOSTILE}.yaml"),
        "missing": str(folder / f"none{HOSTILE}"),
        "hostile": HOSTILE,
    }


LINES: dict[str, str] = {
    "top": "top jobs; top nodes -o wide",
    "list": "list -o wide; list -o json; list -o yaml; list -o csv; list {hostile}; list --context {hostile};"
    " list -o {hostile}; list --{hostile};"
    " list -l team={hostile}; list --sort-by {hostile}; list --as {hostile}",
    "completion": "completion bash; completion {hostile}",
    "get": "get evil; get evil -o yaml; get {hostile}; --kubeconfig {missing} get evil",
    "why": "why evil; why {hostile}",
    "diagnose": "diagnose evil; diagnose fails -o json; diagnose {hostile}",
    "wait": "wait {hostile}; wait evil --timeout {hostile}",
    "describe": "describe node gpu-node-1; describe node {hostile}; describe {hostile}",
    "events": "events evil; events {hostile}",
    "logs": "logs running; logs {hostile}; logs running -c {hostile}; logs running --since {hostile}",
    "compare": "compare {folder} {hostile}; compare {folder} {missing};"
    " compare ./{hostile} x --tag {hostile}",
    "runs": "runs; runs {hostile}; runs --sort-by {hostile}",
    "tensorboard": "tensorboard {missing}; tensorboard {hostile}",
    "curves": "curves {folder}; curves {folder} -o csv; curves {folder} -o json; curves {missing};"
    " curves {folder} {folder}/ {missing}; curves {folder} {folder}/ -o csv; curves {folder} --tag nothing;"
    " curves {empty}/",
    "submit": "submit -f {manifest} --dry-run client; submit -f {broken}; submit -f {missing};"
    " submit pytorch --name {hostile} --image x true;"
    " submit pytorch --name ok --image {hostile} --dry-run client -o yaml true;"
    " submit pytorch --name ok --image {hostile} --dry-run client -e A={hostile} true",
    "templates": "templates; templates -o yaml; submit --template {hostile}",
    "clone": "clone evil -o yaml --dry-run client; clone {hostile}",
    "edit": "edit {hostile}; edit evil --{hostile}",
    "delete": "delete {hostile} --yes; delete evil",
    "suspend": "suspend {hostile} --yes; suspend evil",
    "resume": "resume {hostile} --yes",
    "scale": "scale {hostile} --replicas 2 --yes; scale evil --replicas {hostile};"
    " scalein {hostile} --name {hostile} --yes; scaleout etjob --name evil --script {hostile}",
    "prune": "prune --older-than 1s --dry-run --all-users; prune --older-than {hostile}",
    "shell": "shell {hostile}",
    "forward": "forward {hostile}; forward evil",
    "data": "data list -o wide; data {hostile}",
    "sandbox": "sandbox status; sandbox kubeconfig; sandbox {hostile}",
    "info": "info; info --keys; info -o yaml; info --json",
    "help": "help; help jobs",
}
"""Invocations of each command that print names given by others."""
ON_A_TERMINAL = ("list -o wide", "delete evil", "suspend evil", "clone evil", "shell evil -- {hostile}")
"""A table, questions, progress, and a command that takes the terminal for itself."""


def test_every_command_is_tested_with_hostile_text() -> None:
    assert set(LINES) == {command.name for command in COMMANDS}


@pytest.fixture
def hostile_run(alone: CommandLine, cluster: ScriptedCluster, files: dict[str, str]) -> CommandLine:
    """Return the command line of a user whose folders and cluster have hostile names."""
    job = pytorch_job("evil", annotations={"gpuconsole.dev/user": HOSTILE}, labels={"team": HOSTILE})
    job["status"] = {
        "conditions": [{"type": HOSTILE, "status": "True", "reason": HOSTILE, "message": HOSTILE}]
    }
    recorded = json.loads((RECORDED / "pytorchjobs.json").read_bytes())["items"]
    for name in ("/apis/kubeflow.org/v1/pytorchjobs", "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"):
        cluster.replace(name, page([job, *recorded]))
    pod = pod_of(job, "master-0", on="gpu-node-0")
    pod["metadata"]["name"] = f"evil-{HOSTILE}"
    for name in ("/api/v1/pods", "/api/v1/namespaces/default/pods"):
        cluster.replace(name, page([pod]))
    alone.set("KUBECONFIG", write_kubeconfig(Path(files["folder"]), cluster.host))
    alone.set("XDG_DATA_HOME", files["folder"])
    alone.set("KUBE_EDITOR", "true")
    return alone


@pytest.mark.parametrize("command", LINES)
async def test_no_escape_is_printed(
    hostile_run: CommandLine, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for line in LINES[command].split("; "):
        shown = PretendedTerminal()
        monkeypatch.setattr(sys, "stdout", shown)
        monkeypatch.setattr(sys, "stderr", shown)
        ended = await hostile_run(*(word.format(**files) for word in line.split()))
        is_harmless(ended.status, shown.printed)


@pytest.mark.parametrize("line", ON_A_TERMINAL)
async def test_no_escape_is_written_to_a_terminal(
    hostile_run: CommandLine, files: dict[str, str], line: str
) -> None:
    is_harmless(
        *await hostile_run.on_terminal(*(word.format(**files) for word in line.split()), typed="n\n\x04")
    )


def is_harmless(status: int, printed: str) -> None:
    """Check that a command ended with words, none of which a terminal obeys."""
    assert "Traceback" not in printed
    assert status in (0, 1, 2)
    assert not [char for char in UNSAFE.findall(printed) if char not in _ALLOWED]
    assert "\r" not in printed.replace("\r\n", "")
    assert printed


async def test_csv_in_a_pipe_holds_no_escapes(hostile_run: CommandLine, files: dict[str, str]) -> None:
    ended = await hostile_run.process("curves", files["folder"], "-o", "csv")
    assert "evil" in ended.out
    assert set(UNSAFE.findall(ended.out)) <= {"\n"}


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "csv", "name"])
async def test_tables_and_objects_hold_no_escapes_in_a_pipe_either(
    hostile_run: CommandLine, form: str
) -> None:
    for words in (("list",), ("top", "jobs")) if form != "name" else (("list",),):
        ended = await hostile_run(*words, "-o", form)
        assert (ended.status, "evil" in ended.out) == (0, True)
        assert set(UNSAFE.findall(ended.out)) <= {"\n"}
