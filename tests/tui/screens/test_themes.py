"""Themes in the console: chosen with a live preview, kept for the next time, and never in the way."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

import themes
from tests import ROOT
from tests.support.playground import console_on, kubeconfig_of, some_objects
from tests.support.terminal import Terminal
from tui.commands.console import choose_theme
from tui.runs.journal.choices import read_theme, store_theme
from tui.runs.journal.database import Journal
from tui.screens.dialogs.themes import ThemesScreen
from tui.screens.lists.jobs import JobsView
from tui.settings.options import ConsoleOptions
from tui.terminal.tty_state import Colours

NAMES = list(themes.load())


@pytest.mark.slow
async def test_the_cursor_shows_a_theme_and_enter_keeps_it(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("# mine\naccelerators: [a.com/b]  # those too\n")
    async with console_on(tmp_path, config_folder=tmp_path, **some_objects()) as play:
        await play.press("colon", *"theme", "enter", shows=ThemesScreen)
        assert play.table.cursor_key == play.console.theme == themes.DEFAULT
        assert all(themes.short(name) in play.text for name in NAMES)
        await play.press("g")
        seen = [play.console.theme]
        for _ in NAMES[1:]:
            await play.press("j")
            seen.append(play.console.theme)
        assert seen == NAMES
        assert read_theme(Journal(tmp_path / "state"), "none") == "none"
        await play.press("enter", shows=JobsView)
        assert play.console.theme == NAMES[-1]
    assert read_theme(Journal(tmp_path / "state"), "") == themes.short(NAMES[-1])
    assert config.read_text() == "# mine\naccelerators: [a.com/b]  # those too\n"


@pytest.mark.slow
async def test_esc_brings_back_the_theme_there_was_and_a_name_is_worn_for_now(tmp_path: Path) -> None:
    async with console_on(tmp_path, config_folder=tmp_path, theme="safe", **some_objects()) as play:
        assert play.console.theme == "gpuconsole-safe"
        await play.press("colon", *"theme", "enter", "k")
        assert play.console.theme != "gpuconsole-safe"
        await play.press("escape")
        assert play.console.theme == "gpuconsole-safe"
        assert isinstance(play.console.screen, JobsView)
        await play.press("colon", *"theme", "space", *"contrast-light", "enter")
        assert play.console.theme == "gpuconsole-contrast-light"
        await play.press("colon", *"theme", "space", *"nothing", "enter", shows="No theme 'nothing'.")
        assert play.console.theme == "gpuconsole-contrast-light"
        assert read_theme(Journal(tmp_path / "state"), "none") == "none"


async def test_a_theme_that_cannot_be_saved_is_applied_and_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    state = tmp_path / "file" / "state"
    async with console_on(tmp_path, state_folder=state, config_folder=tmp_path, **some_objects()) as play:
        await play.press("colon", *"theme", "enter", "g", "j", "enter", shows=JobsView)
        assert play.console.theme == NAMES[1]
        await play.until(lambda: "The theme could not be saved." in play.text)
        assert any("Not a directory" in each.message for each in play.console._notifications)


async def test_a_malformed_user_theme_is_reported_and_the_others_still_load(tmp_path: Path) -> None:
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "broken.toml").write_text("primary = [/b]")
    (tmp_path / "themes" / "mine.toml").write_text('parent = "gpuconsole-light"\nprimary = "#ff00ff"\n')
    async with console_on(
        tmp_path, config_folder=tmp_path, theme="mine", kept_theme="gone", **some_objects()
    ) as play:
        assert play.console.theme == "mine"
        await play.until(lambda: "Some of your themes are not used." in play.text)
        said = play.text.replace("│", "")
        assert "broken.toml, line 1" in "".join(said.split("\n")) or "broken.toml," in said
        assert "There is no theme gone." in " ".join(said.split())


@pytest.mark.slow
async def test_every_theme_draws_every_part(tmp_path: Path) -> None:
    async with console_on(tmp_path, size=(60, 15), **some_objects()) as play:
        await play.press("N")
        for keys, words in (
            ("tab", "Nodes (2)"),
            ("escape g enter", "Jobs › bert"),
            ("escape ctrl+d", "Delete 1 job?"),
            ("escape question_mark", "enter"),
        ):
            await play.press(*keys.split())
            for name in NAMES:
                play.console.theme = name
                await play.until(lambda words=words: words in play.text)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("asked", "is_mono", "colours", "kept", "chosen"),
    [
        ("", False, "true", "", ""),
        ("", False, "256", "safe", "gpuconsole-safe"),
        ("light", False, "true", "safe", "gpuconsole-light"),
        ("gpuconsole-light", False, "true", "", "gpuconsole-light"),
        ("", False, "none", "safe", "gpuconsole-mono"),
        ("light", False, "none", "safe", "gpuconsole-light"),
        ("", True, "true", "safe", "gpuconsole-mono"),
        ("light", True, "true", "safe", "gpuconsole-mono"),
        ("", False, "16", "", "gpuconsole-ansi"),
        ("", False, "16", "safe", "gpuconsole-ansi"),
        ("", False, "16", "mono", "gpuconsole-mono"),
        ("safe", False, "16", "", "gpuconsole-safe"),
        ("", False, "true", "gone", ""),
    ],
)
def test_the_theme_flag_precedes_terminal_capabilities_and_the_saved_theme(
    tmp_path: Path, asked: str, is_mono: bool, colours: Colours, kept: str, chosen: str
) -> None:
    options = ConsoleOptions(theme=asked, is_mono=is_mono, kept_theme=kept, config_folder=tmp_path)
    assert choose_theme(options, colours) == chosen


def test_a_deleted_saved_theme_falls_back_to_the_configured_theme(tmp_path: Path) -> None:
    options = ConsoleOptions(kept_theme="gone", config_theme="safe", config_folder=tmp_path)
    assert choose_theme(options, "true") == "gpuconsole-safe"


def test_an_unknown_theme_is_a_usage_error_that_lists_the_themes(tmp_path: Path) -> None:
    (tmp_path / "gpuconsole" / "themes").mkdir(parents=True)
    (tmp_path / "gpuconsole" / "themes" / "mine.toml").write_text('parent = "gpuconsole-dark"')
    env = {**os.environ, "TERM": "xterm-256color", "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with Terminal([sys.executable, "-P", "-m", "tui", "--theme", "sfae"], env=env) as console:
        assert console.wait_for_end() == 2
        assert "There is no theme 'sfae'." in console.text
        assert (
            "There are: dark, light, contrast, contrast-light, safe, safe-light, ansi, mono, mine"
            in console.text
        )


COLOURED = re.compile(rb"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said", "kept", "is_coloured"),
    [
        ((), {"NO_COLOR": "1"}, "", False),
        (("--mono",), {}, "", False),
        (("--theme", "dark"), {"NO_COLOR": "1"}, "", True),
        ((), {}, "mono", False),
        (("--theme", "dark"), {}, "mono", True),
    ],
)
def test_no_colour_is_sent_when_disabled_by_environment_flag_or_saved_theme(
    tmp_path: Path, words: tuple[str, ...], said: dict[str, str], kept: str, is_coloured: bool
) -> None:
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig_of("http://127.0.0.1:1")))
    folders = {name: str(tmp_path) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    if kept:
        store_theme(Journal(tmp_path / "gpuconsole"), kept, "")
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM")}
    env |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **folders, **said}
    command = [sys.executable, "-P", "-m", "tui", "--kubeconfig", str(tmp_path / "kubeconfig"), *words]
    with Terminal(command, env=env) as console:
        console.wait_for("Jobs")
        console.send(":q")
        console.wait_for(":quit")  # what is typed, and the cursor on what is suggested
        console.send("\r")
        assert console.wait_for_end() == 0
        assert bool(COLOURED.search(bytes(console.output))) is is_coloured
