"""Shell completion: in the real shells, with the names of a cluster, and silent without one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT
from tests.scripted.server import WAIT_S, Stall
from tests.support.terminal import Terminal
from tests.tui.commands.conftest import CommandLine
from tui.__main__ import main
from tui.commands import completer, completion
from tui.commands.completer import cluster_key, read_names

GRAMMAR = cache(completion.make_grammar)
JOBS = ["bert", "resnet"]
NAMES = {
    "contexts": ["lab", "prod:east"],
    "nodes": ["gpu-1", "gpu-2"],
    "namespaces": ["default", "vision"],
    "templates": ["mpi-vgg16"],
    "themes": ["dark", "light", "mine"],
    "jobs": {
        "bert": {"words": "PyTorchJob Running", "instances": ["master-0", "worker-0"], "ranks": [0, 1]},
        "resnet": {"words": "MPIJob Failed", "instances": ["launcher"], "ranks": []},
    },
}
PATIENT = """\
import sys
from tui.commands import completer
from tui.__main__ import main
completer.FRESH_S, completer.FIRST_S = 3600.0, {wait_s}
sys.exit(main())
"""
"""The program with caches that stay fresh, and with patience, however slow the machine is."""


@pytest.fixture
def grammar(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache the grammar, which takes a second to make."""
    monkeypatch.setattr(completion, "make_grammar", GRAMMAR)
    assert main(["__complete", ""]) == 0


@pytest.fixture
def binaries(grammar: None, tmp_path: Path) -> Path:
    script = tmp_path / "patient.py"
    script.write_text(PATIENT.format(wait_s=WAIT_S))
    binary = tmp_path / "bin" / "gpuconsole"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -W error {script} "$@"\n')
    binary.chmod(0o755)
    return binary.parent


class Refreshing:
    """A refresh of the names that does not end in time."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, for_s: float) -> None:
        self.waits.append(for_s)
        raise subprocess.TimeoutExpired("gpuconsole", for_s)


@pytest.fixture
def names(grammar: None, monkeypatch: pytest.MonkeyPatch) -> Refreshing:
    """Cache names that stay fresh, and return the refresh of others."""
    refreshing = Refreshing()
    monkeypatch.setattr(completer, "_refresh", lambda _flags: refreshing)
    monkeypatch.setattr(completer, "FRESH_S", 3600.0)
    folder = Path(completer.state_folder())
    found = {cluster_key("", "", "", is_sandbox=False): {"at": time.time(), **NAMES}}
    (folder / completer.NAMES_FILE).write_text(json.dumps(found))
    return refreshing


def completions(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the completions of the last word without descriptions, and the last line."""
    capsys.readouterr()
    assert main(["__complete", *words]) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected", "waits"),
    [
        ("wa|", ["wait", ":"], False),
        ("logs |", [*JOBS, ":"], False),
        ("logs be|", ["bert", ":"], False),
        ("logs bert -i |", ["master-0", "worker-0", ":"], False),
        ("logs PyTorchJob/bert -r |", ["0", "1", ":"], False),
        ("logs bert x|", [":"], False),
        ("delete bert r|", ["resnet", ":"], False),
        ("wait --for |", ["running", "succeeded", "silent", "finished", ":"], False),
        ("wait --for=s|", ["--for=succeeded", "--for=silent", ":"], False),
        ("wait --for = s|", ["succeeded", "silent", ":"], False),
        ("wait --for =|", ["running", "succeeded", "silent", "finished", ":"], False),
        ("--context |", ["lab", "prod:east", ":"], False),
        ("list -n v|", ["vision", ":"], False),
        ("describe node gpu-|", ["gpu-1", "gpu-2", ":"], False),
        ("top n|", ["nodes", ":"], False),
        ("submit pytorch --template |", ["mpi-vgg16", ":"], False),
        ("info --theme m|", ["mine", ":"], False),
        ("help co|", ["configuration", ":"], False),
        ("list -o |", ["table", "wide", "json", "yaml", "name", "csv", ":"], False),
        ("top nodes --output=w|", ["--output=wide", ":"], False),
        ("list --type rayj|", ["rayjob", ":"], False),
        ("submit -f |", [":files"], False),
        ("curves |", [*JOBS, ":files"], False),
        ("completion |", ["bash", "zsh", "fish", ":"], False),
        ("logs --previ|", ["--previous", ":"], False),
        ("nonsense |", [":files"], False),
        # All namespaces of a cluster share its nodes, namespaces and contexts, but not its jobs.
        ("-n default --context |", ["lab", "prod:east", ":"], False),
        ("-n v|", ["vision", ":"], False),
        ("-n vision describe node gpu-2|", ["gpu-2", ":"], True),
        ("-n vision logs b|", [":"], True),
        ("-A logs be|", [":"], True),
        ("--context lab -n v|", [":"], True),
        ("--sandbox describe node g|", [":"], True),
    ],
)
def test_the_word_at_the_cursor_is_completed(
    names: Refreshing, capsys: pytest.CaptureFixture[str], words: str, expected: list[str], waits: bool
) -> None:
    assert completions(capsys, *words.removesuffix("|").split(" ")) == expected
    assert bool(names.waits) is waits


@pytest.mark.usefixtures("names")
def test_cached_names_are_separate_per_namespace_and_cluster() -> None:
    assert read_names(cluster_key("", "", "vision", is_sandbox=False)) == {}
    assert read_names(cluster_key("", "", "", is_sandbox=True)) == {}
    assert read_names(cluster_key("", "", "", is_sandbox=False))["nodes"] == ["gpu-1", "gpu-2"]


@pytest.mark.usefixtures("names")
def test_names_that_could_write_to_the_terminal_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(completer.state_folder()) / completer.NAMES_FILE
    evil = {"ok": {"words": "\x1b[2J"}, "\x1b]0;x\x07": {}}
    path.write_text(
        json.dumps({cluster_key("", "", "", is_sandbox=False): {"at": time.time(), "jobs": evil}})
    )
    assert completions(capsys, "logs", "") == ["ok", ":"]


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    "content", ["", "[]", '{"x": 1', '{"[\\"\\", \\"\\", false, \\"\\"]": 3}', "[" * 9999, '{"x": {}}']
)
def test_a_corrupt_completion_cache_completes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: str
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


async def test_an_unresponsive_cluster_is_queried_once_and_its_cached_names_are_retained(
    run: CommandLine,
) -> None:
    await run.process("completion", "--refresh")
    key = cluster_key("", "", "", is_sandbox=False)
    known, before = read_names(key), len(run.cluster.asked("/api/v1/nodes"))
    run.cluster.say_everywhere(Stall())
    first = await run.start("completion", "--refresh")
    await run.cluster.until_asked("/api/v1/nodes", times=before + 1)
    assert (await run.process("completion", "--refresh")).status == 0
    assert len(run.cluster.asked("/api/v1/nodes")) == before + 1
    first.terminate()
    await first.communicate()
    assert read_names(key) == known


def test_without_a_cluster_a_tab_is_silent(binaries: Path) -> None:
    done = subprocess.run([binaries / "gpuconsole", "__complete", "logs", ""], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, ":\n", "")


def run_shell(binaries: Path, *words: str) -> list[str]:
    """Run a shell in which `gpuconsole` is the one of these tests."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    env = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "XDG_DATA_HOME": str(binaries)}
    return subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


@pytest.mark.end_to_end
@pytest.mark.usefixtures("names")
def test_bash_completes(binaries: Path) -> None:
    script = """
    source <(gpuconsole completion bash)
    complete -p gpuconsole >/dev/null || exit 1
    try() { COMP_WORDS=(gpuconsole "$@"); COMP_CWORD=$#; _gpuconsole; printf '%s ' "${COMPREPLY[@]}"; echo; }
    try logs ''
    try wait --for = s
    """
    assert run_shell(binaries, "bash", "--norc", "-c", script) == ["bert resnet ", "succeeded silent "]


@pytest.mark.usefixtures("names")
def test_fish_completes(binaries: Path) -> None:
    tries = "complete -C 'gpuconsole logs '; complete -C 'gpuconsole wait --for=f'"
    script = f"gpuconsole completion fish | source; {tries}"
    assert run_shell(binaries, "fish", "--no-config", "-c", script) == [
        "bert\tPyTorchJob Running",
        "resnet\tMPIJob Failed",
        "--for=finished",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("names")
async def test_zsh_completes(binaries: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    env = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "TERM": "xterm", "PS1": "ready> "}

    def type_tabs() -> None:
        with Terminal(["zsh", "-f"], env=env, folder=binaries) as terminal:
            for typed, shown in (
                ("", "ready>"),
                ("source <(gpuconsole completion zsh); echo lo''aded\r", "loaded"),
                ("gpuconsole logs res\t", "gpuconsole logs resnet"),
                ("-i la\t", "logs resnet -i launcher"),
                ("\x15gpuconsole --context prod\t", "--context prod:east"),
            ):
                terminal.send(typed)
                terminal.wait_for(shown, timeout_s=60)

    await asyncio.to_thread(type_tabs)
