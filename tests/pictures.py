"""Take the pictures in README from a real run in a sandbox: `make pictures`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from k8s.status import Status
from tui.app import Console
from tui.settings import ConsoleOptions

FOLDER = Path(__file__).resolve().parent.parent / ".github" / "pictures"
SIZE = (120, 40)
WAIT_S = 180.0
RAN = ("sh", "-c", "echo 'accuracy 0.9871'")
FAILED = ("sh", "-c", "echo 'CUDA error: out of memory' >&2; exit 1")


def main() -> int:
    """Run some jobs, visit the views, and save what they look like."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for key in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[key] = name
        try:
            submit_jobs()
            kubeconfig = gpuconsole("sandbox", "kubeconfig").strip()
            options = ConsoleOptions(kubeconfig=kubeconfig, state_folder=Path(name))
            asyncio.run(visit(options))
        finally:
            gpuconsole("sandbox", "stop")
    return 0


def gpuconsole(*words: str) -> str:
    """Run a command and return what it prints."""
    command = [sys.executable, "-P", "-m", "tui", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def submit_jobs() -> None:
    """Start a job that learns, one that waits, and two that end."""
    image = ("--image", "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime")
    pytorch = ("--sandbox", "submit", "pytorch", *image)
    gpuconsole(*pytorch, "--name", "lr-sweep-3e4", "--gpus", "1", "--", *RAN)
    gpuconsole(*pytorch, "--name", "vit-h-probe", "--gpus", "2", "--", *FAILED)
    ddp = ("--trainer", "ddp", "--", "--epochs", "3")
    gpuconsole(*pytorch, "--name", "digits-baseline", "--workers", "2", "--gpus", "2", *ddp)
    gpuconsole(*pytorch, "--name", "llm-70b-eval", "--workers", "3", "--gpus", "4", "--", *RAN)


async def visit(options: ConsoleOptions) -> None:
    """Walk through the views as a person would."""
    console = Console(options)
    async with console.run_test(size=SIZE) as pilot:

        def is_running() -> bool:
            jobs = {job.ref.name: job.status for job in console.snapshot.jobs}
            return jobs.get("digits-baseline") is Status.RUNNING and jobs.get("vit-h-probe") is Status.FAILED

        await until(pilot, is_running)
        await pilot.press("N", "g")
        await until(pilot, lambda: "loss" in log_of("digits-baseline"))
        await save(pilot, "jobs")
        await pilot.press("tab")
        await save(pilot, "nodes")
        await pilot.press("escape", "N", "g", "enter")
        await save(pilot, "job")
        await pilot.press("l", "a")
        await asyncio.to_thread(wait_for_lines, 16)
        await save(pilot, "logs")
        await pilot.press("escape", "m")
        await until(pilot, lambda: "val/accuracy" in curves_of("digits-baseline"))
        await asyncio.sleep(2)
        await save(pilot, "curves")
        await pilot.press("escape", "escape", "n")
        await asyncio.sleep(2)
        await save(pilot, "new")


def log_of(job: str) -> str:
    """Return what rank 0 has said."""
    return gpuconsole("--sandbox", "logs", job)


def curves_of(job: str) -> str:
    """Return the numbers that a job has written."""
    return gpuconsole("--sandbox", "curves", job, "-o", "csv")


def wait_for_lines(count: int) -> None:
    """Wait until rank 0 has said a screenful."""
    while len(log_of("digits-baseline").splitlines()) < count:
        pass


async def until(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    """Wait until something is so, while the console goes on."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not await asyncio.to_thread(is_so):
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"waited {WAIT_S} s")
        await pilot.pause(0.5)


async def save(pilot: Pilot[int], name: str) -> None:
    """Save the screen as a picture."""
    await pilot.pause(1.0)
    path = FOLDER / f"{name}.svg"
    path.write_text(pilot.app.export_screenshot(title="gpuconsole"))
    print(path)


if __name__ == "__main__":
    sys.exit(main())
