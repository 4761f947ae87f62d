"""However a terminal's window is dragged, the console paints its last size right and keeps its place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load.running import LoadServer
from tests.support.terminal import Terminal

JOBS = 12
STORM = [(200, 60), (20, 5), (1, 1), (120, 40), (1, 60), (200, 2), (60, 15), (59, 14), (80, 24), (33, 7)] * 5
"""Sizes that a window takes while it is dragged."""


@pytest.fixture(scope="module")
def server() -> Iterator[LoadServer]:
    with LoadServer(nodes=4, jobs=JOBS, lifetime_s=240) as server:
        yield server


@pytest.fixture
def console(server: LoadServer, tmp_path: Path) -> Iterator[Terminal]:
    homes = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("DATA", "STATE", "CONFIG", "CACHE")}
    env = {**os.environ, **homes, "TERM": "xterm-256color"}
    words = [sys.executable, "-P", "-m", "tui", "-A", "--kubeconfig", str(server.kubeconfig)]
    with Terminal(words, columns=100, lines=40, env=env) as terminal:
        terminal.wait_for(chosen)
        yield terminal


@pytest.mark.slow
def test_after_many_resizes_the_last_size_is_painted_and_the_cursor_is_kept(console: Terminal) -> None:
    console.send("G")
    console.wait_for(lambda screen: len(rows(screen)) == JOBS and chosen(screen) == rows(screen)[-1])
    there = rows(console.text)
    console.send("kk")
    console.wait_for(lambda screen: chosen(screen) == there[-3])
    for columns, lines in STORM:
        console.resize(columns, lines)
        console.read_some(0.01)
    console.resize(110, 40)
    console.wait_for(lambda screen: rows(screen) == there and chosen(screen) == there[-3])
    console.wait_for(
        lambda screen: [number for number, line in enumerate(screen.split("\n")) if "command" in line] == [39]
    )
    console.send("k")
    console.wait_for(lambda screen: chosen(screen) == there[-4])


def rows(screen: str) -> list[str]:
    """Return the numbers that the jobs of the list end with; the cells of a node follow its name at once."""
    return re.findall(r"^ [●* ]?[▸ ]? ?[\w…-]+?-(\d{4})  ", screen, re.M)


def chosen(screen: str) -> str:
    found = re.search(r"▸ [\w…-]+?-(\d{4})\b", screen)
    return found[1] if found else ""
