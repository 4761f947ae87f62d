"""TensorBoard on demand: on folders and jobs, for this account alone, no longer than its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.scripted.server import SUCCESS, WAIT_S, Socket
from tests.support import second_account
from tests.tui.commands.conftest import CommandLine
from tests.tui.commands.test_curves import job_writing_to
from trainer.tfevents import EventFiles, EventFolder, EventWriter, ScalarCurve
from tui.runs.tensorboard import NoTensorBoard, Spool, local_tensorboard, ssh_line

SLOW_S = 6 * WAIT_S
POD = "/api/v1/namespaces/default/pods/running-master-0"


def write_run(folder: Path, points: int = 3) -> Path:
    with EventWriter(folder) as writer:
        for step in range(points):
            writer.write_scalar("loss", step, 1 / (step + 1))
    return folder


async def served(address: str, path: str, until: Callable[[Any], bool] = bool) -> Any:
    """Ask TensorBoard until it answers as wanted."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(SLOW_S):
        while True:
            async with session.get(f"{address}data/{path}") as answer:
                found = await answer.json() if answer.status == 200 else None
            if until(found):
                return found
            await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_folders_are_served_below_a_secret_path_until_their_owner_is_killed(run: CommandLine) -> None:
    pytest.importorskip("tensorboard", reason="gpuconsole[trainer] brings it")
    write_run(run.home / "one" / "runs")
    write_run(run.home / "two" / "runs")
    (run.home / "tensorboard.py").write_text("raise SystemExit('a file of the user was imported')")
    run.set("SSH_CONNECTION", "10.1.2.3 50000 10.4.5.6 2222")
    shared, mine = run.home / "shared", run.home / "mine"
    mine.mkdir()
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / ".tensorboard-info").symlink_to(mine)  # planted by another account, to have a file overwritten
    run.set("TMPDIR", str(shared))
    child = await run.start("tensorboard", "one/runs", "two/runs")
    assert child.stdout is not None and child.stderr is not None
    async with asyncio.timeout(SLOW_S):
        address = (await child.stdout.readline()).decode().strip()
        said = [await child.stderr.readline() for _ in range(2)]
    port = address.split(":")[2].split("/")[0]
    assert said[0].decode() == (
        f"-- from your own machine: ssh -N -L {port}:127.0.0.1:{port} -p 2222 li@10.4.5.6\n"
    )
    assert said[1] == b"-- TensorBoard serves 2 runs; ctrl+c to stop\n"
    assert await served(address, "runs", lambda found: len(found) == 2) == ["runs", "runs-2"]
    assert list(mine.iterdir()) == []
    (private,) = [each for each in shared.iterdir() if not each.is_symlink()]
    assert private.stat().st_mode & 0o77 == 0
    (info,) = (private / ".tensorboard-info").iterdir()
    assert urlsplit(address).path.strip("/") in info.read_text(), "the secret path, below a private folder"
    host = f"http://127.0.0.1:{port}/"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{host}data/runs") as answer:
            assert answer.status == 404
        child.send_signal(signal.SIGKILL)
        await child.wait()
        async with asyncio.timeout(SLOW_S):
            with pytest.raises(aiohttp.ClientConnectionError):
                while True:
                    async with session.get(host):
                        await asyncio.sleep(0.05)
    assert not list(shared.glob("gpuconsole-tensorboard-*")) and list((run.home / "one" / "runs").iterdir())


HUNT = """
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        print(path, open(path).read() if os.access(path, os.R_OK) else "")
"""


@pytest.mark.slow
@second_account.only_root
async def test_another_account_finds_no_file_that_names_the_secret_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="gpuconsole[trainer] brings it")
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        os.chmod(shared, 0o1777)
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", shared)
        async with local_tensorboard({"a": write_run(tmp_path / "a")}, {}, print) as address:
            assert await served(address, "runs") == ["a"]
            assert await asyncio.to_thread(second_account.said, HUNT, shared) == ""
        monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.slow
async def test_event_files_of_a_pod_are_copied(run: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="gpuconsole[trainer] brings it")
    job_writing_to(run.cluster, "/mnt/runs")
    (file,) = write_run(tmp_path / "runs").iterdir()
    body = file.read_bytes()
    listed = f"{len(body)} /mnt/runs/deep/{file.name}\n".encode()
    run.cluster.say(f"{POD}/exec", Socket([(1, listed), SUCCESS]), Socket([(1, body), SUCCESS]))
    child = await run.start("tensorboard", "running")
    assert child.stdout is not None
    async with asyncio.timeout(SLOW_S):
        address = (await child.stdout.readline()).decode().strip()
    assert await served(address, "runs") == ["running/deep"]
    child.send_signal(signal.SIGINT)
    async with asyncio.timeout(SLOW_S):
        assert await child.wait() == 0


@pytest.mark.slow
async def test_repeated_cancellation_still_stops_the_tensorboard_process(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="gpuconsole[trainer] brings it")
    addresses: asyncio.Queue[str] = asyncio.Queue()

    async def serve() -> None:
        async with local_tensorboard({"a": tmp_path}, {}, print) as address:
            await addresses.put(address)
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    address = urlsplit(await addresses.get())
    while not serving.done():
        serving.cancel()
        await asyncio.sleep(0)
    assert serving.cancelled()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection(address.hostname, address.port)


async def test_tensorboard_reports_a_port_in_use_and_leaves_no_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="gpuconsole[trainer] brings it")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    feeds = {name: Fed(b"x") for name in ("../../out", "out", "a/b", str(tmp_path / "out"))}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(NoTensorBoard, match=f"(?s)TensorBoard did not start.*{port}"):
            async with local_tensorboard({"a": tmp_path}, feeds, print, port):
                raise AssertionError("it started")
    assert all(feed.changed.done() for feed in feeds.values())
    assert list(tmp_path.iterdir()) == [], "the names of jobs do not lead out of the folder of copies"


# Listens and prints as TensorBoard does, and ends when it is asked anything.
ENDING_TENSORBOARD = """
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"TensorBoard at http://127.0.0.1:{listening.getsockname()[1]}/x/", file=sys.stderr, flush=True)
    listening.accept()
print("MemoryError: no memory left", file=sys.stderr, flush=True)
os._exit(3)
"""


async def test_the_end_of_tensorboard_is_reported_and_removes_its_copies(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(run.home / "runs")
    (temporary := run.home / "tmp").mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: True)
    monkeypatch.setattr("tui.runs.tensorboard._PROGRAM", ENDING_TENSORBOARD)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    async def ask(address: str) -> None:
        assert list(temporary.iterdir())
        _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
        writer.close()

    with pytest.raises(NoTensorBoard) as ended:
        async with local_tensorboard({"a": run.home / "runs"}, {}, print) as address:
            await ask(address)
            await asyncio.Event().wait()
    assert str(ended.value).splitlines() == [
        "TensorBoard has ended.",
        "MemoryError: no memory left",
        "Its process ended with status 3.",
        "Start it again.",
    ]
    assert not list(temporary.iterdir())


async def test_a_missing_tensorboard_package_is_reported_with_the_install_command(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(run.home / "runs")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    ended = await run("tensorboard", str(folder))
    ended.reports(1, "TensorBoard is not installed beside gpuconsole.", "pip install tensorboard")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("./nosuch",), 2, "There is no folder"),
        (("nobody",), 1, "There is no job nobody"),
        (("runs", "--port", "0"), 2, "'0' is not a port"),
    ],
)
async def test_tensorboard_reports_a_missing_folder_or_job_and_an_invalid_port(
    run: CommandLine, words: tuple[str, ...], status: int, said: str
) -> None:
    (await run("tensorboard", *words)).reports(status, said)


def test_an_ssh_session_gets_a_port_forwarding_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "li")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert ssh_line("http://127.0.0.1:6006/x/") == ""
    monkeypatch.setenv("SSH_CONNECTION", "fe80::1 50000 fe80::2 22")
    assert ssh_line("http://127.0.0.1:6006/x/") == "ssh -N -L 6006:127.0.0.1:6006 li@fe80::2"


class Fed:
    """A feed of curves that changes when a test says so."""

    problem = ""
    is_from_log = True

    def __init__(self, chunk: bytes = b"") -> None:
        self._chunk = chunk
        self.events: EventFiles = EventFiles()
        self.found: list[ScalarCurve] = []
        self.changed: asyncio.Future[Callable[[], Awaitable[None]]] = asyncio.Future()

    def curves(self) -> list[ScalarCurve]:
        return self.found

    async def run(self, on_change: Callable[[], Awaitable[None]]) -> None:
        self.events.feed("out.tfevents.1", self._chunk)
        self.changed.set_result(on_change)
        await asyncio.Event().wait()


def points_in(folder: Path) -> list[tuple[int, float]]:
    events = EventFolder(folder)
    events.read_new()
    (curve,) = events.curves()
    (file,) = folder.iterdir()
    assert file.read_bytes().count(b"loss") == len(curve), "each point is written once"
    return list(zip(curve.steps, curve.values, strict=True))


async def test_points_from_a_log_are_written_to_event_files_once(tmp_path: Path) -> None:
    feed, told = Fed(), list[str]()
    running = asyncio.create_task(Spool(tmp_path / "bert", feed, told.append).run())
    changed = await feed.changed
    for amount in (2, 3):
        columns = array("q", range(amount)), array("d", [1.7e9] * amount), array("d", [0.5] * amount)
        feed.found = [ScalarCurve(".", "loss", "master-0", *columns, ())]
        await changed()
        await changed()
        assert points_in(tmp_path / "bert") == [(step, 0.5) for step in range(amount)]
    feed.is_from_log, feed.problem = False, "The pod is gone."
    await changed()
    await changed()
    assert told == ["bert: The pod is gone."]
    running.cancel()
    await asyncio.wait([running])


async def test_only_event_files_with_paths_inside_the_spool_folder_are_copied(tmp_path: Path) -> None:
    feed = Fed()
    Spool(tmp_path / "spool" / "bert", feed, print)
    for path in ("a/x.tfevents.1", "../x.tfevents.2", f"{tmp_path}/x.tfevents.3", "metrics.csv"):
        feed.events.feed(path, b"step,loss\n")
    assert [file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file()] == [
        "spool/bert/a/x.tfevents.1"
    ]
