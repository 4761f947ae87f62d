"""The new-job screen: its YAML is edited, merged with what the form makes, sent, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.screens.new_job.world import ECHO, JOBS, form
from tui.widgets.form.manifest_pane import ManifestPane


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
