"""Shell completion: in the real shells, with the names of a cluster, and silent without one."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from argcomplete.finders import CompletionFinder

from tests import ROOT
from tests.scripted.server import Stall
from tests.tui.commands.conftest import CommandLine
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
from tui.__main__ import main
from tui.commands import completer
completer.FRESH_S = 3600.0
sys.exit(main())
"""
"""The program with caches that stay fresh, however slow the machine is."""


@pytest.fixture
def grammar(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache the arguments, which take a second to collect."""
    monkeypatch.setattr(completion, "make_grammar", GRAMMAR)
    completion.store_grammar()


@pytest.fixture
def binaries(grammar: None, tmp_path: Path) -> Path:
    script = tmp_path / "patient.py"
    script.write_text(PATIENT)
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


def completions(line: str) -> list[str]:
    """Return the completions at the end of the line, as bash gets them."""
    found = io.StringIO()
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(CompletionFinder, "_init_debug_stream", lambda _: None)
        for name, value in (("_ARGCOMPLETE", "1"), ("_ARGCOMPLETE_SHELL", "bash"), ("COMP_TYPE", "9")):
            patching.setenv(name, value)
        patching.setenv("_ARGCOMPLETE_COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
        patching.setenv("_ARGCOMPLETE_SUPPRESS_SPACE", "1")
        patching.setenv("COMP_LINE", line)
        patching.setenv("COMP_POINT", str(len(line)))
        completer.complete(
            completer.read_grammar() or completion.store_grammar(),
            exit_method=lambda _: None,
            output_stream=found,
        )
    return [each for each in found.getvalue().split("\x0b") if each]


@pytest.mark.parametrize(
    ("words", "expected", "waits"),
    [
        ("wa", ["wait"], False),
        ("logs ", [*JOBS], False),
        ("logs be", ["bert"], False),
        ("logs bert -i ", ["master-0", "worker-0"], False),
        ("logs PyTorchJob/bert -r ", ["0", "1"], False),
        ("logs bert x", [], False),
        ("delete bert r", ["resnet"], False),
        ("wait --for ", ["running", "succeeded", "silent", "finished"], False),
        ("wait --for=s", ["succeeded", "silent"], False),
        ("--context ", ["lab", "prod:east"], False),
        ("list -n v", ["vision"], False),
        ("describe node gpu-", ["gpu-1", "gpu-2"], False),
        ("top n", ["nodes", "node"], False),
        ("submit pytorch --template ", ["mpi-vgg16"], False),
        ("info --theme m", ["mine"], False),
        ("help co", ["configuration"], False),
        ("list -o ", ["table", "wide", "json", "yaml", "name", "csv"], False),
        ("top nodes --output=w", ["wide"], False),
        ("list --type rayj", ["rayjob"], False),
        ("list --sort-by a", ["api_version", "age_s"], False),
        ("top nodes --sort-by=gpus_f", ["gpus_free"], False),
        ("runs --sort-by ended_", ["ended_ago_s"], False),
        ("ls --context p", ["prod:east"], False),
        ("curves be", ["bert"], False),
        ("completion ", ["bash", "zsh", "fish"], False),
        ("logs --previ", ["--previous"], False),
        # All namespaces of a cluster share its nodes, namespaces and contexts, but not its jobs.
        ("-n default --context ", ["lab", "prod:east"], False),
        ("-n v", ["vision"], False),
        ("-n vision describe node gpu-2", ["gpu-2"], True),
        ("-n vision logs b", [], True),
        ("-A logs be", [], True),
        ("--context lab -n v", [], True),
        ("--sandbox describe node g", [], True),
    ],
)
def test_the_word_at_the_cursor_is_completed(
    names: Refreshing, words: str, expected: list[str], waits: bool
) -> None:
    assert completions(f"gpuconsole {words}") == expected
    assert bool(names.waits) is waits


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(("words", "expected"), [("submit -f ", ["runs/"]), ("curves ", [*JOBS, "runs/"])])
def test_paths_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
) -> None:
    (tmp_path / "here" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert completions(f"gpuconsole {words}") == expected


@pytest.mark.usefixtures("names")
def test_cached_names_are_separate_per_namespace_and_cluster() -> None:
    assert read_names(cluster_key("", "", "vision", is_sandbox=False)) == {}
    assert read_names(cluster_key("", "", "", is_sandbox=True)) == {}
    assert read_names(cluster_key("", "", "", is_sandbox=False))["nodes"] == ["gpu-1", "gpu-2"]


@pytest.mark.usefixtures("names")
def test_names_that_could_write_to_the_terminal_are_left_out() -> None:
    path = Path(completer.state_folder()) / completer.NAMES_FILE
    evil = {"ok": {"words": "\x1b[2J"}, "\x1b]0;x\x07": {}}
    path.write_text(
        json.dumps({cluster_key("", "", "", is_sandbox=False): {"at": time.time(), "jobs": evil}})
    )
    assert completions("gpuconsole logs ") == ["ok"]


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    "content", ["", "[]", '{"x": 1', '{"[\\"\\", \\"\\", false, \\"\\"]": 3}', "[" * 9999, '{"x": {}}']
)
def test_a_corrupt_completion_cache_completes_nothing(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    (Path(completer.state_folder()) / completer.NAMES_FILE).write_text(content)
    (Path(completer.state_folder()) / completer.GRAMMAR_FILE).write_text(content)
    monkeypatch.setattr(completer, "_refresh", lambda _flags: None)
    assert completions("gpuconsole wait ") == []


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
    try() { COMP_LINE=$1; COMP_POINT=${#1}; _python_argcomplete gpuconsole; echo "${COMPREPLY[*]}"; }
    try 'gpuconsole logs '
    try 'gpuconsole -n nowhere logs '
    try 'gpuconsole wait --for=s'
    """
    assert run_shell(binaries, "bash", "--norc", "-c", script) == ["bert resnet", "", "succeeded silent"]


@pytest.mark.usefixtures("names")
def test_fish_completes(binaries: Path) -> None:
    script = "gpuconsole completion fish | source; complete -C 'gpuconsole logs '"
    assert run_shell(binaries, "fish", "--no-config", "-c", script) == [
        "bert\tPyTorchJob Running",
        "resnet\tMPIJob Failed",
    ]


def test_zsh_gets_a_script_that_registers_the_command(binaries: Path) -> None:
    script = (
        "autoload -U compinit; compinit -uD; source <(gpuconsole completion zsh); echo $_comps[gpuconsole]"
    )
    assert run_shell(binaries, "zsh", "-f", "-c", script) == ["_python_argcomplete"]
