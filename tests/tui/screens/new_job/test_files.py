"""The new-job screen: templates, import of a file, and what is kept on the disk while one types."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input, Label

from k8s.job_spec import JobSpec
from k8s.kinds import CREATABLE
from k8s.text.yaml_writer import to_yaml
from tests.scripted.server import WAIT_S
from tests.tui.screens.new_job.world import ECHO, JOBS, Form, form
from tui.jobs.new_job.draft import FILE, OpenForm, read_draft, recover_draft
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.screens.dialogs.text_prompt import TextPromptScreen


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
        assert "Kept your own" not in it.said("Notice")
        assert it.screen.model.values["sync_mode"] == "git"


async def test_the_form_is_saved_as_a_template_and_offered_the_next_time(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    async with form(tmp_path, templates_folder=folder) as it:
        await it.write("workers", "5")
        await it.pilot.press("f2")
        await until(it, lambda: isinstance(it.app.screen, TextPromptScreen))
        await it.pilot.press(*"big", "enter")
        await until(it, (folder / "big.yaml").exists)
        await until(it, lambda: "big" in dict(it.field("template").definition.choices))
        await it.pilot.press("f2")
        await until(it, lambda: isinstance(it.app.screen, TextPromptScreen))
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


def problem_in_dialog(it: Form) -> str:
    return str(it.app.screen.query_one("#problem", Label).content)


@pytest.mark.parametrize(
    ("key", "answer", "words"),
    [("f2", "a b", "✕ Use letters"), ("f3", "/nowhere/job.yaml", "✕ Could not read /nowhere/job.yaml")],
)
async def test_a_refused_answer_keeps_the_dialog_and_what_is_typed_next(
    tmp_path: Path, key: str, answer: str, words: str
) -> None:
    async with form(tmp_path, templates_folder=tmp_path / "templates") as it:
        name = it.field("name").value
        await it.pilot.press(key)
        await until(it, lambda: isinstance(it.app.screen, TextPromptScreen))
        await it.pilot.press(*answer, "enter")
        await until(it, lambda: problem_in_dialog(it).startswith(words))
        await it.pilot.press(*"x1")
        assert it.app.screen.query_one(Input).value == f"{answer}x1"
        assert it.field("name").value == name
        assert not (tmp_path / "templates").exists()


async def import_file(it: Form, path: Path) -> None:
    await it.pilot.press("f3")
    await until(it, lambda: isinstance(it.app.screen, TextPromptScreen))
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


async def test_a_file_without_a_job_changes_nothing_and_the_dialog_shows_the_reason(tmp_path: Path) -> None:
    files = {"a.yaml": "a: [", "b.yaml": "kind: ConfigMap\napiVersion: v1\n", "c.yaml": ""}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    async with form(tmp_path) as it:
        for name, problem in (
            (f"{tmp_path}/a.yaml", "Line 1"),
            (f"{tmp_path}/b.yaml", "no job in it, but ConfigMap"),
            (f"{tmp_path}/c.yaml", "no job in it"),
            (f"{tmp_path}/d.yaml", "No such file"),
            ("~nobody-of-this-name/job.yaml", "Could not read ~nobody-of-this-name/job.yaml: No such file"),
        ):
            await it.pilot.press("f3")
            await until(it, lambda: isinstance(it.app.screen, TextPromptScreen))
            await it.pilot.press(*name, "enter")
            await until(it, lambda problem=problem: problem in problem_in_dialog(it))  # type: ignore[misc]
            await it.pilot.press("escape")
            await until(it, lambda: it.app.screen is it.screen)
            assert not it.screen.model.is_dirty


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
        "import os, sys; from pathlib import Path; from tui.jobs.new_job.draft import OpenForm\n"
        "OpenForm(Path(sys.argv[1])).keep({'name': 'lost'}); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    recover_draft(tmp_path)


@pytest.mark.parametrize("values", [{"name": "unsaved"}, {"name": "saved"}])
async def test_a_form_that_is_open_elsewhere_is_not_offered_and_keeps_its_draft(
    tmp_path: Path, values: dict[str, str]
) -> None:
    other = OpenForm(tmp_path)
    (other.save if values["name"] == "saved" else other.keep)(values)
    for path in tmp_path.glob("*.json"):
        os.utime(path, (0, 0))  # nobody has typed there for long
    async with form(tmp_path) as it:
        assert it.app.screen is it.screen
        await it.write("image", "mine:9")
        await it.pilot.press("ctrl+s")
        await until(
            it, lambda: len(list(tmp_path.glob("new-job-saved-*.json"))) > (values["name"] == "saved")
        )
    other.save({"name": "other"})
    other.close()
    drafts = {path.read_text().partition('"image": "')[2][:6] for path in tmp_path.iterdir()}
    assert drafts == {"mine:9", ""} and len(list(tmp_path.iterdir())) == 2


async def test_a_draft_that_one_console_has_resumed_is_not_offered_by_another(tmp_path: Path) -> None:
    first = OpenForm(tmp_path)
    first.save({"image": "mine:1"})
    first.close()
    async with form(tmp_path) as it:
        assert isinstance(it.app.screen, ConfirmScreen)
        await it.pilot.press("enter")
        await it.comes(lambda: it.field("image").value == "mine:1")
        recover_draft(tmp_path)
        assert read_draft(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_what_a_console_of_an_earlier_version_left_is_the_next_draft(tmp_path: Path) -> None:
    before = OpenForm(tmp_path)
    before.keep({"name": "lost"})
    (values,) = tmp_path.glob("*.json")
    values.rename(tmp_path / "new-job-unsaved-another_login_node-1.json")
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    before.close()


@pytest.mark.parametrize("is_list", [False, True])
async def test_the_other_jobs_of_a_file_are_named(tmp_path: Path, is_list: bool) -> None:
    jobs = [
        CREATABLE[0].manifest(JobSpec(name=name, namespace="vision", image="i:1", command=("sh", "-c", "x")))
        for name in ("bert-4", "bert-5")
    ]
    path = tmp_path / "jobs.yaml"
    kubectl_list = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": jobs}
    path.write_text(to_yaml(kubectl_list) if is_list else "---\n".join(map(to_yaml, jobs)))
    async with form(tmp_path) as it:
        await import_file(it, path)
        assert it.field("name").value == "bert-4"
        assert "Left out: bert-5; gpuconsole submit -f creates every job of a file." in it.said("Notice")
