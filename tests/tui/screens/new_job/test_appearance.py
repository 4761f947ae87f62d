"""The new-job screen in every theme and size, with whatever is pasted into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.style import Style

import themes
from tests.support.colours import COLOURED, contrast
from tests.support.screen_text import resize
from tests.tui.screens.new_job.world import ECHO, Form, form
from tui.screens.dialogs.confirm import LoginScreen
from tui.widgets.form.fields import is_shown
from tui.widgets.form.job_fields import FieldsTitle

SIZES = ((60, 15), (80, 24), (200, 60), (100, 90))
PLACEHOLDERS = {"processes": " per GPU", "command": "orchrun"}
"""The placeholders of empty fields, without the letter under the cursor."""
NASTY = (
    "[/b]",
    "[bold red]x",
    "x" * 10_000,
    "\x1b[31mred\x1b]0;t\x07!",
    "\u202eevil",
    "训练",
    "a\nb",
    "\udcff",
)
"""Texts that people and programs paste into forms."""


def styles_of(it: Form, text: str) -> list[Style]:
    strips = it.app.screen._compositor.render_strips()
    return [part.style for strip in strips for part in strip if text in part.text and part.style]


def assert_readable(it: Form, text: str) -> None:
    styles = styles_of(it, text)
    assert styles, (it.app.theme, text)
    for style in styles:
        assert style.color is not None and style.bgcolor is not None
        colours = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
        assert contrast(*colours) >= 4.5, (it.app.theme, text, colours)


@pytest.mark.slow
async def test_every_theme_and_every_size_draw_the_form_readably(tmp_path: Path) -> None:
    async with form(tmp_path) as it:
        await it.go("run")
        await it.pilot.press("right", "right")
        await it.until(lambda: is_shown(it.field("command")))
        for number, theme in enumerate(themes.load()):
            it.app.theme = theme
            await it.go("name")
            for size in SIZES if number == 0 else SIZES[-1:]:  # a theme changes colours, not places
                await resize(it.pilot, *size)
                await it.pilot.pause()
                assert any("▸ Name" in line for line in it.shown), (theme, size)
                assert any("Create" in line for line in it.shown), (theme, size)

            title = it.screen.query(FieldsTitle).first()
            (before,) = styles_of(it, "More: Worker image")
            title.focus()
            await it.pilot.pause()
            (after,) = styles_of(it, "More: Worker image")
            if theme not in COLOURED:
                assert after.reverse, "a focused heading differs in more than bold"
                continue
            assert after.bgcolor != before.bgcolor, theme
            for focused in ("name", *PLACEHOLDERS):
                await it.go(focused)
                for placeholder in PLACEHOLDERS.values():
                    assert_readable(it, placeholder)
            await it.app.push_screen(LoginScreen("User and password?", "For a repository."))
            await it.pilot.pause()
            assert_readable(it, "assword or token")
            await it.app.pop_screen()


@pytest.mark.slow
async def test_pasted_text_is_sanitized_and_invalid_values_are_marked_at_their_field(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await it.write("env", "A=1\rB=two words\r\rC=3\r")
        assert it.screen.model.result.spec.env == {"A": "1", "B": "two words", "C": "3"}
        assert it.field("env").value.split("\n")[:2] == ["A=1", "B=two words"]
        assert it.field("env").error == ""
        for text in ("one\rtwo", *NASTY):
            await it.write("name", text)
            assert it.field("name").error, text
            shown = "".join(it.shown)
            assert not set(shown) & {"\x1b", "\x07", "\u202e", "\udcff"}
            assert "✕" in shown
        await it.write("image", "A=/x\x1bc")
        assert it.field("image").error.startswith("Must not contain control characters; found ␛")
        await it.write("namespace", "[/b]")
        await it.create()
        assert it.field("namespace").error and it.posted == []
        for key, text in (("name", "one"), ("image", "mine"), ("namespace", "vision")):
            await it.write(key, text)
            assert it.field(key).error == ""
        await it.go("run")
        await it.pilot.press("right", "right")
        await it.write("command", "echo '[/b]' \u202e\npython train.py")
        assert any("echo '[/b]' <U+202E>" in line for line in it.shown)
        await it.create()
        assert it.master["command"] == ["sh", "-c", "echo '[/b]' <U+202E>\npython train.py"]
