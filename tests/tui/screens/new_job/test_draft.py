"""The new-job screen: leaving it, the draft that is kept, and what other consoles see of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tui.screens.new_job.world import ECHO, form
from tui.jobs.new_job.draft import FILE, OpenForm, read_draft, recover_draft, save_draft, save_last_image


async def test_leaving_an_untouched_form_asks_nothing(tmp_path: Path) -> None:
    save_last_image(tmp_path, "registry/mine:7")
    async with form(tmp_path, size=(120, 40)) as it:
        assert it.field("image").value == "registry/mine:7", "the last image is suggested again"
        assert not it.screen.model.is_dirty
        await it.press("ctrl+y", "tab", "escape")
        assert it.app.results == [None]
        assert not (tmp_path / FILE).exists()


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
    async with form(tmp_path, ECHO) as it:
        assert it.is_confirming
        await it.pilot.press("enter")
        await it.until(lambda: it.field("image").value == "mine:2")
        await it.settled()
        await it.create()
        assert len(it.app.results) == 1
        assert not (tmp_path / FILE).exists()


async def test_a_discarded_draft_leaves_no_file(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.write("image", "mine:9")
        await it.pilot.press("escape")
        await it.until(lambda: it.is_confirming)
        await it.pilot.press("tab", "enter")
        await it.until(lambda: it.app.results == [None])
    assert list(tmp_path.iterdir()) == []


async def test_starting_afresh_keeps_the_draft(tmp_path: Path) -> None:
    save_draft(tmp_path, {"name": "old[/b]"})
    async with form(tmp_path, ECHO) as it:
        await it.pilot.press("tab", "enter")
        await it.settled()
        assert it.field("name").value == "ddp-digits-1"
        await it.create()
        assert (tmp_path / FILE).exists()


async def test_a_broken_draft_is_set_aside_and_one_is_saved_when_the_console_ends(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{[/b]")
    async with form(tmp_path) as it:
        assert "It was renamed to new-job-draft.broken-1.json" in it.notice
        await it.write("image", "mine:3")
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values["image"] == "mine:3"


async def test_a_state_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    async with form(folder) as it:
        await it.write("image", "mine:3")
        await it.press("ctrl+s")
        assert "Could not save the draft" in it.notice


def test_the_values_of_a_killed_console_are_the_next_draft(tmp_path: Path) -> None:
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


def test_the_values_of_an_earlier_version_are_the_next_draft(tmp_path: Path) -> None:
    before = OpenForm(tmp_path)
    before.keep({"name": "lost"})
    (values,) = tmp_path.glob("*.json")
    values.rename(tmp_path / "new-job-unsaved-another_login_node-1.json")
    recover_draft(tmp_path)
    draft = read_draft(tmp_path)
    assert draft is not None and draft.values == {"name": "lost"}
    before.close()


@pytest.mark.parametrize("values", [{"name": "unsaved"}, {"name": "saved"}])
async def test_a_form_that_is_open_elsewhere_is_not_offered_and_keeps_its_draft(
    tmp_path: Path, values: dict[str, str]
) -> None:
    is_saved = values["name"] == "saved"
    other = OpenForm(tmp_path)
    (other.save if is_saved else other.keep)(values)
    for path in tmp_path.glob("*.json"):
        os.utime(path, (0, 0))  # nothing was typed there for long
    async with form(tmp_path) as it:
        assert it.app.screen is it.screen
        await it.write("image", "mine:9")
        await it.pilot.press("ctrl+s")
        await it.until(lambda: len(list(tmp_path.glob("new-job-saved-*.json"))) > is_saved)
    other.save({"name": "other"})
    other.close()
    drafts = {path.read_text().partition('"image": "')[2][:6] for path in tmp_path.iterdir()}
    assert drafts == {"mine:9", ""} and len(list(tmp_path.iterdir())) == 2


async def test_a_draft_that_one_console_has_resumed_is_not_offered_by_another(tmp_path: Path) -> None:
    first = OpenForm(tmp_path)
    first.save({"image": "mine:1"})
    first.close()
    async with form(tmp_path) as it:
        assert it.is_confirming
        await it.pilot.press("enter")
        await it.until(lambda: it.field("image").value == "mine:1")
        recover_draft(tmp_path)
        assert read_draft(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
