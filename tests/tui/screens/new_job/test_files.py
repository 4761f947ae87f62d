"""The new-job screen: filled in from templates, jobs and files; its YAML edited, sent and stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from k8s.jobs.clone import clone
from k8s.kinds import CREATABLE
from k8s.kinds.carried_spec import with_spec
from k8s.kinds.job_spec import JobSpec, Mount
from k8s.text.yaml_writer import to_yaml
from tests.tui.screens.new_job.world import ECHO, JOBS, NEVER_S, Form, form, sandbox
from tui.screens.dialogs.confirm import TextPromptScreen
from tui.screens.documents.form_requests import CheckTimes
from tui.screens.documents.submit import ManifestScreen
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.job_fields import Notice
from tui.widgets.form.manifest_pane import ManifestPane


async def answer(it: Form, key: str, text: str) -> None:
    """Answer the question for a name or path."""
    await it.pilot.press(key)
    await it.until(lambda: isinstance(it.app.screen, TextPromptScreen))
    await it.pilot.press(*text, "enter")


async def open_file(it: Form, path: Path) -> str:
    """Open a file as YAML, and return the notice above it."""
    await answer(it, "f3", str(path))
    await it.until(lambda: isinstance(it.app.screen, ManifestScreen))
    await it.pilot.pause()
    return str(it.app.screen.query_one(Notice).content)


def manifest(name: str) -> dict[str, object]:
    spec = JobSpec(name=name, namespace="vision", image="i:1", command=("sh", "-c", "x"))
    return CREATABLE[0].manifest(spec)


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
async def test_a_file_without_a_job_changes_nothing(tmp_path: Path) -> None:
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
        assert it.posted == []


@pytest.mark.slow
async def test_the_job_of_a_file_is_edited_as_yaml_and_created(tmp_path: Path) -> None:
    jobs = [manifest("bert-4"), manifest("bert-5")]
    config_map = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "settings"}}
    kubectl_list = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": jobs}
    (tmp_path / "list.yaml").write_text(to_yaml(kubectl_list))
    (tmp_path / "several.yaml").write_text("---\n".join(map(to_yaml, (config_map, *jobs))))
    async with form(tmp_path / "state", ECHO, check_times=CheckTimes(NEVER_S)) as it:
        notice = await open_file(it, tmp_path / "list.yaml")
        assert "Left out: PyTorchJob bert-5; gpuconsole submit -f" in notice
        await it.pilot.press("escape")
        await it.until(lambda: it.app.screen is it.screen)
        await it.write("image", "mine:1")
        notice = await open_file(it, tmp_path / "several.yaml")
        assert "Left out: ConfigMap settings, PyTorchJob bert-5; gpuconsole submit -f" in notice
        editor = it.app.screen.query_one(TextAreaField)
        editor.load_text(editor.text.replace("image: i:1", "image: i:2"))
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("enter")
        await it.until(lambda: it.app.results != [])
        assert [ref.name for ref in it.app.results if ref is not None] == ["bert-4"]
        assert it.master["image"] == "i:2"
        assert not it.posted[0]["metadata"].get("labels", {}).get("gpuconsole.dev/job")


@pytest.mark.slow
async def test_a_job_is_cloned_under_a_new_name(tmp_path: Path) -> None:
    like = JobSpec(
        name="bert-4",
        namespace="vision",
        image="mine:9",
        workers=3,
        command=("python", "x.py"),
        env={"A": "1"},
        mounts=(Mount("data", "/data"), Mount("scratch", "/scratch")),
        labels={"team": "x"},
        cpu="lots",
    )
    obj = with_spec(CREATABLE[0].manifest(like), like)
    obj["metadata"]["annotations"]["note"] = "x"
    async with form(tmp_path, ECHO, clone=clone(obj)) as it:
        assert it.field("name").value == "bert-5"
        assert it.notice == "Not carried over: annotation note."
        assert it.field("env").value == "A=1"
        await it.press("ctrl+o")
        assert it.focused_key == "cpu", "a wrong field that is folded away is unfolded"
        assert "lots" in it.field("cpu").error
        await it.write("cpu", "")
        await it.set_snapshot(sandbox(0))
        assert it.field("workers").value == "3", "a clone keeps its number, also in the sandbox"
        await it.create()
        made = it.posted[0]
        assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
        assert it.master["command"] == ["python", "x.py"]
        assert "workingDir" not in it.master, "where its claim is mounted says nothing of where it ran"
        assert [each["mountPath"] for each in it.master["volumeMounts"]][:2] == ["/data", "/scratch"]
        labels = made["metadata"]["labels"]
        assert (labels["team"], labels["release"]) == ("x", "bert-5")
        assert clone(made).spec == replace(like, name="bert-6", cpu=""), "it carries its spec too"


@pytest.mark.slow
async def test_the_yaml_is_edited_and_sent_as_edited_once_it_is_valid(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await it.write("workers", "3")
        area = await it.edit_yaml()
        right, wrong = area.text, area.text.replace("  name:", "  name: [")
        area.load_text(wrong)
        await it.pilot.press("ctrl+y")
        await it.write("env", "A=1")
        await it.pilot.press("ctrl+o")
        await it.pilot.pause()
        assert it.notice.startswith("✕ The YAML cannot be submitted. Line ")
        assert it.posted == []
        await it.write("env", "")
        area = await it.edit_yaml()
        assert area.text == wrong, "it is not lost"
        area.load_text(right)
        area.load_text(area.text.replace("replicas: 2", "replicas: 5"))
        await it.pilot.pause()
        assert it.screen.query_one(ManifestPane).border_title == "YAML, edited"
        await it.pilot.press("ctrl+y")
        await it.write("workers", "4")
        assert "replicas: 5  # the form says 3\n" in it.screen.query_one(ManifestPane).edits.text
        title = it.screen.query_one(ManifestPane).border_title
        assert title == "YAML, edited, 1 line marked: the form differs"
        await it.write("image", "mine:7")
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.is_confirming)
        assert "! from the YAML as edited; 1 line differs from the form" in it.dialog_text()
        await it.pilot.press("enter")
        await it.settled()
        asked = it.cluster.asked(JOBS, method="POST")
        assert [each.query.get("dryRun", "") for each in asked] == ["All", ""]
        assert it.posted[1]["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5
        assert it.master["image"] == "mine:7"


@pytest.mark.slow
async def test_yaml_edits_are_saved_in_the_draft_and_restored(tmp_path: Path) -> None:
    async with form(tmp_path, size=(120, 40)) as it:
        area = await it.edit_yaml()
        area.load_text(area.text + "extra: 1\n")
        await it.pilot.press("ctrl+y", "ctrl+s")
        await it.until(lambda: not it.screen.model.is_dirty)
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("enter")
        await it.until(lambda: it.app.screen is it.screen)
        await it.settled()
        assert it.screen.query_one(ManifestPane).edits.is_edited
        await it.create()
        assert it.posted[1]["extra"] == 1
