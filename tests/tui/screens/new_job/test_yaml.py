"""The new-job screen: its YAML is edited, merged with what the form makes, sent, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from textual.widgets import Label

from tests.tui.screens.new_job.test_files import until
from tests.tui.screens.new_job.world import ECHO, JOBS, Form, form
from tui.screens.dialogs.confirm import ConfirmScreen
from tui.widgets.form.fields import TextAreaField
from tui.widgets.form.manifest_pane import ManifestPane


async def editor(it: Form) -> TextAreaField:
    """Open the YAML to edit it."""
    await it.pilot.press("ctrl+y")
    pane = it.screen.query_one(ManifestPane)
    await until(it, lambda: pane.is_read)
    await it.pilot.press("e")
    await until(it, lambda: pane.has_class("-editing") and pane.query_one(TextAreaField).has_focus)
    return pane.query_one(TextAreaField)


def replicas(made: dict[str, Any]) -> Any:
    return made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]


async def test_the_yaml_is_edited_and_sent_as_edited_after_a_dry_run(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await it.write("workers", "3")
        area = await editor(it)
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
        await until(it, lambda: isinstance(it.app.screen, ConfirmScreen))
        details = str(it.app.screen.query_one("#details", Label).content)
        assert "! from the YAML as edited; 1 line differs from the form" in details
        await it.pilot.press("enter")
        await it.settled()
        asked = it.cluster.asked(JOBS, method="POST")
        assert [each.query.get("dryRun", "") for each in asked] == ["All", ""]
        made = json.loads(asked[1].body)
        assert replicas(made) == 5
        master = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        assert master["image"] == "mine:7"


async def test_yaml_that_is_wrong_is_said_at_its_line_and_is_not_sent_or_lost(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(80, 24)) as it:
        area = await editor(it)
        text = area.text.replace("  name:", "  name: [")
        area.load_text(text)
        await it.pilot.press("ctrl+y")
        await it.write("workers", "2")
        await it.pilot.press("ctrl+o")
        await it.pilot.pause()
        assert it.said("Notice").startswith("✕ The YAML cannot be submitted. Line ")
        assert it.cluster.asked(JOBS, method="POST") == []
        area = await editor(it)
        assert area.text == text


async def test_edits_are_in_the_draft_and_come_back(tmp_path: Path) -> None:
    async with form(tmp_path, size=(120, 40)) as it:
        area = await editor(it)
        area.load_text(area.text + "extra: 1\n")
        await it.pilot.press("ctrl+y", "ctrl+s")
        await until(it, lambda: not it.screen.model.is_dirty)
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await until(it, lambda: isinstance(it.app.screen, ConfirmScreen))
        await it.pilot.press("enter")
        await until(it, lambda: it.app.screen is it.screen)
        await it.settled()
        assert it.screen.query_one(ManifestPane).edits.is_edited
        await it.create()
        assert json.loads(it.cluster.asked(JOBS, method="POST")[1].body)["extra"] == 1
