"""The new-job screen: leaving it, and the draft that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.screens.new_job.world import (
    ECHO,
    form,
)
from tui.jobs.new_job.draft import FILE, read_draft, save_draft, save_last_image
from tui.screens.dialogs.confirm import ConfirmScreen


async def test_leaving_an_untouched_form_asks_nothing(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.pilot.press("escape")
        await it.pilot.pause()
        assert it.app.results == [None]
        assert not (tmp_path / FILE).exists()


async def test_leaving_offers_to_keep_a_draft_and_the_next_form_offers_it(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:2")
        await it.pilot.press("escape")
        await it.comes(lambda: isinstance(it.app.screen, ConfirmScreen))
        assert it.app.focused is not None and it.app.focused.id == "save"
        await it.pilot.press("enter")
        await it.comes(lambda: it.app.results == [None])
    async with form(tmp_path, ECHO) as it:
        assert isinstance(it.app.screen, ConfirmScreen)
        await it.pilot.press("enter")
        await it.comes(lambda: it.field("image").value == "mine:2")
        await it.settled()
        await it.create()
        assert len(it.app.results) == 1
        assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(("keys", "answers"), [(["escape"], 0), (["tab", "enter"], 1)])
async def test_leaving_can_be_taken_back_and_a_draft_discarded(
    tmp_path: Path, keys: list[str], answers: int
) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:2")
        await it.pilot.press("escape")
        await it.comes(lambda: isinstance(it.app.screen, ConfirmScreen))
        await it.pilot.press(*keys)
        await it.comes(lambda: it.is_left)
        assert len(it.app.results) == answers
        assert not (tmp_path / FILE).exists()
        if not answers:
            assert it.field("image").value == "mine:2"


async def test_starting_afresh_leaves_the_draft_for_another_day(tmp_path: Path) -> None:
    save_draft(tmp_path, {"name": "old[/b]"})
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("tab", "enter")
        await it.settled()
        assert it.field("name").value == "ddp-digits-1"
        await it.create()
        assert (tmp_path / FILE).exists()


async def test_a_draft_is_kept_when_the_console_ends_under_the_form(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:3")
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values["image"] == "mine:3"


async def test_a_draft_that_makes_no_sense_is_said_and_set_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{[/b]")
    async with form(tmp_path) as it:
        assert "It was renamed to new-job-draft.broken-1.json" in it.said("Notice")


async def test_a_state_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    async with form(folder) as it:
        await it.write("image", "mine:3")
        await it.pilot.press("ctrl+s")
        await it.pilot.pause()
        assert "Could not save the draft" in it.said("Notice")


async def test_the_image_used_last_is_offered_again(tmp_path: Path) -> None:
    save_last_image(tmp_path, "registry/mine:7")
    async with form(tmp_path) as it:
        assert it.field("image").value == "registry/mine:7"
        assert not it.screen.model.is_dirty
