"""Shell completion: in the real shells, with the names of a cluster, and silent without one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.scripted.server import ScriptedCluster, Stall
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine
from tui.commands import completer
from tui.commands.completer import cluster_key, read_names

JOBS = ["bert", "resnet"]
NAMES = {
    "contexts": ["lab", "prod:east"],
    "nodes": ["gpu-1", "gpu-2"],
    "namespaces": ["default", "vision"],
    "templates": ["mpi-vgg16"],
    "jobs": {
        "bert": {
            "words": "PyTorchJob Running",
            "instances": ["master-0", "worker-0"],
            "ranks": [0, 1],
        },
        "resnet": {"words": "MPIJob Failed", "instances": ["launcher"], "ranks": []},
    },
}


@pytest.fixture
def names(alone: CommandLine, tmp_path: Path) -> Path:
    """Cache names, and return a folder with a `gpuconsole` for shells."""
    folder = Path(completer.state_folder())
    folder.mkdir(parents=True)
    found = {cluster_key("", "", "", is_sandbox=False): {"at": time.time(), **NAMES}}
    (folder / completer.NAMES_FILE).write_text(json.dumps(found))
    binary = tmp_path / "bin" / "gpuconsole"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m tui "$@"\n')
    binary.chmod(0o755)
    return binary.parent


def completions(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the completions of the last word without descriptions, and the last line."""
    capsys.readouterr()
    assert completer.complete(words) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("wa|", ["wait", ":"]),
        ("logs |", [*JOBS, ":"]),
        ("logs be|", ["bert", ":"]),
        ("-n default logs be|", [":"]),
        ("logs bert -i |", ["master-0", "worker-0", ":"]),
        ("logs PyTorchJob/bert -r |", ["0", "1", ":"]),
        ("logs bert x|", [":"]),
        ("-A logs be|", [":"]),
        ("delete bert r|", ["resnet", ":"]),
        ("wait --for |", ["running", "succeeded", "silent", "finished", ":"]),
        ("wait --for=s|", ["--for=succeeded", "--for=silent", ":"]),
        ("wait --for = s|", ["succeeded", "silent", ":"]),
        ("wait --for =|", ["running", "succeeded", "silent", "finished", ":"]),
        ("--context |", ["lab", "prod:east", ":"]),
        ("list -n v|", ["vision", ":"]),
        ("describe node gpu-|", ["gpu-1", "gpu-2", ":"]),
        ("top n|", ["nodes", ":"]),
        ("submit pytorch --template |", ["mpi-vgg16", ":"]),
        ("submit -f |", [":files"]),
        ("curves |", [*JOBS, ":files"]),
        ("completion |", ["bash", "zsh", "fish", ":"]),
        ("logs --previ|", ["--previous", ":"]),
        ("nonsense |", [":files"]),
    ],
)
def test_the_word_at_the_cursor_is_completed(
    names: Path, capsys: pytest.CaptureFixture[str], words: str, expected: list[str]
) -> None:
    typed = words.removesuffix("|").split(" ")
    assert completions(capsys, *typed) == expected


def test_another_namespace_or_cluster_has_names_of_its_own(names: Path) -> None:
    assert read_names(cluster_key("", "", "vision", is_sandbox=False)) == {}
    assert read_names(cluster_key("", "", "", is_sandbox=True)) == {}
    assert read_names(cluster_key("", "", "", is_sandbox=False))["nodes"] == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-n default --context |", ["lab", "prod:east", ":"]),
        ("-n v|", ["vision", ":"]),
        ("-n vision describe node gpu-2|", ["gpu-2", ":"]),
        ("-n vision logs b|", [":"]),
        ("--context lab -n v|", [":"]),
        ("--sandbox describe node g|", [":"]),
    ],
)
def test_what_all_namespaces_of_a_cluster_share_is_completed_in_a_new_one_without_a_wait(
    names: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    expected: list[str],
) -> None:
    waits: list[float] = []

    class Refreshing:
        def wait(self, for_s: float) -> None:
            waits.append(for_s)
            raise subprocess.TimeoutExpired("gpuconsole", for_s)

    monkeypatch.setattr(completer, "_refresh", lambda _flags: Refreshing())
    assert completions(capsys, *words.removesuffix("|").split(" ")) == expected
    # Names of jobs, and those of another cluster, are not known yet.
    assert bool(waits) is any(each in words for each in (" node ", "logs", "--context lab", "--sandbox"))


def test_names_that_could_write_to_the_terminal_are_left_out(
    names: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(completer.state_folder()) / completer.NAMES_FILE
    evil = {"ok": {"words": "\x1b[2J"}, "\x1b]0;x\x07": {}}
    path.write_text(
        json.dumps({cluster_key("", "", "", is_sandbox=False): {"at": time.time(), "jobs": evil}})
    )
    assert completions(capsys, "logs", "") == ["ok", ":"]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"x": 1', '{"[\\"\\", \\"\\", false, \\"\\"]": 3}', "[" * 9999, '{"x": {}}']
)
def test_a_broken_cache_counts_as_none(
    names: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (Path(completer.state_folder()) / completer.NAMES_FILE).write_text(content)
    (Path(completer.state_folder()) / completer.GRAMMAR_FILE).write_text(content)
    monkeypatch.setattr(completer, "_refresh", lambda _flags: None)
    assert completions(capsys, "wait", "") == [":"]


async def test_names_are_read_from_the_cluster(run: CommandLine) -> None:
    ended = await run.process("completion", "--refresh")
    assert (ended.status, ended.out) == (0, "")
    found = read_names(cluster_key("", "", "", is_sandbox=False))
    assert found["jobs"]
    assert all(each["instances"] for each in found["jobs"].values())
    assert found["contexts"] == ["recorded"]
    assert found["nodes"]


async def test_of_a_cluster_that_does_not_answer_the_names_are_asked_for_once_and_stay(
    run: CommandLine, cluster: ScriptedCluster
) -> None:
    await run.process("completion", "--refresh")
    key = cluster_key("", "", "", is_sandbox=False)
    known, before = read_names(key), len(cluster.asked("/api/v1/nodes"))
    cluster.say_everywhere(Stall())
    first = await run.start("completion", "--refresh")
    await cluster.until_asked("/api/v1/nodes", times=before + 1)
    assert (await run.process("completion", "--refresh")).status == 0
    assert len(cluster.asked("/api/v1/nodes")) == before + 1
    first.terminate()
    await first.communicate()
    assert read_names(key) == known


async def test_without_a_cluster_a_tab_is_silent(alone: CommandLine) -> None:
    ended = await alone.process("__complete", "logs", "")
    assert (ended.status, ended.out, ended.err) == (0, ":\n", "")


def run_shell(names: Path, *words: str) -> list[str]:
    """Run a shell in which `gpuconsole` is the one of these tests."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    env = {**os.environ, "PATH": f"{names}:{os.environ['PATH']}", "XDG_DATA_HOME": str(names)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_bash_completes(names: Path) -> None:
    script = """
    source <(gpuconsole completion bash)
    complete -p gpuconsole >/dev/null || exit 1
    try() { COMP_WORDS=(gpuconsole "$@"); COMP_CWORD=$#; _gpuconsole; printf '%s ' "${COMPREPLY[@]}"; echo; }
    try logs ''
    try wait --for = s
    """
    assert run_shell(names, "bash", "--norc", "-c", script) == ["bert resnet ", "succeeded silent "]


def test_fish_completes(names: Path) -> None:
    tries = "complete -C 'gpuconsole logs '; complete -C 'gpuconsole wait --for=f'"
    script = f"gpuconsole completion fish | source; {tries}"
    assert run_shell(names, "fish", "--no-config", "-c", script) == [
        "bert\tPyTorchJob Running",
        "resnet\tMPIJob Failed",
        "--for=finished",
    ]


async def test_zsh_completes(names: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    env = {**os.environ, "PATH": f"{names}:{os.environ['PATH']}", "TERM": "xterm", "PS1": "ready> "}

    def type_tabs() -> None:
        with Terminal(["zsh", "-f"], env=env, folder=names) as terminal:
            terminal.wait_for("ready>")
            terminal.send("source <(gpuconsole completion zsh); echo lo''aded\r")
            terminal.wait_for("loaded")
            terminal.send("gpuconsole logs res\t")
            terminal.wait_for("gpuconsole logs resnet")
            terminal.send("-i la\t")
            terminal.wait_for("logs resnet -i launcher")
            terminal.send("\x15gpuconsole --context prod\t")
            terminal.wait_for("--context prod:east")

    await asyncio.to_thread(type_tabs)
