"""Columns and settings of contexts in config.yaml, in commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.commands.conftest import CommandLine


@pytest.fixture
def config(run: CommandLine) -> Path:
    path = Path(run.home) / "config" / "gpuconsole" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


async def test_list_prints_the_chosen_columns(run: CommandLine, config: Path) -> None:
    config.write_text("columns: {jobs: [gpus, name, {title: TEAM, path: .metadata.labels.team}, duration]}\n")
    wide = (await run("list", "-o", "wide")).out.splitlines()[0].split()
    assert wide == ["GPUS", "NAME", "TEAM", "DURATION"]
    assert (await run("list", "-o", "csv")).out.splitlines()[0] == "gpus,name,TEAM,duration_s"
    assert (await run("list")).out.split()[0] != "GPUS"
    assert "TEAM" not in (await run("list", "-o", "json")).values["items"][0]


async def test_commands_respect_the_context(run: CommandLine, config: Path) -> None:
    config.write_text("contexts: {'*': {readonly: true, namespace: nowhere}}\n")
    refused = await run("delete", "anything", "--yes")
    assert refused.status == 1 and "Changes are disabled by config.yaml in this context." in refused.err
    assert "nowhere" in (await run("list")).err
    assert "nowhere" not in (await run("-n", "default", "list")).err
