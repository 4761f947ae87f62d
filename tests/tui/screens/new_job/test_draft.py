"""The new-job screen: leaving it, the draft that is kept, and what other consoles see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.screens.new_job.world import ECHO, form
from tui.draft.draft import FILE, read_draft, recover_draft, save_last_image


@pytest.mark.slow
async def test_leaving_an_unmodified_form_shows_no_prompt(tmp_path: Path) -> None:
    save_last_image(tmp_path, "registry/mine:7")
    async with form(tmp_path, size=(120, 40)) as it:
        assert it.field("image").value == "registry/mine:7", "the last image is suggested again"
        assert not it.screen.model.is_dirty
        await it.press("ctrl+y", "tab", "escape")
        assert it.app.results == [None]
        assert not (tmp_path / FILE).exists()


@pytest.mark.slow
async def test_leaving_offers_to_save_a_draft_and_the_next_form_offers_it(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:2")
        await it.until(lambda: any(tmp_path.glob("new-job-unsaved-*.json")))
        await it.pilot.press("escape")
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("escape")
        await it.until(lambda: it.is_idle("leave"))
        assert (it.app.results, it.field("image").value) == ([], "mine:2")
        assert not (tmp_path / FILE).exists()
        await it.pilot.press("escape")
        await it.until(lambda: it.is_confirming)
        assert it.app.focused is not None and it.app.focused.id == "save"
        await it.pilot.press("enter")
        await it.until(lambda: it.app.results == [None])
    async with form(tmp_path) as it:
        assert it.is_confirming
        await it.pilot.press("tab", "enter")  # start over
        await it.settled()
        await it.write("image", "mine:9")
        await it.pilot.press("escape")
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("tab", "enter")  # discard
        await it.until(lambda: it.app.results == [None])
        assert [path.name for path in tmp_path.iterdir()] == [FILE], "the draft that was declined stays"
    async with form(tmp_path, ECHO) as it:
        assert it.is_confirming
        await it.pilot.press("enter")
        await it.until(lambda: it.field("image").value == "mine:2")
        await it.settled()
        recover_draft(tmp_path)
        assert read_draft(tmp_path) is None, "another console does not offer what this one has resumed"
        await it.create()
        assert len(it.app.results) == 1
    assert not (tmp_path / FILE).exists()


@pytest.mark.slow
async def test_a_broken_draft_is_set_aside_and_one_is_saved_when_the_console_ends(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{[/b]")
    async with form(tmp_path) as it:
        assert "It was renamed to new-job-draft.broken-1.json" in it.notice
        await it.write("image", "mine:3")
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values["image"] == "mine:3"


@pytest.mark.slow
async def test_a_state_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    async with form(folder) as it:
        await it.write("image", "mine:3")
        await it.press("ctrl+s")
        assert "Could not save the draft" in it.notice
