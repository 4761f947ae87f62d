"""Starts the sandbox in the background or joins the one that runs; stops, empties, describes it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from k8s.errors import KubeError
from k8s.sandbox.paths import SandboxPaths, locked
from k8s.sandbox.pod_folder import POD_UID, SANDBOX, LogLimits

START_S = 60.0
"""How long a sandbox may take to be ready."""
ANSWER_S = 15.0
"""How long one that runs may take to answer."""
STOP_S = 30.0
"""How long one that was asked to stop may take: its pods have their grace period."""
_TURN_S = 0.05
_HINT = "See {log}, or start afresh: gpuconsole sandbox stop"


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """What a new sandbox shall be like; one that runs already stays as it is."""

    nodes: int = 0
    """How many nodes; 0 follows the machine."""
    gpus_per_node: int = -1
    """Simulated GPUs of each node; -1 follows the machine."""
    links: str = ""
    """As in which machine of `k8s.topology.machines` the simulated GPUs are linked; empty for not at all."""
    idle_s: float = 1800.0
    """It ends by itself after so long without a running pod and without anybody asking."""
    restart_delay_s: float = 10.0
    """Before a container is restarted for the second time."""
    log_max_bytes: int = LogLimits().max_bytes
    """Of a container's log file, before it is rotated."""
    log_max_files: int = LogLimits().max_files
    """Of a container's log files that are kept."""
    allow_open_rendezvous: bool = False
    """Whether jobs may use the c10d rendezvous, in which any user of this machine may run code."""


@dataclass(frozen=True, slots=True)
class SandboxAddress:
    """A sandbox that answers."""

    kubeconfig: Path
    url: str
    pid: int
    was_running: bool
    """It was there before, so the options were not used."""


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """How the sandbox is."""

    is_running: bool
    answers: bool
    pid: int
    """0 when it does not run."""
    url: str
    folder: Path
    kubeconfig: Path
    log: Path
    started_s: float
    """When it started, in seconds since 1970; 0 when it does not run."""


def kubeconfig_path() -> Path:
    """Return where the sandbox's kubeconfig is, or will be."""
    return SandboxPaths.default().kubeconfig


async def start(
    options: SandboxOptions | None = None,
    progress: Callable[[str], None] = lambda words: None,
    *,
    answer_s: float = ANSWER_S,
) -> SandboxAddress:
    """Join the sandbox that runs, or start one in the background, and wait until it answers.

    Args:
        options: How a new one shall be.
        progress: Is told, in a few words, what is being done.
        answer_s: How long one that runs may take to answer.

    Raises:
        KubeError: It could not be started, or the one that runs does not answer.
    """
    paths = SandboxPaths.default()
    paths.prepare()
    async with _alone(paths, progress):
        if paths.is_held:
            progress("Joining the sandbox that runs")
            await _until_it_answers(paths, answer_s)
            was_running = True
        else:
            progress("Starting the sandbox")
            await _launch(paths, options or SandboxOptions(), progress)
            was_running = False
    holder = paths.holder()
    return SandboxAddress(paths.kubeconfig, _url(paths), holder.pid, was_running)


async def stop(*, patience_s: float = STOP_S) -> bool:
    """Stop the sandbox and its pods; tell whether there was one. Its objects and volumes stay.

    One that has not stopped after `patience_s` is killed.

    Raises:
        KubeError: It cannot be stopped.
    """
    paths = SandboxPaths.default()
    if not paths.folder.is_dir():
        return False
    async with _alone(paths, lambda words: None):
        return await _stop(paths, patience_s)


async def reset() -> None:
    """Stop the sandbox and delete everything it keeps: objects, volumes, logs. Ask before.

    Raises:
        KubeError: It cannot be stopped, or something cannot be deleted.
    """
    paths = SandboxPaths.default()
    if not paths.folder.is_dir():
        return
    async with _alone(paths, lambda words: None):
        await _stop(paths, STOP_S)
        try:
            for path in paths.folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    await asyncio.to_thread(shutil.rmtree, path)
                elif path not in (paths.lock, paths.start_lock):
                    path.unlink()
        except OSError as error:
            raise KubeError("The sandbox's folder could not be emptied.", str(error)) from error


async def status() -> SandboxStatus:
    """Return how the sandbox is."""
    paths = SandboxPaths.default()
    is_running = paths.is_held
    holder = paths.holder()
    return SandboxStatus(
        is_running=is_running,
        answers=is_running and not await asyncio.to_thread(_silence, paths),
        pid=holder.pid if is_running else 0,
        url=_url(paths) if is_running else "",
        folder=paths.folder,
        kubeconfig=paths.kubeconfig,
        log=paths.log,
        started_s=holder.started_s if is_running else 0.0,
    )


@asynccontextmanager
async def _alone(paths: SandboxPaths, progress: Callable[[str], None]) -> AsyncIterator[None]:
    """Be the only one who starts or stops the sandbox."""
    deadline = asyncio.get_running_loop().time() + START_S
    is_told = False
    while True:
        with locked(paths.start_lock) as is_ours:
            if is_ours:
                yield
                return
        if not is_told:
            progress("Waiting for another console that starts the sandbox")
            is_told = True
        if asyncio.get_running_loop().time() > deadline:
            raise KubeError(
                "The sandbox could not be started.",
                f"Another program has been starting or stopping it for {START_S:.0f} s.",
                _HINT.format(log=paths.log),
            )
        await asyncio.sleep(_TURN_S)


async def _launch(paths: SandboxPaths, options: SandboxOptions, progress: Callable[[str], None]) -> None:
    """Start the process and read from it how far it is."""
    root = str(Path(__file__).resolve().parents[2])
    words = [sys.executable, "-P", "-m", "k8s.sandbox", str(paths.folder), json.dumps(asdict(options))]
    read_end, write_end = os.pipe()
    try:
        with paths.log.open("ab") as log:
            process = subprocess.Popen(
                [*words, str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=paths.folder,
                env={**_unmarked(os.environ), "PYTHONPATH": root},
                pass_fds=[write_end],
                start_new_session=True,
            )
    except OSError as error:
        os.close(read_end)
        raise KubeError("The sandbox could not be started.", str(error)) from error
    finally:
        os.close(write_end)
    try:
        async with asyncio.timeout(START_S):
            await _until_ready(read_end, progress)
    except KubeError:
        await asyncio.to_thread(process.wait)
        raise
    except asyncio.CancelledError:  # nobody waits for it, and nobody else has joined it yet
        process.terminate()
        await asyncio.to_thread(process.wait)
        raise
    except (TimeoutError, EOFError) as error:
        process.kill()
        await asyncio.to_thread(process.wait)
        why = _last_words(paths) or f"It was not ready after {START_S:.0f} s."
        raise KubeError("The sandbox could not be started.", why, f"See {paths.log}.") from error
    process.returncode = 0  # it lives on without us, which is no mistake to warn about


async def _until_ready(read_end: int, progress: Callable[[str], None]) -> None:
    """Follow what a starting sandbox says.

    Raises:
        KubeError: Its own words about why it cannot start.
        EOFError: It died without a word.
    """
    reports = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(read_end, "rb")
    )
    try:
        async for line in reports:
            words = json.loads(line)
            if "what" in words:
                raise KubeError(words["what"], words["why"], words["hint"])
            if words["progress"] == "ready":
                return
            progress(words["progress"])
    finally:
        transport.close()
    raise EOFError


async def _until_it_answers(paths: SandboxPaths, answer_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + answer_s
    while why := await asyncio.to_thread(_silence, paths):
        if asyncio.get_running_loop().time() > deadline:
            raise KubeError(
                "The sandbox runs but does not answer.",
                f"Process {paths.holder().pid}: {why}",
                _HINT.format(log=paths.log),
            )
        await asyncio.sleep(_TURN_S)


def _silence(paths: SandboxPaths) -> str:
    """Return why the sandbox does not answer; nothing when it does."""
    try:
        trust = ssl.create_default_context(cafile=str(paths.certificate))
        with urllib.request.urlopen(_url(paths) + "/readyz", timeout=2, context=trust):
            return ""
    except (OSError, ValueError) as error:
        return str(error)


async def _stop(paths: SandboxPaths, patience_s: float) -> bool:
    if not paths.is_held:
        return False
    pid = paths.holder().pid
    for number, within_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 5.0)):
        try:
            os.kill(pid, number)
        except OSError as error:
            raise KubeError(
                "The sandbox could not be stopped.", f"Process {pid}: {error.strerror}."
            ) from error
        if await paths.freed(within_s):
            return True
    raise KubeError("The sandbox could not be stopped.", f"Process {pid} does not end.")


def _unmarked(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables without a pod's marks: a sandbox that is started in a pod does not belong to it."""
    return {name: value for name, value in env.items() if name not in (POD_UID, SANDBOX)}


def _last_words(paths: SandboxPaths) -> str:
    """Return the last line of the sandbox's log."""
    try:
        return paths.log.read_text(errors="replace").strip().splitlines()[-1][:500]
    except (OSError, IndexError):
        return ""


def _url(paths: SandboxPaths) -> str:
    return f"https://127.0.0.1:{paths.holder().port}"
