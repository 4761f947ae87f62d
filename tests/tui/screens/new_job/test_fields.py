"""The new-job screen: its fields, their problems and what they hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual._compositor import Compositor
from textual.message import Message
from textual.widgets import Input

from k8s.jobs.pod_files import LOCAL_PATH
from k8s.reasons.cause import Cause
from tests.scripted.server import Answer, refusal
from tests.support.new_job_form import job
from tests.support.screen_text import resize
from tests.tui.screens.new_job.world import CLAIMS, ECHO, SNAPSHOT, form, sandbox
from tui.draft.fields import FormField
from tui.widgets.form.fields import Field
from tui.widgets.form.job_fields import JobFields, PreflightView
from tui.widgets.form.manifest_pane import ManifestPane, YamlView


@pytest.mark.slow
async def test_a_small_terminal_shows_the_size_and_run_of_the_job_and_the_yaml_only_on_request(
    tmp_path: Path,
) -> None:
    async with form(tmp_path, size=(80, 24)) as it:
        lines = [Cause(f"finding {number}") for number in range(9)]
        it.screen.query_one(PreflightView).show(lines)
        await it.pilot.pause()
        labels = [line[3:].split("  ")[0] for line in it.shown]
        assert {"Name", "Image", "Code", "Workers", "GPUs", "Run"} <= set(labels)
        assert "finding 3" in "".join(it.shown) and "… 5 more lines" in "".join(it.shown)
        for size, keys, has_yaml in (
            ((80, 24), (), False),
            ((80, 24), ("ctrl+y",), True),
            ((109, 40), ("ctrl+y",), False),
            ((110, 40), (), True),
        ):
            await resize(it.pilot, *size)
            await it.pilot.press(*keys)
            await it.pilot.pause()
            assert it.screen.query_one(ManifestPane).display is has_yaml, size


@pytest.mark.slow
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
        await it.go("name")
        await it.pilot.press("up")
        assert it.focused_key == "template"
        await it.write("mount_path", "data")
        at = next(index for index, line in enumerate(it.shown) if "▸ Mount path" in line)
        assert "✕ 'data' is not a mount path: must be absolute" in it.shown[at + 1]

        claim = {"metadata": {"name": "workspace", "annotations": {LOCAL_PATH: str(tmp_path)}}}
        it.cluster.say(f"{CLAIMS}/workspace", Answer(claim))
        await it.write("mount_path", "/workspace")
        await it.go("name")
        await it.go("ddp.dataset")
        before = it.screen.query_one("#preflight").size.height
        assert not it.field("ddp.data").display
        await it.pilot.press("right")
        await it.settled()
        assert it.field("ddp.data").display, "this data set is read from files"
        assert "would fail: no /workspace/mnist" in "".join(it.shown)
        assert it.screen.query_one("#preflight").size.height > before
        await it.pilot.pause()
        assert any(line.startswith(" ▸ Dataset") for line in it.shown), "visible though the summary grew"
        await it.write("claim", "")
        assert not it.field("mount_path").display

        await resize(it.pilot, 120, 60)
        await it.write("name", "bert-9")
        assert any("name: bert-9" in line for line in it.shown), "the YAML is beside a wide form"
        await it.go("claim")
        help_text = it.text_of("#help")
        assert len(help_text) > 70 and help_text in " ".join(" ".join(line[:60] for line in it.shown).split())


@pytest.mark.slow
async def test_field_errors_are_shown_once_the_field_was_edited_or_the_job_submitted(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(80, 24)) as it:
        assert not it.screen.query_one(ManifestPane).display
        await it.go("image")
        await it.press("ctrl+y")
        assert it.screen.query_one(YamlView).has_focus
        assert any("kind: PyTorchJob" in line for line in it.shown)
        await it.press("ctrl+o")
        await it.until(lambda: it.is_confirming)  # also from the YAML
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
        await it.write("image", "mine:1")
        await it.until(lambda: "image" not in it.screen.model.errors)
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.focused_key == "gpus")
        await it.write("gpus", "2")
        await it.until(lambda: not it.screen.model.errors)
        await it.pilot.press("ctrl+o")
        await it.until(lambda: it.is_confirming)
        await it.press("escape")

        field = Field(FormField("late", "Late", "A field that is not laid out yet"), "")
        field.error = "not so"
        await it.screen.query_one(JobFields).mount(field)
        await it.pilot.pause()
        assert field.render_line(1).text.strip() == "✕ not so"


async def test_a_letter_lays_out_nothing_and_draws_no_hidden_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged: list[Compositor] = []
    arrange = Compositor._arrange_root

    def count(compositor: Compositor, *arguments: Any, **how: Any) -> Any:
        arranged.append(compositor)
        return arrange(compositor, *arguments, **how)

    async with form(tmp_path, size=(80, 24)) as it:
        await it.write("image", "a")
        monkeypatch.setattr(Compositor, "_arrange_root", count)
        await it.press("b")
        assert it.field("image").value == "ab" and any("ab" in line for line in it.shown)
        assert not arranged


@pytest.mark.slow
async def test_a_suggested_name_never_replaces_a_typed_or_cleared_name(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("ddp.dataset")
        await it.pilot.press("right")
        assert it.field("name").value == "ddp-mnist-1"
        await it.pilot.press("left")
        values, field = it.screen.model.values, it.field("name")
        hidden = it.screen.model.result.hidden
        field.query_one(Input).value = ""
        field._post_changed(Message())  # its message waits for the screen, which fills in what came meanwhile
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


@pytest.mark.slow
async def test_claims_that_cannot_be_listed_can_be_typed(tmp_path: Path) -> None:
    refused = refusal(403, 'cannot list "persistentvolumeclaims"', "Forbidden")
    async with form(tmp_path, ECHO, claims=refused) as it:
        await it.write("claim", "mine")
        assert "Cannot list volume claims" in it.text_of("#help")
        await it.set_snapshot(sandbox(0))
        assert it.field("workers").value == "2", "the model's suggestion is shown"
        await it.create()
        pod = it.posted[1]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "mine"
