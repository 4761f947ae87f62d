"""The new-job screen in every theme: placeholders can be read, and the focus can be seen."""

from __future__ import annotations

from pathlib import Path

from rich.style import Style

import themes
from tests.themes.test_themes import COLOURED, contrast
from tests.tui.screens.new_job.test_files import until
from tests.tui.screens.new_job.world import Form, form
from tui.screens.dialogs.text_prompt import LoginScreen
from tui.widgets.form.job_fields import FieldsTitle

ANSI = [name for name in themes.load() if name not in COLOURED]
PLACEHOLDERS = {"processes": " per GPU", "command": "orchrun"}
"""Fields and what is shown in them while they are empty, behind the cursor."""


def styles_of(it: Form, text: str) -> list[Style]:
    strips = it.app.screen._compositor.render_strips()
    return [part.style for strip in strips for part in strip if text in part.text and part.style]


async def take_theme(it: Form, name: str) -> None:
    it.app.theme = name
    await it.pilot.pause()


def assert_readable(it: Form, text: str) -> None:
    styles = styles_of(it, text)
    assert styles, (it.app.theme, text)
    for style in styles:
        assert style.color is not None and style.bgcolor is not None
        colours = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
        assert contrast(*colours) >= 4.5, (it.app.theme, text, colours)


async def test_placeholders_can_be_read_in_every_theme_of_colours_with_and_without_the_focus(
    tmp_path: Path,
) -> None:
    async with form(tmp_path, size=(100, 90)) as it:
        await it.go("run")
        await it.pilot.press("right", "right")
        await until(it, lambda: it.field("command").is_shown)
        for theme in COLOURED:
            await take_theme(it, theme)
            for focused in ("name", *PLACEHOLDERS):
                await it.go(focused)
                for placeholder in PLACEHOLDERS.values():
                    assert_readable(it, placeholder)
        await it.app.push_screen(LoginScreen("User and password?", "For a repository."))
        for theme in COLOURED:
            await take_theme(it, theme)
            assert_readable(it, "assword or token")


async def test_a_focused_heading_differs_in_more_than_bold_in_every_theme(tmp_path: Path) -> None:
    async with form(tmp_path, size=(100, 60)) as it:
        for theme in themes.load():
            await it.go("name")
            await take_theme(it, theme)
            title = it.screen.query(FieldsTitle).first()
            (before,) = styles_of(it, "More: Worker image")
            title.focus()
            await it.pilot.pause()
            (after,) = styles_of(it, "More: Worker image")
            assert after.reverse if theme in ANSI else after.bgcolor != before.bgcolor, theme
