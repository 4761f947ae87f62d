"""Every kind of output against a reader that goes away: quiet, with the status that SIGPIPE gives."""

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
from tests.tui.commands.conftest import CommandLine, echo
from trainer.tfevents import EventWriter

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
