"""The new-job screen: templates, import of a file, and what is kept on the disk while one types."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Label

from k8s.job_spec import JobSpec
from k8s.kinds import CREATABLE
from k8s.text.yaml_writer import to_yaml
from tests.scripted.server import WAIT_S
from tests.tui.screens.new_job.world import ECHO, JOBS, Form, form
from tui.jobs.new_job.draft import FILE, UnsavedValues, read_draft, recover_draft
from tui.screens.dialogs.ask_text import AskTextScreen
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.widgets.form.job_fields import Notice


async def until(it: Form, is_true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_S):
        while not is_true():
            await it.pilot.pause(0.01)


async def choose(it: Form, template: str) -> None:
    """Choose a template in the first field."""
    await until(it, lambda: len(it.field("template").definition.choices) > 1)
    await it.go("template")
    names = [name for name, _ in it.field("template").definition.choices]
    await it.pilot.press(*["right"] * names.index(template))
    await it.pilot.pause()


async def test_the_first_field_chooses_a_template_and_says_what_it_set(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.write("image", "mine:1")
        await choose(it, "trainer-ddp")
        assert it.field("workers").value == "2"
        assert it.said("Notice").startswith("Template trainer-ddp set Workers")
        await it.go("name")
        await it.pilot.press("up")
        assert it.focused_key == "template"
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
        assert "template" not in str(made["metadata"])


async def test_a_template_fills_fields_with_choices_that_nobody_made(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await choose(it, "git-tensorboard")
        await until(it, lambda: it.field("sync_mode").value == "git")
        assert it.field("run").value == "command"
        assert "Yours stay" not in it.said("Notice")
        assert it.screen.state.values["sync_mode"] == "git"


async def test_the_form_is_saved_as_a_template_and_offered_the_next_time(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    async with form(tmp_path, templates_folder=folder) as it:
        await it.write("workers", "5")
        await it.pilot.press("f2")
        await until(it, lambda: isinstance(it.app.screen, AskTextScreen))
        await it.pilot.press(*"big", "enter")
        await until(it, (folder / "big.yaml").exists)
        await until(it, lambda: "big" in dict(it.field("template").definition.choices))
        await it.pilot.press("f2")
        await until(it, lambda: isinstance(it.app.screen, AskTextScreen))
        await it.pilot.press(*"big", "enter")
        await until(it, lambda: isinstance(it.app.screen, ConfirmScreen))
        assert str(it.app.screen.query_one("#question", Label).content) == "Replace template big?"
        await it.pilot.press("escape")
    (folder / "bad.yaml").write_text("wrokers: 2")
    (tmp_path / FILE).unlink()
    async with form(tmp_path, templates_folder=folder) as it:
        await until(it, lambda: "there is no field wrokers" in it.said("Notice"))
        await choose(it, "big")
        assert it.field("workers").value == "5"


async def test_a_name_that_is_none_is_said_and_nothing_saved(tmp_path: Path) -> None:
    async with form(tmp_path, templates_folder=tmp_path / "templates") as it:
        await it.pilot.press("f2")
        await until(it, lambda: isinstance(it.app.screen, AskTextScreen))
        await it.pilot.press(*"a b", "enter")
        await until(it, lambda: it.said("Notice").startswith("✕ Use letters"))
        assert not (tmp_path / "templates").exists()


async def import_file(it: Form, path: Path) -> None:
    await it.pilot.press("f3")
    await until(it, lambda: isinstance(it.app.screen, AskTextScreen))
    await it.pilot.press(*str(path), "enter")
    await until(it, lambda: it.said("Notice") not in ("", "✕ "))


async def test_a_file_fills_the_form_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    like = JobSpec(name="bert-4", namespace="vision", image="i:1", command=("sh", "-c", "x"), workers=3)
    manifest = CREATABLE[0].manifest(like)
    pods = manifest["spec"]["pytorchReplicaSpecs"]
    for role in pods.values():
        role["template"]["spec"]["dnsPolicy"] = "None"
    path = tmp_path / "job.yaml"
    path.write_text("kind: ConfigMap\napiVersion: v1\n---\n" + to_yaml(manifest))
    async with form(tmp_path) as it:
        await import_file(it, path)
        assert it.field("name").value == "bert-4" and it.field("workers").value == "3"
        assert it.field("command").value == "x"
        assert it.said("Notice").startswith(f"Imported bert-4 from {path}. Not carried over: dnsPolicy")


async def test_a_file_that_holds_no_job_changes_nothing_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    async with form(tmp_path) as it:
        for text, words in (
            ("a: [", "Line 1"),
            ("kind: ConfigMap\napiVersion: v1\n", "no job in it, but ConfigMap"),
            ("", "no job in it"),
        ):
            path.write_text(text)
            it.screen.query_one(Notice).show("")
            await import_file(it, path)
            assert words in it.said("Notice")
        for nowhere in (tmp_path / "none.yaml", Path("~nobody-of-this-name/none.yaml")):
            it.screen.query_one(Notice).show("")
            await import_file(it, nowhere)
            await until(it, lambda: "No such file" in it.said("Notice"))
        assert not it.screen.state.is_dirty


async def test_what_is_typed_is_on_the_disk_before_the_form_is_left(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:9")
        await until(it, lambda: any(tmp_path.glob("new-job-unsaved-*.json")))
        assert not (tmp_path / FILE).exists()
        await it.pilot.press("escape")
        await until(it, lambda: isinstance(it.app.screen, ConfirmScreen))
        await it.pilot.press("tab", "enter")  # discard
        await until(it, lambda: it.app.results == [None])
    assert list(tmp_path.iterdir()) == []


def test_what_a_console_held_that_was_killed_is_the_next_draft(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tui.jobs.new_job.draft import UnsavedValues\n"
        "UnsavedValues(Path(sys.argv[1])).keep({'name': 'lost'}); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    recover_draft(tmp_path)


@pytest.mark.parametrize("machine", ["", "another_login_node"])
async def test_a_form_that_is_open_elsewhere_is_not_taken_for_lost(tmp_path: Path, machine: str) -> None:
    UnsavedValues(tmp_path).keep({"name": "other"})
    (ours,) = tmp_path.iterdir()
    prefix, _, _ = ours.stem.removeprefix("new-job-unsaved-").rpartition("-")
    other = tmp_path / f"new-job-unsaved-{machine or prefix}-{1 if not machine else 2**22 + 1}.json"
    ours.rename(other)
    async with form(tmp_path) as it:
        assert it.app.screen is it.screen
    assert other.exists()


def test_what_a_form_on_another_machine_held_an_hour_ago_is_the_next_draft(tmp_path: Path) -> None:
    UnsavedValues(tmp_path).keep({"name": "lost"})
    (ours,) = tmp_path.iterdir()
    other = ours.rename(tmp_path / "new-job-unsaved-another_login_node-1.json")
    os.utime(other, (time.time() - 3601, time.time() - 3601))
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
