"""Obstacles for a user who walks through the console in a hurry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tui.screens
from k8s.snapshot import ClusterSnapshot, Missing
from tests.support.objects import batch_job, joined, node, pytorch_job
from tests.support.playground import console_on
from tui.screens import ACTIONS
from tui.settings.keys.completion import complete
from tui.text.empty_states import no_jobs

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
