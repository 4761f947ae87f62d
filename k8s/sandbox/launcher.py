"""Client of the sandbox's process: start or join it, stop, reset, status."""

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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from k8s.sandbox.paths import POD_UID, SANDBOX, LogLimits, SandboxPaths, locked
from k8s.text.errors import KubeError

START_S = 60.0
ANSWER_S = 15.0
# Pods have their grace period when the sandbox stops.
STOP_S = 30.0
_POLL_S = 0.05
_HINT = "See {log}, or start afresh: gpuconsole sandbox stop"


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """Options of a new sandbox; a running one keeps its own."""

    nodes: int = 0
    """0: as this machine's GPUs suggest."""
    gpus_per_node: int = -1
    """Number of simulated GPUs; -1: as this machine's GPUs suggest."""
    links: str = ""
    """Name in `MACHINES` whose links the simulated GPUs have; empty for none."""
    idle_s: float = 1800.0
    """The sandbox stops after this time without a running pod and without requests."""
    restart_delay_s: float = 10.0
    """Delay before a container's second restart."""
    log_max_bytes: int = LogLimits().max_bytes
    log_max_files: int = LogLimits().max_files


@dataclass(frozen=True, slots=True)
class SandboxAddress:
    """Address of a running sandbox."""

    kubeconfig: Path
    url: str
    pid: int
    was_running: bool
    """True if the sandbox ran before, so that its options were not used."""
    notice: str = ""
    """One sentence about GPUs that a new sandbox did not find; or empty."""


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """State of the sandbox's process."""

    is_running: bool
    answers: bool
    pid: int
    """0 if it does not run."""
    url: str
    folder: Path
    kubeconfig: Path
    log: Path
    started_s: float
    """Seconds since the epoch; 0 if it does not run."""


def kubeconfig_path() -> Path:
    """Return the path of the sandbox's kubeconfig, which may not exist yet."""
    return SandboxPaths.default().kubeconfig


def is_running() -> bool:
    """Return True if this user's sandbox runs; False also where its folder cannot be used."""
    try:
        return SandboxPaths.default().is_held
    except (KubeError, OSError):
        return False


async def start(
    options: SandboxOptions | None = None,
    progress: Callable[[str], None] = lambda step: None,
    *,
    answer_s: float = ANSWER_S,
) -> SandboxAddress:
    """Join the running sandbox, or start one in the background, and wait until it answers.

    Args:
        options: Options of a new sandbox.
        progress: Called with a short description of each step.
        answer_s: Time that a running sandbox may take to answer.

    Raises:
        KubeError: The sandbox could not be started, or does not answer.
    """
    paths, notice = SandboxPaths.default(), ""
    if not paths.is_held:  # joining writes nothing: the disk may be full
        paths.prepare()
    async with _start_lock_held(paths, progress):
        if paths.is_held:
            progress("Joining the sandbox that runs")
            await _until_it_answers(paths, answer_s)
            was_running = True
        else:
            progress("Starting the sandbox")
            notice = await _launch(paths, options or SandboxOptions(), progress)
            was_running = False
    holder = paths.holder()
    return SandboxAddress(paths.kubeconfig, _url(paths), holder.pid, was_running, notice)


async def stop(*, patience_s: float = STOP_S) -> bool:
    """Stop the sandbox and its pods, but keep objects and volumes; return False if none runs.

    It is killed if it has not stopped after `patience_s`.

    Raises:
        KubeError: The sandbox cannot be stopped.
    """
    paths = SandboxPaths.default()
    if not paths.folder.is_dir():
        return False
    async with _start_lock_held(paths, lambda step: None):
        return await _stop(paths, patience_s)


async def reset() -> None:
    """Stop the sandbox and delete all its objects, volumes and logs. Ask the user first.

    Raises:
        KubeError: The sandbox cannot be stopped, or a file cannot be deleted.
    """
    paths = SandboxPaths.default()
    if not paths.folder.is_dir():
        return
    async with _start_lock_held(paths, lambda step: None):
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
    """Return the state of the sandbox."""
    paths = SandboxPaths.default()
    is_running = paths.is_held
    holder = paths.holder()
    return SandboxStatus(
        is_running=is_running,
        answers=is_running and not await asyncio.to_thread(_health_error, paths),
        pid=holder.pid if is_running else 0,
        url=_url(paths) if is_running else "",
        folder=paths.folder,
        kubeconfig=paths.kubeconfig,
        log=paths.log,
        started_s=holder.started_s if is_running else 0.0,
    )


@asynccontextmanager
async def _start_lock_held(paths: SandboxPaths, progress: Callable[[str], None]) -> AsyncIterator[None]:
    # Two consoles must not start or stop it at once.
    deadline = asyncio.get_running_loop().time() + START_S
    is_reported = False
    while True:
        with locked(paths.start_lock) as is_ours:
            if is_ours:
                yield
                return
        if not is_reported:
            progress("Waiting for another console that starts the sandbox")
            is_reported = True
        if asyncio.get_running_loop().time() > deadline:
            raise KubeError(
                "The sandbox could not be started.",
                f"Another program has been starting or stopping it for {START_S:.0f} s.",
                _HINT.format(log=paths.log),
            )
        await asyncio.sleep(_POLL_S)


async def _launch(paths: SandboxPaths, options: SandboxOptions, progress: Callable[[str], None]) -> str:
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-P", "-m", "k8s.sandbox", str(paths.folder), json.dumps(asdict(options))]
    # A sandbox that is started from within a pod does not belong to that pod.
    env = {name: value for name, value in os.environ.items() if name not in (POD_UID, SANDBOX)}
    read_end, write_end = os.pipe()
    try:
        with paths.log.open("ab") as log:
            process = subprocess.Popen(
                [*command, str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=paths.folder,
                env={**env, "PYTHONPATH": root},
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
            notice = await _until_ready(read_end, progress)
    except (KubeError, asyncio.CancelledError):  # it ends by itself, or no other console has joined it yet
        process.terminate()
        await asyncio.to_thread(process.wait)
        raise
    except (TimeoutError, EOFError) as error:
        process.kill()
        await asyncio.to_thread(process.wait)
        why = _last_output(paths) or f"It was not ready after {START_S:.0f} s."
        raise KubeError("The sandbox could not be started.", why, f"See {paths.log}.") from error
    process.returncode = 0  # it lives on without us, which is no mistake to warn about
    return notice


async def _until_ready(read_end: int, progress: Callable[[str], None]) -> str:
    reports = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(read_end, "rb")
    )
    try:
        async for line in reports:
            report = json.loads(line)
            if "what" in report:
                raise KubeError(report["what"], report["why"], report["hint"])
            step, has_ended, notice = report["progress"].partition(": ")
            if has_ended and step == "ready":
                return str(notice)
            progress(report["progress"])
            await asyncio.sleep(0)  # a caller that is cancelled meanwhile is so here, whatever has come since
    finally:
        transport.close()
    raise EOFError


async def _until_it_answers(paths: SandboxPaths, answer_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + answer_s
    while why := await asyncio.to_thread(_health_error, paths):
        if asyncio.get_running_loop().time() > deadline:
            raise KubeError(
                "The sandbox runs but does not answer.",
                f"Process {paths.holder().pid}: {why}",
                _HINT.format(log=paths.log),
            )
        await asyncio.sleep(_POLL_S)


def _health_error(paths: SandboxPaths) -> str:
    try:
        trust = ssl.create_default_context(cafile=str(paths.certificate))
        direct = urllib.request.ProxyHandler({})  # the environment's proxy cannot reach loopback
        opener = urllib.request.build_opener(direct, urllib.request.HTTPSHandler(context=trust))
        with opener.open(_url(paths) + "/readyz", timeout=2):
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


def _last_output(paths: SandboxPaths) -> str:
    try:
        return paths.log.read_text(errors="replace").strip().splitlines()[-1][:500]
    except (OSError, IndexError):
        return ""


def _url(paths: SandboxPaths) -> str:
    return f"https://127.0.0.1:{paths.holder().port}"
