"""Lists with the columns of config.yaml, aliases, and settings that follow the context."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import themes
from k8s.models.base import keep_annotations
from tests.support.playground import Playground, some_objects
from tests.support.playground import console_on as one_console
from tests.tui.screens.test_contexts import console_on
from tui.settings.options import Alias, ContextSettings, OwnColumn
from tui.tables.column import annotations_in

NOTE = OwnColumn("NOTE", "metadata.annotations['example.com/note']")
TEAM = OwnColumn("TEAM", ".metadata.labels.team")
PROD = (
    ContextSettings(pattern="prod*", read_only=True, namespace="train", theme="light"),
    ContextSettings(pattern="*", theme="nowhere"),
)


def labelled() -> dict[str, Any]:
    """Return objects with labels, and an annotation that is not for a terminal."""
    found: dict[str, Any] = json.loads(json.dumps(some_objects()))
    for each in (*found["jobs"], *found["nodes"], *found["pods"]):
        each["metadata"].setdefault("labels", {})["team"] = "vision"
        each["metadata"]["annotations"] = {
            "example.com/note": "\x1b[31mred\n[bold]",
            "example.com/other": "x",
        }
    return found


def has_titles(play: Playground, found: list[str]) -> bool:
    return titles(play) == found


def titles(play: Playground) -> list[str]:
    return [column.title for column in play.table.columns]


async def test_lists_have_the_chosen_columns(tmp_path: Path) -> None:
    columns: dict[str, tuple[str | OwnColumn, ...]] = {
        "jobs": ("priority", "name", TEAM, NOTE, OwnColumn("WHO", ".user")),
        "nodes": ("status", TEAM, "name"),
        "pods": ("name", TEAM, NOTE),
        "events": ("type", "age"),
    }
    keep_annotations(annotations_in(columns))
    try:
        async with one_console(tmp_path, **labelled(), columns=columns) as play:
            assert titles(play) == ["PRIORITY", "NAME", "TEAM", "NOTE", "WHO"]
            assert "vision" in play.text and "red␊[bold]" in play.text
            await play.press("c")
            assert play.console.screen.copy_text() in ("bert", "waits")  # type: ignore[attr-defined]
            for command, found in (
                ("nodes", ["STATUS", "TEAM", "NODE"]),
                ("pods", ["NAME", "TEAM", "NOTE"]),
                ("events", ["TYPE", "AGE"]),
            ):
                await play.press("colon", *command, "enter")
                await play.until(partial(has_titles, play, found))
                if command != "events":
                    await play.until(lambda: "vision" in play.text)
    finally:
        keep_annotations(())


def test_only_wanted_annotations_are_kept() -> None:
    assert annotations_in({"jobs": ("name", NOTE, TEAM)}) == {"example.com/note"}


async def test_aliases_are_commands(tmp_path: Path) -> None:
    aliases = {"no1": Alias("nodes", 2), "bb": Alias("jobs", 3), "q": Alias("nodes", 4), "x": Alias("svc", 5)}
    async with one_console(tmp_path, **some_objects(), aliases=aliases) as play:
        assert "line 4, aliases: :q is a command already." in " ".join(play.text.replace("│", "").split())
        assert "line 5, aliases: x: there is no command :svc." in " ".join(play.text.replace("│", "").split())
        await play.press("escape", "colon", *"no1", "enter")
        assert "Nodes (2)" in play.text
        await play.press("colon", *"bb /wai", "enter")
        assert "/wai" in play.text
        await play.press("colon", "x", "enter")
        assert "Unknown command :svc." in play.text
        await play.press("ctrl+a", "G")
        assert "Your own: svc" in play.text


@pytest.mark.slow
async def test_settings_follow_the_context(tmp_path: Path) -> None:
    async with console_on(tmp_path, "lab", "prod", contexts=PROD) as clusters:
        play = clusters.play
        assert "There is no theme nowhere." in play.text
        await play.press("escape")
        await clusters.command("theme contrast")
        chosen = play.console.theme
        await clusters.command("ctx prod")
        await play.until(lambda: "prod / train" in clusters.header)
        assert "read-only" in clusters.header and play.console.theme == themes.find(
            "light", play.console.palettes
        )
        await play.press("n")
        assert "Changes are disabled by config.yaml in this context." in play.text
        await clusters.command("new")
        assert "Changes are disabled by config.yaml in this context." in play.text
        await clusters.command("ctx lab")
        await clusters.until_shown("lab", "job-lab")
        assert "read-only" not in clusters.header and play.console.theme == chosen
        await clusters.command("ctx prod")
        await play.until(lambda: "read-only" in clusters.header)


async def test_a_flag_counts_more_than_the_context(tmp_path: Path) -> None:
    contexts = (ContextSettings(pattern="*", read_only=False, namespace="x", theme="light"),)
    options: dict[str, Any] = {"is_read_only": True, "is_theme_fixed": True, "contexts": contexts}
    async with console_on(tmp_path, "lab", "prod", **options) as clusters:
        theme = clusters.play.console.theme
        await clusters.command("ctx prod")
        await clusters.play.until(lambda: "prod / x" in clusters.header)
        assert "read-only" in clusters.header and clusters.play.console.theme == theme
