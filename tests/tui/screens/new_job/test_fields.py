"""The new-job screen: its fields, what they suggest and what they hide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, Label

from k8s.job_spec import JobSpec
from k8s.jobs.clone import clone
from k8s.jobs.pod_files import LOCAL_PATH
from k8s.kinds import CREATABLE, JobRef
from k8s.snapshot import ClusterSnapshot, Job, NodeRow, Share
from k8s.status import Status
from tests.scripted.server import Answer, page, refusal
from tests.tui.screens.new_job.world import (
    CLAIMS,
    ECHO,
    JOBS,
    SNAPSHOT,
    form,
    sandbox,
)
from tui.jobs.new_job import form_model
from tui.jobs.new_job.fields import FormField
from tui.jobs.new_job.form_model import FormModel
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.widgets.form.fields import Field
from tui.widgets.form.job_fields import JobFields
from tui.widgets.form.manifest_pane import ManifestPane
from tui.widgets.yaml_view import YamlView


def test_in_the_sandbox_a_trainer_gets_two_workers_if_two_gpus_are_free() -> None:
    for case, snapshot, workers in (
        ("two free", sandbox(0), "2"),
        ("on two nodes", sandbox(1, 1), "2"),
        ("one free", sandbox(1), "1"),
        ("none free", sandbox(2), "1"),
        ("not synced", replace(sandbox(0), is_synced=False), "1"),
        ("a real cluster", replace(SNAPSHOT, server_version="v1.31.0"), "1"),
    ):
        model = FormModel("vision", snapshot=snapshot)
        assert model.values["workers"] == workers, case
        assert any(f"= {workers} rank" in line.text for line in model.preflight), case
        assert not model.is_dirty, case


def test_one_edit_parses_once_and_writes_the_objects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(name: str) -> None:
        made = getattr(form_model, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return made(*args, **kwargs)

        monkeypatch.setattr(form_model, name, counted)

    model = FormModel("vision", snapshot=sandbox(0))
    for name in ("parse_values", "objects_beside", "documents_beside", "preflight"):
        count(name)
    for key, value in (("gpus", "2"), ("ddp.dataset", "imagenet"), ("name", "mine"), ("claim", "data")):
        calls.clear()
        model.set_value(key, value)
        assert calls == ["parse_values", "objects_beside", "documents_beside", "preflight"], key
    calls.clear()
    model.suggest(sandbox(1))
    assert calls == ["parse_values", "preflight"]  # another snapshot, the same job


async def test_the_number_of_workers_is_decided_once_and_yields_to_what_is_typed(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        it.app.snapshot = sandbox(0)
        await it.pilot.pause()
        assert it.field("workers").value == "2"
        it.app.snapshot = sandbox(2)
        await it.pilot.pause()
        assert it.field("workers").value == "2"
        await it.go("run")
        await it.pilot.press("right")
        assert it.field("workers").value == "2"  # the other trainer
        await it.pilot.press("right")
        assert it.field("workers").value == "1"
        await it.pilot.press("left", "left")
        assert it.field("workers").value == "2"
        await it.write("workers", "3")
        it.app.snapshot = sandbox(0, 0)
        await it.pilot.pause()
        assert it.field("workers").value == "3"


async def test_tab_and_the_arrows_go_through_the_fields(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        assert it.focused_key == "name"
        keys = []
        for key in ("tab", "down", "enter", "shift+tab", "up"):
            await it.pilot.press(key)
            keys.append(it.focused_key)
        assert keys == ["kind", "namespace", "image", "namespace", "kind"]
        await it.pilot.press("ctrl+n")
        assert it.focused_key == "sync_mode"
        firsts = []
        for _ in range(5):
            await it.pilot.press("ctrl+n")
            firsts.append(it.focused_key)
        assert firsts == ["workers", "run", "claim", "", ""]  # the last two are folded away
        await it.pilot.press("ctrl+n")
        assert it.has_button
        await it.pilot.press(*["ctrl+p"] * 3)
        assert it.focused_key == "claim"


async def test_the_focused_field_is_always_seen_with_its_label_and_its_problem(tmp_path: Path) -> None:
    async with form(tmp_path, size=(80, 24)) as it:
        for _ in range(22):
            await it.pilot.press("tab")
            await it.pilot.pause()
            if not it.focused_key:
                continue
            field = it.field(it.focused_key)
            assert any(line.startswith(f" ▸ {field.definition.label}") for line in it.shown()), it.focused_key
        await it.write("mount_path", "data")
        shown = it.shown()
        at = next(index for index, line in enumerate(shown) if "▸ Mount path" in line)
        assert "✕ 'data' is not a mount path: must be absolute" in shown[at + 1]


async def test_fields_that_change_nothing_are_not_shown(tmp_path: Path) -> None:
    async with form(tmp_path, size=(80, 60)) as it:
        assert not it.field("ddp.data").display
        await it.settled()
        await it.screen.query_one(JobFields).focus_first(["ddp.seed"])
        assert [it.field(f"ddp.{name}").display for name in ("train-images", "download")] == [True, False]
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert [it.field(f"ddp.{name}").display for name in ("train-images", "download")] == [False, True]
        assert it.field("ddp.data").display
        await it.write("claim", "")
        assert not it.field("mount_path").display
        assert not it.field("continue_from").display


async def test_the_focused_field_stays_in_sight_when_the_summary_grows(tmp_path: Path) -> None:
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}}
    async with form(tmp_path, size=(80, 24)) as it:
        it.cluster.say(f"{CLAIMS}/workspace", Answer(claim))
        await it.go("name")
        await it.go("ddp.dataset")
        before = it.screen.query_one("#preflight").size.height
        await it.pilot.press("right")
        await it.settled()
        assert "would fail: no /workspace/mnist" in "".join(it.shown())
        assert it.screen.query_one("#preflight").size.height > before
        await it.pilot.pause()
        assert any(line.startswith(" ▸ Dataset") for line in it.shown())


async def test_a_problem_is_said_once_the_field_was_touched(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("run")
        await it.pilot.press("end", "right", "right")
        assert it.field("command").error == ""
        await it.pilot.press("down", "tab")
        assert it.field("command").error.startswith("Required: a command")
        await it.write("command", "python train.py")
        assert it.field("command").error == ""


async def test_a_problem_is_said_at_a_field_that_is_just_being_laid_out(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        field = Field(FormField("late", "Late", "What comes late"), "")
        mounting = it.screen.query_one(JobFields).mount(field)
        assert not field.children
        field.error = "not so"
        await mounting
        await it.pilot.pause()
        assert str(field.query_one(".field--error", Label).content) == "✕ not so"


async def test_a_form_that_is_not_right_shows_the_first_wrong_field_and_asks_nobody(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.write("gpus", "two")
        await it.write("image", "")
        await it.pilot.press("ctrl+o")
        assert it.focused_key == "image"
        assert it.field("gpus").error == "Must be a whole number, e.g. 2."
        assert it.said("#state") == "2 fields need attention"
        assert it.cluster.asked(JOBS, method="POST") == []


async def test_a_wrong_field_that_is_folded_away_is_unfolded(tmp_path: Path) -> None:
    like = JobSpec(name="a", namespace="vision", image="i", command=("true",), cpu="lots")
    async with form(tmp_path, ECHO, clone=clone(CREATABLE[0].manifest(like))) as it:
        await it.pilot.press("ctrl+o")
        await it.pilot.pause()
        assert it.focused_key == "cpu"
        assert "lots" in it.field("cpu").error


async def test_the_yaml_is_beside_the_form_where_there_is_room_and_behind_a_key_where_not(
    tmp_path: Path,
) -> None:
    async with form(tmp_path / "wide", size=(120, 40)) as it:
        await it.write("name", "bert-9")
        assert any("name: bert-9" in line for line in it.shown())
    async with form(tmp_path, size=(80, 24)) as it:
        assert not it.screen.query_one(ManifestPane).display
        await it.go("image")
        await it.pilot.press("ctrl+y")
        await it.pilot.pause()
        assert it.screen.query_one(YamlView).has_focus
        assert any("kind: PyTorchJob" in line for line in it.shown())
        await it.pilot.press("escape")
        await it.settled()
        assert it.focused_key == "image"
        assert it.app.results == []


async def test_the_question_and_a_wrong_field_are_reached_from_the_yaml(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("ctrl+y", "ctrl+o")
        await it.pilot.pause()
        assert isinstance(it.app.screen, ConfirmScreen)
        await it.pilot.press("escape")
        await it.pilot.pause()
        await it.write("gpus", "x")
        await it.pilot.press("ctrl+y", "ctrl+o")
        await it.pilot.pause()
        assert it.focused_key == "gpus"


async def test_escape_leaves_the_form_after_a_look_at_the_yaml_beside_it(tmp_path: Path) -> None:
    async with form(tmp_path, size=(120, 40)) as it:
        await it.pilot.press("ctrl+y", "tab", "escape")
        await it.pilot.pause()
        assert it.app.results == [None]


async def test_the_preflight_follows_what_is_typed_and_what_is_free(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        assert "fits now on a100-1; 6 of 8 GPUs free" in it.said("#preflight")
        await it.write("gpus", "7")
        assert "would wait: needs 1 × 7 GPUs" in it.said("#preflight")
        idle = NodeRow("a100-1", "", (), "Ready", False, "", {"nvidia.com/gpu": Share(8, 0, 0)}, (), None)
        it.app.snapshot = ClusterSnapshot(nodes=(idle,), is_synced=True)
        await it.pilot.pause()
        assert "fits now on a100-1; 8 of 8 GPUs free" in it.said("#preflight")


async def test_the_suggested_name_follows_until_one_is_typed(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert it.field("name").value == "ddp-mnist-1"
        await it.write("name", "mine")
        await it.go("ddp.dataset")
        await it.pilot.press("left")
        assert it.field("name").value == "mine"


async def test_a_letter_typed_while_the_cluster_answers_stays(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        field = it.field("name")
        field.query_one(Input).value = "h"
        other = JobRef("vision", "ddp-digits-1", "PyTorchJob", "kubeflow.org/v1")
        ours = Job(other, "u", Status.RUNNING, "", 0, 0, (), 0, "", "", None, None, None, (), "", "")
        it.app.snapshot = replace(SNAPSHOT, jobs=(ours,))
        await it.pilot.pause()
        assert field.value == "h"
        assert it.screen.model.values["name"] == "h"


async def test_what_was_deleted_stays_deleted_while_the_form_has_not_taken_it(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        values, field = it.screen.model.values, it.field("name")
        hidden = it.screen.model.result.hidden
        field.query_one(Input).value = ""
        field._post_changed()  # its message waits for the screen, which fills in what came meanwhile
        it.screen.query_one(JobFields).show_values(values, hidden)
        assert field.value == ""
        await it.comes(lambda: it.screen.model.values["name"] == "")
        it.screen.query_one(JobFields).show_values(values, hidden)
        assert field.value == values["name"]


async def test_claims_that_cannot_be_listed_can_be_typed(tmp_path: Path) -> None:
    refused = refusal(403, 'cannot list "persistentvolumeclaims"', "Forbidden")
    async with form(tmp_path, ECHO, claims=refused) as it:
        await it.write("claim", "mine")
        assert "Cannot list volume claims" in it.said("#help")
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[1].body)
        volumes = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"]
        assert volumes[0]["persistentVolumeClaim"]["claimName"] == "mine"


async def test_another_namespace_has_other_claims(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        there = "/api/v1/namespaces/speech/persistentvolumeclaims"
        it.cluster.say(there, page([{"metadata": {"name": "audio"}}]))
        await it.write("claim", "data")
        await it.write("namespace", "speech")
        await it.pilot.press("tab")
        await it.cluster.until_asked(there)
        await it.settled()
        assert "volume claim data not found in speech" in it.said("#preflight")
        await it.write("claim", "")
        await it.pilot.press("space", "down", "enter")
        assert it.field("claim").value == "audio"
