"""Every command against a reader that goes away: quiet, and the status of a process that SIGPIPE ended."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from tempfile import TemporaryFile
from typing import IO

import pytest

from tests import ROOT
from tests.scripted.server import Answer, Compute, ScriptedCluster, Stream
from tests.support.objects import recorded
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.submitting import echo
from trainer.tfevents import EventWriter
from tui.commands import COMMANDS

LOG = "/api/v1/namespaces/default/pods/running-master-0/log"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
LINE = b"2026-11-20T18:36:10.000000001Z a line of a log that goes on and on\n"
QUIET = (0, 141)
FOLLOW = (
    ("logs", "running", "-f"),
    ("logs", "running", "-f", "--all"),
    ("submit", "pytorch", "--name", "running", "--image", "x", "--follow", "true"),
)
MANIFEST = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: one}\nspec: {}\n"

COMMAND_LINES = (
    ("--help",),
    ("--version",),
    (),
    ("top", "nodes"),
    ("top", "jobs"),
    ("top", "users"),
    ("top", "nodes", "--live"),
    ("list",),
    ("list", "-o", "json"),
    ("list", "--watch"),
    ("get", "running"),
    ("get", "running", "--watch"),
    ("get", "nosuch"),
    ("describe", "node", "n1"),
    ("why", "running"),
    ("events", "running"),
    ("wait", "done"),
    ("diagnose", "fails"),
    ("logs", "running"),
    ("curves", "runs"),
    ("compare", "runs", "./nosuch"),
    ("runs",),
    ("tensorboard", "./nosuch"),
    ("submit", "job", "--name", "one", "--image", "x", "--dry-run", "client", "-o", "yaml", "true"),
    ("submit", "-f", "one.yaml", "--dry-run", "client"),
    ("templates",),
    ("clone", "running", "-o", "yaml"),
    ("edit", "nosuch", "--yes"),
    ("delete", "nosuch", "--yes"),
    ("suspend", "nosuch", "--yes"),
    ("resume", "nosuch"),
    ("scale", "nosuch", "--replicas", "3", "--yes"),
    ("scalein", "etjob", "--name", "nosuch", "--yes"),
    ("scaleout", "etjob", "--name", "nosuch", "--yes"),
    ("label", "node", "n1", "ack.node.gpu.schedule=topology", "--yes"),
    ("prune", "--older-than", "1d", "--dry-run"),
    ("shell", "running", "--", "true"),
    ("forward", "running"),
    ("bundle", "running", "-o", "bundle.tar.gz"),
    ("data", "list"),
    ("sandbox", "status"),
    ("info",),
    ("version",),
    ("completion", "bash"),
    ("help", "jobs"),
)


@pytest.fixture
async def full(run: CommandLine, cluster: ScriptedCluster) -> AsyncIterator[CommandLine]:
    """Return the command line of a user whose job has a long log, and whose folder has what to read."""
    pod = next(each for each in recorded("pods") if each["metadata"]["name"] == "running-master-0")
    cluster.say(LOG.removesuffix("/log"), Answer(pod))
    cluster.say(LOG, Answer(LINE * 20_000))
    cluster.say(JOBS, Compute(echo), method="POST")
    for job in recorded("pytorchjobs"):
        cluster.say(f"{JOBS}/{job['metadata']['name']}", Answer(job))
    (run.home / "one.yaml").write_text(MANIFEST)
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


def test_every_command_has_a_row() -> None:
    assert {words[0] for words in COMMAND_LINES if words} >= {each.name for each in COMMANDS}


@pytest.mark.parametrize("words", COMMAND_LINES, ids=" ".join)
async def test_a_reader_that_never_read(full: CommandLine, words: tuple[str, ...]) -> None:
    os.close(start(full, words))
    await ends_quietly(full)


@pytest.mark.parametrize("words", [("logs", "running"), ("list", "-o", "json"), ("info",)], ids=" ".join)
@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_reader_that_leaves_mid_line(full: CommandLine, words: tuple[str, ...], size: int) -> None:
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


@pytest.mark.parametrize("following", [LINE, b""], ids=["growing", "silent"])
@pytest.mark.parametrize("lines", [1, 20_000])
@pytest.mark.parametrize("words", FOLLOW, ids=" ".join)
async def test_a_reader_that_leaves_while_a_log_is_followed(
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


async def test_a_reader_that_leaves_while_a_log_is_waited_for(
    full: CommandLine, still: ScriptedCluster
) -> None:
    with TemporaryFile() as err:
        reading = start(full, ("logs", "waits", "-f"), err.fileno())
        await still.until_asked("/api/v1/pods", watch=True)
        os.close(reading)
        await ends_quietly(full, err)


@pytest.mark.parametrize(
    "words", [("list", "-w"), ("get", "running", "-w"), ("top", "nodes", "-w")], ids=" ".join
)
@pytest.mark.usefixtures("still")
async def test_a_reader_that_leaves_while_nothing_changes(full: CommandLine, words: tuple[str, ...]) -> None:
    with TemporaryFile() as err:
        reading = start(full, words, err.fileno())
        assert b"NAME" in await asyncio.to_thread(os.read, reading, 1000)
        os.close(reading)
        await ends_quietly(full, err)


@pytest.mark.parametrize("closed", [">&-", "<&-"])
async def test_streams_closed_at_the_start_are_as_the_null_device(full: CommandLine, closed: str) -> None:
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
    for words in (("list",), ("logs", "running"), ("curves", "runs")):
        with open("/dev/full", "wb") as disk:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-W", "error", "-m", "tui"),
                *words,
                cwd=full.home,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=disk,
                stderr=asyncio.subprocess.PIPE,
            )
            _, err = await child.communicate()
        assert (child.returncode, err) == (1, b"Could not use standard output.\nNo space left on device.\n")


async def test_a_locale_without_more_than_ascii_gets_no_more(full: CommandLine) -> None:
    full.set("LC_ALL", "C")
    for words in (("list",), ("get", "waits"), ("top", "nodes", "--live"), ("curves", "runs"), ("--help",)):
        child = await full.start(*words)
        out, err = await child.communicate()
        assert (child.returncode, out.isascii(), err.isascii()) == (0, True, True), out
