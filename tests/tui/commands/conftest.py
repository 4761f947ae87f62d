"""The command line run for real, as a process, against a recorded cluster on loopback."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import msgspec
import pytest
import yaml

from tests import ROOT
from tests.scripted.server import Answer, Asked, Reply, ScriptedCluster, page
from tests.support.objects import RECORDED
from tests.support.warm_start import WarmStart
from tui.__main__ import main

COLLECTIONS = ("nodes", "pods", "services", "persistentvolumeclaims", "events")
"""Recorded collections of the core group, beside the PyTorchJobs."""


class Ended(msgspec.Struct, frozen=True):
    status: int
    out: str
    err: str

    @property
    def values(self) -> Any:
        return json.loads(self.out)

    def reports(self, status: int, *words: str) -> None:
        """Check that the command ended with a status, printed nothing, and said these words of it."""
        assert (self.status, self.out) == (status, ""), self.err
        assert [each for each in words if each not in self.err] == [], self.err

    def titles(self) -> list[str]:
        """Return the words of the first printed line."""
        return self.out.splitlines()[0].split()

    def row(self, name: str) -> list[str]:
        """Return the words of the printed line that begins with a name."""
        return next(line.split() for line in self.out.splitlines() if line.split()[:1] == [name])


class PretendedTerminal(io.TextIOWrapper):
    """A stream that takes itself for a terminal."""

    def __init__(self) -> None:
        self.written = io.BytesIO()
        super().__init__(self.written, encoding="utf-8", newline="", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def printed(self) -> str:
        return self.written.getvalue().decode()


class Forked:
    """A command in a process forked from one that has imported it; one runs at a time."""

    def __init__(self, warm: WarmStart, words: tuple[str, ...], home: Path) -> None:
        self._warm = warm
        self._err = TemporaryFile()  # noqa: SIM115
        self.has_ended = False
        reading, writing = os.pipe()
        with open(os.devnull) as nothing:
            warm.start(words, home, [nothing.fileno(), writing, self._err.fileno()])
        os.close(writing)
        self.out = open(reading, "rb")  # noqa: SIM115

    async def line(self) -> bytes:
        """Return the next line that it prints; empty at its end."""
        return await asyncio.to_thread(self.out.readline)

    def errors(self) -> bytes:
        """Return its errors until now."""
        return os.pread(self._err.fileno(), 65536, 0)

    async def ends(self) -> tuple[int, bytes, bytes]:
        """Wait for its end; return its status, and what it has printed since."""
        out = await asyncio.to_thread(self.out.read)
        status, err = await self.leave()
        return status, out, err

    async def leave(self) -> tuple[int, bytes]:
        """Read no more, which ends it; return its status and what it wrote to stderr."""
        self.has_ended = True
        self.out.close()
        status = await self._warm.end()
        with self._err as file:
            file.seek(0)
            err = file.read()
        assert b"Traceback" not in err, err
        return status, err


class CommandLine:
    """Runs `gpuconsole` as a user of one machine would, in this process or in one of its own."""

    cluster: ScriptedCluster
    """The recorded cluster, of the fixture `run` alone."""

    def __init__(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], warm: WarmStart
    ) -> None:
        self.home = home
        self.warm = warm
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._forked: list[Forked] = []
        folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "STATE", "DATA")}
        for name, value in {"HOME": str(home), "LOGNAME": "li", "TERM": "dumb", **folders}.items():
            self.set(name, value)
        for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
            monkeypatch.delenv(name, raising=False)

    def set(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)

    async def __call__(self, *words: str) -> Ended:
        """Run the command in a thread, for the cluster is served by this one."""
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", [sys.argv[0], *words])  # advice quotes it
        status = await asyncio.to_thread(_status_of, words)
        for _ in range(20):  # the server is to see that the connections are closed
            await asyncio.sleep(0)
        said = self._capsys.readouterr()
        return Ended(status, said.out, said.err)

    async def process(self, *words: str) -> Ended:
        """Run the command as a process of its own, forked from one that has imported it."""
        status, out, err = await self.fork(*words).ends()
        return Ended(status, out.decode(errors="replace"), err.decode())

    def fork(self, *words: str) -> Forked:
        """Start the command as a process of its own, of which only the output is of interest."""
        self._forked.append(Forked(self.warm, words, self.home))
        return self._forked[-1]

    async def on_terminal(self, *words: str, typed: str) -> tuple[int, str]:
        """Run the command on a terminal on which the answers are typed ahead; return status and screen."""
        self.set("COLUMNS", "160")
        master, terminal = pty.openpty()
        try:
            self.warm.start(words, self.home, [terminal] * 3)
            os.close(terminal)
            os.write(master, typed.encode())
            printed = await asyncio.to_thread(_read_all, master)
            return await self.warm.end(), printed
        finally:
            os.close(master)

    def close(self) -> None:
        """End what a failed test has left running."""
        for each in self._forked:
            if not each.has_ended:
                asyncio.run(each.leave())

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-W", "error", "-m", "tui"),
            *words,
            cwd=self.home,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


def _read_all(master: int) -> str:
    found = b""
    while True:
        try:
            found += os.read(master, 65536)
        except OSError:  # EIO: the last who had it open has ended
            return found.decode("utf-8", "replace")


def _status_of(words: tuple[str, ...]) -> int:
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with ScriptedCluster() as serving:
        for name in COLLECTIONS:
            items = json.loads((RECORDED / f"{name}.json").read_bytes())["items"]
            serving.say(f"/api/v1/{name}", page(items))
            if name != "pods":  # those of one namespace follow from all
                serving.say(f"/api/v1/namespaces/default/{name}", page(items))
        jobs = json.loads((RECORDED / "pytorchjobs.json").read_bytes())["items"]
        serving.say("/apis/kubeflow.org/v1/pytorchjobs", page(jobs))
        serving.say("/apis/batch/v1/jobs", page([]))
        for name in ("default", "vision"):
            serving.say(f"/api/v1/namespaces/{name}", Answer({"metadata": {"name": name}}))
        serving.accept_companions("default")
        serving.say("/version", Answer(json.loads((RECORDED / "version.json").read_bytes())))
        yield serving


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    started = WarmStart()
    yield started
    started.close()


@pytest.fixture
def alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], warm: WarmStart
) -> Iterator[CommandLine]:
    """Return the command line of a user without a kubeconfig."""
    home = tmp_path / "home"
    home.mkdir()
    line = CommandLine(home, monkeypatch, capsys, warm)
    yield line
    line.close()


@pytest.fixture
def run(alone: CommandLine, cluster: ScriptedCluster) -> CommandLine:
    """Return the command line of a user of the recorded cluster."""
    alone.set("KUBECONFIG", write_kubeconfig(alone.home, cluster.host))
    alone.cluster = cluster
    return alone


def write_kubeconfig(folder: Path, host: str, namespace: str = "default") -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "recorded",
        "clusters": [{"name": "recorded", "cluster": {"server": host}}],
        "users": [{"name": "li", "user": {"token": "secret-token"}}],
        "contexts": [
            {"name": "recorded", "context": {"cluster": "recorded", "user": "li", "namespace": namespace}}
        ],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


# Words for `submit`, and what they make

PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
BATCH_JOBS = "/apis/batch/v1/namespaces/default/jobs"


def echo(asked: Asked) -> Reply:
    return Answer(json.loads(asked.body), 201)


async def manifest_of(run: CommandLine, *words: str) -> Any:
    ended = await run("submit", *words)
    assert ended.status == 0, ended.err
    return job_in(ended.out)


def job_in(text: str) -> Any:
    """Return the job among the objects that were printed."""
    (job,) = [each for each in yaml.safe_load_all(text) if each["kind"].endswith("Job")]
    return job


AS_MANIFEST = ("--dry-run", "client", "-o", "yaml")
SMALL = ("pytorch", "--name", "demo", "--image", "x", *AS_MANIFEST)
