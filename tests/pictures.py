"""Take the pictures in README from a real run in a sandbox: `make pictures`."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from k8s.status import Status
from tests import ROOT
from tests.support.screen_text import text_of
from tui.app import Console
from tui.settings.options import ConsoleOptions

FOLDER = ROOT / ".github" / "pictures"
SIZE = (120, 40)
SANDBOX = ("--nodes", "3", "--gpus-per-node", "8", "--links", "dgx-a100")
WAIT_S = 900.0
RAN = ("sh", "-c", "echo 'accuracy 0.9871'")
FAILED = ("python", "-c", "raise ValueError('shard 7 of 64 is cut: 8,192 of 65,536 bytes')")
HUNG = """
import time
import torch
import torch.distributed as dist

def load_shard(step):
    time.sleep(3600)

dist.init_process_group("gloo")
for step in range(40):
    print(f"step {step} loss {2.4 / (step + 1) ** 0.3:.4f}", flush=True)
    if step == 39 and dist.get_rank() == 1:
        load_shard(step)
    dist.all_reduce(torch.ones(4))
    time.sleep(0.2)
"""


def main() -> int:
    """Run some jobs, visit the views, and save what they look like."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for key in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[key] = name
        try:
            gpuconsole("sandbox", "start", *SANDBOX)
            submit_jobs(Path(name))
            kubeconfig = gpuconsole("sandbox", "kubeconfig").strip()
            options = ConsoleOptions(kubeconfig=kubeconfig, state_folder=Path(name))
            asyncio.run(visit(options))
        finally:
            gpuconsole("sandbox", "stop")
    return 0


def gpuconsole(*words: str) -> str:
    command = [sys.executable, "-P", "-m", "tui", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def submit_jobs(folder: Path) -> None:
    """Start two jobs that learn, one that hangs, one that waits, one that sleeps, and two that end."""
    script = folder / "train.py"
    script.write_text(HUNG)
    image = ("--image", "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime")
    pytorch = ("--sandbox", "submit", "pytorch", *image)
    gpuconsole(*pytorch, "--name", "lr-sweep-3e4", "--gpus", "1", "--", *RAN)
    gpuconsole(*pytorch, "--name", "vit-h-probe", "--gpus", "2", "--", *FAILED)
    hung = ("--workers", "2", "--gpus", "1", "--debuggable", "--", "python", str(script))
    gpuconsole(*pytorch, "--name", "swin-moe", *hung)
    ddp = ("--trainer", "ddp", "--", "--epochs", "60")
    gpuconsole(*pytorch, "--name", "digits-baseline", "--workers", "2", "--gpus", "2", *ddp)
    gpuconsole(*pytorch, "--name", "digits-wide", "--gpus", "2", *ddp)
    gpuconsole(*pytorch, "--name", "notebook-chen", "--gpus", "3", "--", "sleep", "3600")
    gpuconsole(*pytorch, "--name", "llm-70b-eval", "--workers", "3", "--gpus", "8", "--force", "--", *RAN)


async def visit(options: ConsoleOptions) -> None:
    """Walk through the views as a person would."""
    console = Console(options)
    async with console.run_test(size=SIZE) as pilot:

        def is_running() -> bool:
            jobs = {job.ref.name: job.status for job in console.snapshot.jobs}
            return jobs.get("digits-baseline") is Status.RUNNING and jobs.get("vit-h-probe") is Status.FAILED

        def shows(words: str) -> Callable[[], bool]:
            return lambda: words in text_of(console)

        async def show(name: str, *keys: str) -> None:
            await pilot.press(*keys)
            await save(pilot, name)

        await until(pilot, is_running)
        await pilot.press("N", "g")
        await until(pilot, lambda: all("loss" in log_of(job) for job in ("digits-baseline", "digits-wide")))
        await asyncio.to_thread(wait_for_lines, 16)
        await until(pilot, shows(" ETA "))
        await until(pilot, shows("ValueError: shard 7"))
        await until(pilot, lambda: len(re.findall(r"[▇▆▅▄▃▂▁]{6}", text_of(console))) >= 2)
        await show("home")
        await show("node_jobs", "1", "l")
        await show("jobs", "escape", "z")
        await pilot.press("z")
        await show("nodes", "tab")
        await show("node_gpus", "enter")
        await show("topology", "escape", "T")
        await show("users", "escape", "u")
        await show("events", "escape", "tab")
        await show("volumes", "tab")
        await pilot.press("tab", "N", "g", "enter")
        await asyncio.to_thread(wait_for_lines, 8)
        await show("job")
        await show("yaml", "Y")
        await pilot.press("escape", "l", "a")
        await asyncio.to_thread(wait_for_lines, 16)
        await show("logs")
        await pilot.press("escape", "m")
        await until(pilot, lambda: "val/accuracy" in curves_of("digits-baseline"))
        await asyncio.sleep(2)
        await show("curves")
        await show("why", "escape", "escape", *":why llm-70b-eval", "enter")
        await pilot.press("escape", *":diagnose swin-moe", "enter")
        await until(pilot, shows("never entered"))
        await show("hang")
        await pilot.press("escape", "g", "space", "j", "space", "C")
        await until(pilot, shows("digits-wide"))
        await show("compare")
        await show("palette", "escape", "ctrl+p", *"logs")
        await show("delete", "escape", "ctrl+d")
        await show("help", "escape", "question_mark")
        await pilot.press("escape", "n")
        await asyncio.sleep(2)
        await show("new")
    make_tour()


TOUR = ("home", "why", "hang", "job", "logs", "curves", "compare", "new")
"""The pictures of the tour, in their order."""
STEP_S = 3
"""Seconds for which each picture is shown."""


def make_tour() -> None:
    """Put some of the pictures one after the other into one that moves by itself."""
    pictures = [(FOLDER / f"{name}.svg").read_text() for name in TOUR]
    box = pictures[0].split('viewBox="')[1].split('"')[0]
    width, height = box.split()[2:]
    share = 100 / len(TOUR)
    style = f"""
.step {{ opacity: 0; animation: step {STEP_S * len(TOUR)}s step-end infinite; }}
.step:first-of-type {{ opacity: 1; }}
@keyframes step {{ 0% {{ opacity: 1 }} {share}% {{ opacity: 0 }} 100% {{ opacity: 0 }} }}
"""
    sized = f'<svg width="{width}" height="{height}" '
    steps = [
        f'<g class="step" style="animation-delay: {number * STEP_S}s">'
        + picture.replace("<svg ", sized, 1)
        + "</g>"
        for number, picture in enumerate(pictures)
    ]
    whole = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"><style>{style}</style>'
    (FOLDER / "tour.svg").write_text("\n".join([whole, *steps, "</svg>\n"]))


def log_of(job: str) -> str:
    return gpuconsole("--sandbox", "logs", job)


def curves_of(job: str) -> str:
    return gpuconsole("--sandbox", "curves", job, "-o", "csv")


def wait_for_lines(count: int) -> None:
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
    await pilot.pause(1.0)
    path = FOLDER / f"{name}.svg"
    path.write_text(pilot.app.export_screenshot(title="gpuconsole"))
    print(path)


if __name__ == "__main__":
    sys.exit(main())
