"""The new-job screen: its fields, their problems and what they hide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, Label

from k8s.jobs.pod_files import LOCAL_PATH
from k8s.snapshot import ClusterSnapshot
from tests.scripted.server import Answer, refusal
from tests.support.new_job_form import job, node
from tests.tui.screens.new_job.world import (
    CLAIMS,
    ECHO,
    SNAPSHOT,
    Form,
    form,
    sandbox,
)
from tui.jobs.new_job import form_model
from tui.jobs.new_job.fields import COMMAND, JOB_FORM_FIELDS, FormField
from tui.jobs.new_job.form_model import FormModel
from tui.jobs.new_job.form_spec import parse_values
from tui.jobs.new_job.hidden_fields import hidden_fields
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
        for held in (0, 2):  # free once, and not any more
            await it.set_snapshot(sandbox(held))
            assert it.field("workers").value == "2"
        await it.go("run")
        await it.pilot.press("right")
        assert it.field("workers").value == "2"  # the other trainer
        await it.pilot.press("right")
        assert it.field("workers").value == "1"
        await it.pilot.press("left", "left")
        assert it.field("workers").value == "2"
        await it.write("workers", "3")
        await it.set_snapshot(sandbox(0, 0))
        assert it.field("workers").value == "3"


async def test_keys_move_through_the_fields_and_the_focused_one_is_visible_with_its_problem(
    tmp_path: Path,
) -> None:
    async with form(tmp_path, size=(80, 24)) as it:
        assert it.focused_key == "name"
        keys = []
        for key in ("tab", "down", "enter", "shift+tab", "up"):
            await it.pilot.press(key)
            keys.append(it.focused_key)
        assert keys == ["kind", "namespace", "image", "namespace", "kind"]
        firsts = []
        for _ in range(6):
            await it.pilot.press("ctrl+n")
            firsts.append(it.focused_key)
        assert firsts == ["sync_mode", "workers", "run", "claim", "", ""]  # the last two are folded away
        await it.pilot.press("ctrl+n")
        assert it.has_button
        await it.pilot.press(*["ctrl+p"] * 3)
        assert it.focused_key == "claim"

        await it.go("name")
        for _ in range(22):
            await it.press("tab")
            if it.focused_key:
                label = it.field(it.focused_key).definition.label
                assert any(line.startswith(f" ▸ {label}") for line in it.shown), it.focused_key
        await it.write("mount_path", "data")
        at = next(index for index, line in enumerate(it.shown) if "▸ Mount path" in line)
        assert "✕ 'data' is not a mount path: must be absolute" in it.shown[at + 1]


async def test_a_field_shows_its_whole_help_and_is_hidden_if_it_changes_nothing(tmp_path: Path) -> None:
    async with form(tmp_path, size=(80, 60)) as it:
        await it.go("claim")
        help_text = it.text_of("#help")
        assert len(help_text) > 70 and help_text in " ".join(" ".join(it.shown).split())
        assert not it.field("ddp.data").display
        await it.screen.query_one(JobFields).focus_first(["ddp.seed"])
        assert [it.field(f"ddp.{name}").display for name in ("train-images", "download")] == [True, False]
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert [it.field(f"ddp.{name}").display for name in ("train-images", "download")] == [False, True]
        assert it.field("ddp.data").display
        await it.write("claim", "")
        assert not it.field("mount_path").display
        assert not it.field("continue_from").display


async def test_the_focused_field_stays_visible_when_the_summary_grows(tmp_path: Path) -> None:
    claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}}
    async with form(tmp_path, size=(80, 24)) as it:
        it.cluster.say(f"{CLAIMS}/workspace", Answer(claim))
        await it.go("name")
        await it.go("ddp.dataset")
        before = it.screen.query_one("#preflight").size.height
        await it.pilot.press("right")
        await it.settled()
        assert "would fail: no /workspace/mnist" in "".join(it.shown)
        assert it.screen.query_one("#preflight").size.height > before
        await it.pilot.pause()
        assert any(line.startswith(" ▸ Dataset") for line in it.shown)


async def test_problems_are_shown_once_the_field_was_touched_or_the_job_requested(
    tmp_path: Path,
) -> None:
    async with form(tmp_path, ECHO, size=(80, 24)) as it:
        assert not it.screen.query_one(ManifestPane).display
        await it.go("image")
        await it.press("ctrl+y")
        assert it.screen.query_one(YamlView).has_focus
        assert any("kind: PyTorchJob" in line for line in it.shown)
        await it.press("ctrl+o")
        assert it.is_confirming, "also from the YAML"
        await it.press("escape")
        await it.press("escape")
        assert (it.focused_key, it.app.results) == ("image", [])

        await it.go("run")
        await it.pilot.press("end", "right", "right")
        assert it.field("command").error == ""
        await it.pilot.press("down", "tab")
        assert it.field("command").error.startswith("Required: a command")
        await it.write("command", "python train.py")
        assert it.field("command").error == ""

        await it.write("gpus", "two")
        await it.press("ctrl+y", "ctrl+o")
        assert it.focused_key == "gpus"
        await it.write("image", "")
        await it.pilot.press("ctrl+o")
        assert it.focused_key == "image"
        assert it.field("gpus").error == "Must be a whole number, e.g. 2."
        assert it.text_of("#state") == "2 fields need attention"
        assert it.posted == []

        field = Field(FormField("late", "Late", "A field that is not laid out yet"), "")
        field.error = "not so"
        await it.screen.query_one(JobFields).mount(field)
        await it.pilot.pause()
        assert str(field.query_one(".field--error", Label).content) == "✕ not so"


async def test_the_yaml_is_beside_a_wide_form_and_the_preflight_follows_the_cluster(tmp_path: Path) -> None:
    async with form(tmp_path, size=(120, 40)) as it:
        assert "fits now on a100-1; 6 of 8 GPUs free" in it.summary
        await it.write("name", "bert-9")
        assert any("name: bert-9" in line for line in it.shown)
        await it.write("gpus", "7")
        assert "would wait: needs 1 × 7 GPUs" in it.summary
        await it.set_snapshot(ClusterSnapshot(nodes=(node("a100-1", 8),), is_synced=True))
        assert "fits now on a100-1; 8 of 8 GPUs free" in it.summary


async def test_a_suggested_name_never_replaces_what_is_typed_or_deleted(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert it.field("name").value == "ddp-mnist-1"
        await it.pilot.press("left")
        values, field = it.screen.model.values, it.field("name")
        hidden = it.screen.model.result.hidden
        field.query_one(Input).value = ""
        field._post_changed()  # its message waits for the screen, which fills in what came meanwhile
        it.screen.query_one(JobFields).show_values(values, hidden)
        assert field.value == ""
        await it.until(lambda: it.screen.model.values["name"] == "")
        it.screen.query_one(JobFields).show_values(values, hidden)
        assert field.value == values["name"] == "ddp-digits-1"

        field.query_one(Input).value = "h"
        await it.set_snapshot(replace(SNAPSHOT, jobs=(job("ddp-digits-1", "vision"),)))
        assert field.value == it.screen.model.values["name"] == "h"
        await it.write("name", "mine")
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert it.field("name").value == "mine"


async def test_claims_that_cannot_be_listed_can_be_typed(tmp_path: Path) -> None:
    refused = refusal(403, 'cannot list "persistentvolumeclaims"', "Forbidden")
    async with form(tmp_path, ECHO, claims=refused) as it:
        await it.write("claim", "mine")
        assert "Cannot list volume claims" in it.text_of("#help")
        await it.create()
        pod = it.posted[1]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "mine"


OPEN = {"run": COMMAND, COMMAND: "train.py", "torchrun": "true", "sync_mode": "git"}
"""Values that show the most fields."""
RIGHT = {**OPEN, "name": "mended", "sync_source": "https://example.com/a.git", "log_dir": "/workspace/logs"}
"""Values of a valid job."""
BAD_TEXTS = ("-1", "Ä ö", "a\u2407")
"""Bad input for a number, for a name, and for any text: it may hold no control character."""


def wrong_values(it: Form) -> dict[str, str]:
    """Return a bad text for each visible text field."""
    values = {**it.screen.model.values, **RIGHT}
    asked = [each for each in JOB_FORM_FIELDS if each.control != "choice"]
    asked = [each for each in asked if each.key not in hidden_fields(values)]
    return {
        each.key: next(
            text for text in BAD_TEXTS if each.key in parse_values({**values, each.key: text}).problems
        )
        for each in asked
    }


async def correct(it: Form, key: str, text: str) -> None:
    """Correct a field, and try to create."""
    await it.write(key, text)
    await it.until(lambda: key not in it.screen.model.errors)
    await it.pilot.press("ctrl+o")
    await it.until(lambda: it.focused_key != key or it.is_confirming)


async def test_every_wrong_field_shows_its_error_and_gets_the_focus_in_turn(
    tmp_path: Path,
) -> None:
    async with form(tmp_path, ECHO) as it:
        state = it.screen.model
        wrong = wrong_values(it)
        right = {**state.values, **RIGHT}
        assert len(wrong) > 40
        state.load_draft({**right, **wrong})
        it.screen._show_model()
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.focused_key == "name")
        assert {key for key in wrong if not it.field(key).error} == set()
        assert not it.is_confirming
        left = dict(list(wrong.items())[::6])  # each is corrected like these, and takes its time
        state.load_draft({key: right[key] for key in wrong if key not in left})
        it.screen._show_model()
        await it.pilot.press("ctrl+o")
        gone_to = []
        while state.errors:
            gone_to.append(it.focused_key)
            await correct(it, gone_to[-1], right[gone_to[-1]])
        assert sorted(gone_to) == sorted(left)
        await it.pilot.press("enter")
        await it.until(lambda: bool(it.app.results))
        assert it.app.results[0] is not None and it.app.results[0].name == "mended"
        assert len(it.posted) == 2
