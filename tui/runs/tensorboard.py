"""TensorBoard on this machine, on the event files of jobs and folders.

Event files on this machine are linked; those in a pod are copied as they grow; points of a log or of other
files are written as an event file. TensorBoard listens on loopback, below a path that other accounts of this
machine do not know, and ends with its owner, even if that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import urlsplit

from k8s.client.auth.proxies import with_direct_loopback
from k8s.text.errors import KubeError
from k8s.text.sanitize import file_name
from trainer.tfevents import EventFiles, EventFolder, EventWriter, NewPoints, ScalarCurve
from tui.runs.formats import MetricFiles

LOOPBACK = "127.0.0.1"
# Its first import takes long on a cold disk.
START_S = 120.0
RELOAD_S = 5
_LINES = 20
_LAST_BYTES = 2000
_ADDRESS = re.compile(rb"(http://[^\s/]+:\d+)/")
# TensorBoard does not notice the end of its owner: stdin does. The path comes by stdin because anyone can
# read arguments.
_PROGRAM = """
import os, shutil, sys, threading
sys.argv += ["--path_prefix", "/" + sys.stdin.buffer.readline().decode().strip()]
def end_with_owner():
    while os.read(0, 1024):
        pass
    shutil.rmtree(os.path.dirname(sys.argv[2]), ignore_errors=True)  # links and copies
    os._exit(0)
threading.Thread(target=end_with_owner, daemon=True).start()
from tensorboard.main import run_main
run_main()
"""


class NoTensorBoard(KubeError):
    """TensorBoard could not be started here."""


class _Copies(MetricFiles):
    """Files of which the event files are also written to a folder as they arrive."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def feed(self, path: str, chunk: bytes) -> list[NewPoints]:
        """Append the bytes to the copy, and read them."""
        inside = PurePosixPath(path)
        if chunk and _is_event_file(path) and not inside.is_absolute() and ".." not in inside.parts:
            copy = self._folder / inside
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.open("ab") as file:
                file.write(chunk)
        return super().feed(path, chunk)


class CurveSource(Protocol):
    """Curves of one job, as `tui.runs.curve_feed` follows them."""

    events: EventFiles
    problem: str

    @property
    def is_from_log(self) -> bool:
        """True if the curves come from the job's log."""

    def curves(self) -> Sequence[ScalarCurve]:
        """Return the curves so far."""

    async def run(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """Follow until cancelled."""


class Spool:
    """A run's event files in a folder for TensorBoard."""

    def __init__(self, folder: Path, feed: CurveSource, tell: Callable[[str], None]) -> None:
        """Prepare to copy what `feed` reads to `folder`, and to `tell` why nothing is read."""
        self._folder = folder
        self._feed = feed
        self._tell = tell
        self._told = ""
        feed.events = _Copies(folder)
        self._writer: EventWriter | None = None
        self._written: dict[tuple[str, str, str], int] = {}

    async def run(self) -> None:
        """Copy until cancelled."""
        try:
            await self._feed.run(self._changed)
        except OSError as error:
            self._tell(f"{self._folder.name}: the copy of its event files has ended: {error}")
        finally:
            if self._writer is not None:
                self._writer.close()

    async def _changed(self) -> None:
        events = self._feed.events
        curves = self._feed.curves()
        others = [curve for curve in curves if not _is_event_file(curve.writer)]
        if isinstance(events, EventFolder) and len(others) < len(curves):
            if not self._folder.is_symlink():
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder.symlink_to(events.root, target_is_directory=True)
        elif others:
            self._write(others)
        problem = "" if self._feed.is_from_log else self._feed.problem
        if problem and problem != self._told:
            self._tell(f"{self._folder.name}: {problem}")
        self._told = problem

    def _write(self, curves: Sequence[ScalarCurve]) -> None:
        if self._writer is None:
            self._writer = EventWriter(self._folder)
        for curve in curves:
            key = curve.run, curve.tag, curve.writer
            start = self._written.get(key, 0)
            for index in range(start, len(curve)):
                self._writer.write_scalar(
                    curve.tag, curve.steps[index], curve.values[index], curve.wall_times[index]
                )
            self._written[key] = max(start, len(curve))
        self._writer.flush()


@asynccontextmanager
async def local_tensorboard(
    folders: Mapping[str, Path], feeds: Mapping[str, CurveSource], tell: Callable[[str], None], port: int = 0
) -> AsyncIterator[str]:
    """Serve runs, by name, and yield the address; on exit TensorBoard ends and the copies are deleted.

    Calls `tell` with the reason when a run cannot be read.

    Raises:
        NoTensorBoard: It is not installed, or ended: before it listened, such as when the port is in use, or
            while it was served.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise NoTensorBoard(
            "TensorBoard is not installed beside gpuconsole.",
            "It is an extra of its installation.",
            "Add it with: pip install tensorboard, or install gpuconsole[trainer]. Curves need none of it.",
        )
    with tempfile.TemporaryDirectory(prefix="gpuconsole-tensorboard-") as private:
        spool = Path(private, "runs")
        spool.mkdir()
        paths: dict[str, Path] = {}
        for name in (*folders, *feeds):
            taken = [path.name for path in paths.values()]
            paths[name] = spool / free_name(file_name(name), taken)
        for name, folder in folders.items():
            paths[name].symlink_to(folder.absolute(), target_is_directory=True)
        spools = [Spool(paths[name], feed, tell) for name, feed in feeds.items()]
        copying = [asyncio.create_task(each.run()) for each in spools]
        try:
            async with _started(spool, port or _free_port()) as address:
                yield address
        finally:
            for each in copying:
                each.cancel()
            await asyncio.gather(*copying, return_exceptions=True)


@asynccontextmanager
async def _started(folder: Path, port: int) -> AsyncIterator[str]:
    # Its data server would serve other accounts without a secret.
    options = ("--logdir", str(folder), "--host", LOOPBACK, "--port", str(port), "--load_fast", "false")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _PROGRAM, *options, "--reload_interval", str(RELOAD_S)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        # It writes port and path to TMPDIR/.tensorboard-info, readable by all, and follows links there.
        env=with_direct_loopback(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": str(folder.parent)},
        start_new_session=True,  # ctrl+c is for its owner
    )
    assert process.stdin is not None and process.stderr is not None
    path = secrets.token_urlsafe(12)
    process.stdin.write(f"{path}\n".encode())
    try:
        address = await _address_in(process.stderr)
        running = asyncio.timeout(None)
        output = asyncio.create_task(_until_ended(process, running))
        try:
            async with running:
                yield f"{address}/{path}/"
        except TimeoutError:
            if not running.expired():
                raise
            why = "\n".join((*output.result(), f"Its process ended with status {process.returncode}."))
            raise NoTensorBoard("TensorBoard has ended.", why, "Start it again.") from None
        finally:
            output.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        while process.returncode is None:
            with contextlib.suppress(asyncio.CancelledError):  # the console ends: its loop is closed next
                await process.wait()


async def _address_in(output: asyncio.StreamReader) -> str:
    said: list[str] = []
    try:
        async with asyncio.timeout(START_S):
            async for line in output:
                if found := _ADDRESS.search(line):
                    return found[1].decode()
                said = [*said, line.decode("utf-8", "replace").strip()][-_LINES:]
    except (TimeoutError, ValueError):
        said.append(f"It did not listen within {START_S:.0f} s.")
    raise NoTensorBoard("TensorBoard did not start.", "\n".join(filter(None, said[-3:])))


async def _until_ended(process: asyncio.subprocess.Process, running: asyncio.Timeout) -> list[str]:
    """Interrupt the use of a process when it ends; return the last lines of its output."""
    assert process.stderr is not None
    said = b""
    while chunk := await process.stderr.read(65536):
        said = (said + chunk)[-_LAST_BYTES:]
    await process.wait()
    running.reschedule(asyncio.get_running_loop().time())
    return [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()][-3:]


def _is_event_file(path: str) -> bool:
    return "tfevents" in PurePosixPath(path).name


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return int(free.getsockname()[1])


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return the name, or with a number if it is taken."""
    numbered = (f"{wanted}-{number}" for number in count(2))
    return wanted if wanted not in taken else next(name for name in numbered if name not in taken)


def ssh_line(address: str) -> str:
    """Return the command that forwards the address to the user's own machine; empty outside an SSH session.

    The address comes from `SSH_CONNECTION`, so it is one that the user's machine has reached.
    """
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return ""
    host, ssh_port = connection[2:]
    port = urlsplit(address).port
    user = os.environ.get("LOGNAME") or os.environ.get("USER") or ""
    return " ".join(
        filter(
            None,
            (
                f"ssh -N -L {port}:{LOOPBACK}:{port}",
                f"-p {ssh_port}" if ssh_port != "22" else "",
                f"{user}@{host}" if user else host,
            ),
        )
    )
