"""The new-job screen: templates, and import of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from k8s.job_spec import JobSpec
from k8s.kinds import CREATABLE
from k8s.text.yaml_writer import to_yaml
from tests.tui.screens.new_job.world import ECHO, Form, form
from tui.screens.dialogs.text_prompt import TextPromptScreen


async def answer(it: Form, key: str, text: str) -> None:
    """Answer the question for a name or path."""
    await it.pilot.press(key)
    await it.until(lambda: isinstance(it.app.screen, TextPromptScreen))
    await it.pilot.press(*text, "enter")


async def import_file(it: Form, path: Path) -> None:
    before = it.notice
    await answer(it, "f3", str(path))
    await it.until(lambda: it.notice not in ("", "✕ ", before))


@pytest.mark.slow
async def test_own_templates_are_offered_and_fill_the_form(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "big.yaml").write_text("workers: 5")
    (folder / "bad.yaml").write_text("wrokers: 2")
    async with form(tmp_path, ECHO, templates_folder=folder) as it:
        await it.until(lambda: "there is no field wrokers" in it.notice)
        await it.choose("template", "big")
        assert it.field("workers").value == "5"
        await it.choose("template", "git-tensorboard")
        await it.until(lambda: it.field("sync_mode").value == "git")
        assert it.screen.model.values["sync_mode"] == "git" and it.field("run").value == "command"
        await it.write("image", "mine:1")
        await it.choose("template", "trainer-ddp")
        assert it.field("workers").value == "2"
        assert it.notice.startswith("Template trainer-ddp set Workers")
        await it.create()
        (made, *_) = it.posted
        assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
        assert "template" not in str(made["metadata"])


@pytest.mark.slow
async def test_a_file_fills_the_form_and_one_without_a_job_changes_nothing(tmp_path: Path) -> None:
    def manifest(name: str, workers: int = 1) -> dict[str, object]:
        spec = JobSpec(name=name, namespace="vision", image="i:1", command=("sh", "-c", "x"), workers=workers)
        return CREATABLE[0].manifest(spec)

    like, jobs = manifest("bert-3", workers=3), [manifest("bert-4"), manifest("bert-5")]
    for role in like["spec"]["pytorchReplicaSpecs"].values():  # type: ignore[index]
        role["template"]["spec"]["dnsPolicy"] = "None"
    path = tmp_path / "job.yaml"
    kubectl_list = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": jobs}
    (tmp_path / "list.yaml").write_text(to_yaml(kubectl_list))
    (tmp_path / "several.yaml").write_text("---\n".join(map(to_yaml, jobs)))
    path.write_text("kind: ConfigMap\napiVersion: v1\n---\n" + to_yaml(like))
    (tmp_path / "a.yaml").write_text("a: [")
    (tmp_path / "b.yaml").write_text("kind: ConfigMap\napiVersion: v1\n")
    (tmp_path / "c.yaml").write_text("")
    async with form(tmp_path / "state") as it:
        for name, problem in (
            (f"{tmp_path}/a.yaml", "Line 1"),
            (f"{tmp_path}/b.yaml", "no job in it, but ConfigMap"),
            (f"{tmp_path}/c.yaml", "no job in it"),
            ("~nobody-of-this-name/job.yaml", "Could not read ~nobody-of-this-name/job.yaml: No such file"),
        ):
            await answer(it, "f3", name)
            await it.until(lambda problem=problem: problem in it.dialog_text("#problem"))  # type: ignore[misc]
            await it.pilot.press(*"x1")
            assert it.app.screen.query_one(Input).value == f"{name}x1", "the dialog stays"
            await it.pilot.press("escape")
            await it.until(lambda: it.app.screen is it.screen)
            assert not it.screen.model.is_dirty
        await import_file(it, path)
        assert it.field("name").value == "bert-3" and it.field("workers").value == "3"
        assert it.field("command").value == "x"
        assert it.notice.startswith(f"Imported bert-3 from {path}. Not carried over: dnsPolicy")
        for name in ("list.yaml", "several.yaml"):
            await import_file(it, tmp_path / name)
            assert it.field("name").value == "bert-4"
            assert name in it.notice
            assert "Left out: bert-5; gpuconsole submit -f creates every job of a file." in it.notice
