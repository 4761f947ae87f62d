"""The new-job screen: whatever is pasted, in every theme and size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import themes
from tests.tui.screens.new_job.world import (
    ECHO,
    JOBS,
    form,
)


async def test_several_pasted_lines_are_several_variables(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        for end in ("\r", "\n", "\r\n"):
            await it.write("env", f"A=1{end}B=two words{end}{end}C=3{end}")
            assert it.screen.model.result.spec.env == {"A": "1", "B": "two words", "C": "3"}
            assert it.field("env").value.split("\n")[:2] == ["A=1", "B=two words"]
            assert it.field("env").error == ""
            await it.write("name", f"one{end}two")
            assert it.field("name").error
            await it.write("env", "")
            await it.write("name", "one")
            assert it.field("name").error == ""


async def test_a_pasted_control_character_is_refused_at_its_field(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO) as it:
        for key in ("env", "image", "mount_path"):
            await it.write(key, "A=/x\x1bc")
            assert it.field(key).error.startswith("Must not contain control characters; found ␛"), key


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
"""What people and programs paste into forms."""


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_anything_pasted_is_harmless_and_its_error_is_clear(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with form(tmp_path, ECHO, size=size) as it:
        for text in NASTY:
            await it.write("name", text)
            assert it.field("name").error, text
            shown = "".join(it.shown())
            assert not set(shown) & {"\x1b", "\x07", "\u202e", "\udcff"}
            assert "✕" in shown
        for key in ("gpus", "env", "namespace"):
            await it.write(key, "[/b]")
            assert it.field(key).error, key
        await it.create()
        assert it.cluster.asked(JOBS, method="POST") == []


async def test_a_command_may_say_anything_and_is_shown_as_it_is(tmp_path: Path) -> None:
    async with form(tmp_path, ECHO, size=(120, 40)) as it:
        await it.go("run")
        await it.pilot.press("right", "right")
        await it.write("command", "echo '[/b]' \u202e\npython train.py")
        assert any("echo '[/b]' <U+202E>" in line for line in it.shown())
        await it.create()
        made = json.loads(it.cluster.asked(JOBS, method="POST")[0].body)
        container = made["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        assert container["command"] == ["sh", "-c", "echo '[/b]' <U+202E>\npython train.py"]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60)])
async def test_the_form_is_drawn_in_every_theme_and_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async with form(tmp_path, size=size) as it:
        for theme in themes.load():
            it.app.theme = theme
            await it.pilot.pause()
            assert any("▸ Name" in line for line in it.shown())
            assert any("Create" in line for line in it.shown())
