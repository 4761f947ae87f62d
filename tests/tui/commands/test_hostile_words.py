"""Every command against hostile words on a terminal, and against a reader that goes away."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from k8s.text.sanitize import UNSAFE
from tests import ROOT
from tests.scripted.server import Answer, Compute, ScriptedCluster, Stream, page
from tests.support.objects import RECORDED, pod_of, pytorch_job, recorded
from tests.tui.commands.conftest import CommandLine, PretendedTerminal, echo, write_kubeconfig
from trainer.tfevents import EventWriter
from tui.commands import COMMANDS
from tui.runs.record import RunRecord
from tui.runs.store import RunStore

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
    "timeline": "timeline --since 1h; timeline --since 1h -o json; timeline {hostile};"
    " timeline --since {hostile}",
    "record": "record --{hostile}; record {hostile}",
    "completion": "completion bash; completion {hostile}",
    "get": "get evil; get evil -o yaml; get {hostile}; get gone; get gone -o yaml;"
    " --kubeconfig {missing} get evil",
    "why": "why evil; why {hostile}; why gone",
    "diagnose": "diagnose evil; diagnose fails -o json; diagnose {hostile}; diagnose gone",
    "wait": "wait {hostile}; wait evil --timeout {hostile}",
    "describe": "describe node gpu-node-1; describe node {hostile}; describe {hostile}",
    "events": "events evil; events {hostile}",
    "logs": "logs running; logs {hostile}; logs gone;"
    " logs running -c {hostile}; logs running --since {hostile}",
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
    store = RunStore(alone.home / "state" / "gpuconsole")
    place = {"namespace": "default", "kind": "PyTorchJob", "context": "recorded", "status": "Failed"}
    store.add(RunRecord("uid-gone", "gone", user=HOSTILE, reason=HOSTILE, command=HOSTILE, **place))  # type: ignore[arg-type]
    with_job = "INSERT INTO jobs VALUES (1, 'recorded', 'u', ?1, ?1, ?1, 'v1', ?1, 0, 1, 1)"
    change = "INSERT INTO changes VALUES (1, 1, ?2, NULL, 'Failed', ?1, ?1, '', 0, 0, 0, ?1)"
    assert store.journal.write((with_job, HOSTILE), (change, HOSTILE, time.time() - 60))
    store.journal.close()
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


LOG = "/api/v1/namespaces/default/pods/running-master-0/log"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
LINE = b"2026-11-20T18:36:10.000000001Z a line of a log that goes on and on\n"
QUIET = (0, 141)
KINDS = {
    "table": ("list",),
    "JSON": ("list", "-o", "json"),
    "YAML": ("clone", "running", "-o", "yaml"),
    "CSV": ("curves", "runs", "-o", "csv"),
    "plot": ("curves", "runs"),
    "log as it is": ("logs", "running"),
    "log by lines": ("logs", "running", "--all"),
    "watched table": ("list", "--watch"),
    "help": ("--help",),
    "manual": ("help", "jobs"),
    "version": ("--version",),
    "error": ("get", "nosuch"),
}
"""One command for each kind of output: others print theirs with the same functions."""


@pytest.fixture
async def full(run: CommandLine, cluster: ScriptedCluster) -> AsyncIterator[CommandLine]:
    """Return the command line of a user whose job has a long log, and whose folder has what to read."""
    pod = next(each for each in recorded("pods") if each["metadata"]["name"] == "running-master-0")
    cluster.say(LOG.removesuffix("/log"), Answer(pod))
    cluster.say(LOG, Answer(LINE * 20_000))
    cluster.say(JOBS, Compute(echo), method="POST")
    for job in recorded("pytorchjobs"):
        cluster.say(f"{JOBS}/{job['metadata']['name']}", Answer(job))
    events = EventWriter(run.home / "runs")
    for step in range(100):
        events.write_scalar("loss", step, 1 / (step + 1))
    events.close()
    yield run


def start(run: CommandLine, words: tuple[str, ...], stderr: int | None = None) -> int:
    """Start a command that writes to a pipe, stderr too unless it has a file; return the reading end."""
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    run.warm.start(words, run.home, (nothing, writing, writing if stderr is None else stderr))
    os.close(nothing)
    os.close(writing)
    return reading


async def ends_quietly(run: CommandLine, err: IO[bytes] | None = None) -> None:
    status, said = await run.warm.end(), b""
    if err is not None:
        err.seek(0)
        said = err.read()
    assert b"Traceback" not in said and b"Exception ignored" not in said, said
    assert status in QUIET, (status, said)


@pytest.mark.parametrize("words", KINDS.values(), ids=KINDS)
async def test_a_command_ends_quietly_if_its_reader_never_reads(
    full: CommandLine, words: tuple[str, ...]
) -> None:
    os.close(start(full, words))
    await ends_quietly(full)


@pytest.mark.parametrize(
    ("words", "size"), [(KINDS["JSON"], 1), (KINDS["log as it is"], 1), (KINDS["log as it is"], 100_000)]
)
async def test_a_command_ends_quietly_if_its_reader_closes_mid_line(
    full: CommandLine, words: tuple[str, ...], size: int
) -> None:
    with TemporaryFile() as err:
        reading = start(full, words, err.fileno())
        await asyncio.to_thread(os.read, reading, size)
        os.close(reading)
        await ends_quietly(full, err)


@pytest.fixture
def still(cluster: ScriptedCluster) -> ScriptedCluster:
    """Serve watches in which nothing happens."""
    for path in ("/apis/kubeflow.org/v1/pytorchjobs", "/apis/batch/v1/jobs", "/api/v1/pods", "/api/v1/nodes"):
        cluster.say(path, Stream(), watch=True)
    return cluster


@pytest.mark.parametrize(
    ("words", "lines", "following"),
    [
        (("logs", "running", "-f"), 1, b""),
        (("logs", "running", "-f"), 20_000, LINE),
        (("logs", "running", "-f", "--all"), 1, LINE),
        (("logs", "running", "-f", "--all"), 20_000, b""),
        (("submit", "pytorch", "--name", "running", "--image", "x", "--follow", "true"), 1, b""),
    ],
    ids=["silent", "growing", "growing by lines", "silent by lines", "new job"],
)
async def test_a_followed_log_ends_quietly_when_its_reader_closes(
    full: CommandLine, still: ScriptedCluster, words: tuple[str, ...], lines: int, following: bytes
) -> None:
    log = Stream(LINE * lines)
    still.replace(LOG, log)
    with TemporaryFile() as err:
        reading, printed = start(full, words, err.fileno()), b""
        while b"a line of a log" not in printed:
            more = await asyncio.to_thread(os.read, reading, 1000)
            assert more, "it ended"
            printed += more
        os.close(reading)
        log.send(following)
        await ends_quietly(full, err)


async def test_waiting_for_a_log_ends_quietly_when_its_reader_closes(
    full: CommandLine, still: ScriptedCluster
) -> None:
    with TemporaryFile() as err:
        reading = start(full, ("logs", "waits", "-f"), err.fileno())
        await still.until_asked("/api/v1/pods", watch=True)
        os.close(reading)
        await ends_quietly(full, err)


@pytest.mark.usefixtures("still")
async def test_an_idle_watch_ends_quietly_when_its_reader_closes(full: CommandLine) -> None:
    with TemporaryFile() as err:
        reading = start(full, KINDS["watched table"], err.fileno())
        assert b"NAME" in await asyncio.to_thread(os.read, reading, 1000)
        os.close(reading)
        await ends_quietly(full, err)


@pytest.mark.parametrize("closed", [">&-", "<&-"])
async def test_a_command_started_with_closed_streams_succeeds(full: CommandLine, closed: str) -> None:
    child = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-P", "-W", "error", "-m", "tui", "list"),
        cwd=full.home,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await child.communicate()
    assert (child.returncode, err) == (0, b"")


async def test_a_full_disk_is_named(full: CommandLine) -> None:
    for name in ("table", "log as it is", "plot"):
        with open(os.devnull) as nothing, open("/dev/full", "wb") as disk, TemporaryFile() as err:
            full.warm.start(KINDS[name], full.home, [each.fileno() for each in (nothing, disk, err)])
            status = await full.warm.end()
            err.seek(0)
            said = err.read()
        assert (status, said) == (1, b"Could not use standard output.\nNo space left on device.\n")


async def test_an_ascii_locale_gets_ascii_output(full: CommandLine) -> None:
    full.set("LC_ALL", "C")
    child = await full.start("get", "waits")
    out, err = await child.communicate()
    assert (child.returncode, out.isascii(), err.isascii()) == (0, True, True), out
    for words in (("list",), ("top", "nodes", "--live"), ("curves", f"{full.home}/runs"), ("--help",)):
        ended = await full(*words)
        assert (ended.status, ended.out.isascii(), ended.err.isascii()) == (0, True, True), ended.out
