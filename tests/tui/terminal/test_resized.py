"""Frames: paced, at once after a key, and in the window's last size however it is dragged."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.screen import Screen

from tests.load.running import LoadServer
from tests.support.driver_app import Driven, rows_at
from tests.support.terminal import Terminal
from tui.terminal import driver
from tui.terminal.driver import (
    BLOCKED_S,
    PATIENCE_S,
    PERIOD_S,
    PRESS_S,
    RECOVERY_S,
    SLOW_PERIOD_S,
    TOGETHER_S,
    FrameRate,
)

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


def test_the_first_change_is_painted_immediately_and_later_ones_at_ten_frames_per_second() -> None:
    rate = FrameRate(is_remote=False)
    assert rate.due_s(100.0) == 100.0 + TOGETHER_S
    rate.paint(100.0)
    assert rate.due_s(100.01) == 100.0 + PERIOD_S == 100.1
    assert rate.due_s(103.0) == 103.0 + TOGETHER_S


def test_over_ssh_the_frame_rate_is_four_per_second() -> None:
    rate = FrameRate(is_remote=True)
    rate.paint(100.0)
    assert rate.due_s(100.01) == 100.0 + SLOW_PERIOD_S == 100.25


def test_changes_after_a_key_never_wait_for_the_next_frame() -> None:
    rate = FrameRate(is_remote=True)
    rate.paint(100.0)
    rate.press(100.01)
    assert rate.due_s(100.02) == 100.02 + TOGETHER_S
    rate.paint(100.03)
    assert rate.due_s(100.05) == 100.05 + TOGETHER_S
    rate.paint(100.05)
    assert rate.due_s(100.01 + PRESS_S) == 100.05 + SLOW_PERIOD_S


def test_a_slow_key_response_is_painted_immediately_until_a_time_limit() -> None:
    rate = FrameRate(is_remote=False, period_s=60)
    rate.paint(100.0)
    rate.press(100.1)
    long_s = 100.1 + 5 * PRESS_S
    assert rate.due_s(long_s) == long_s + TOGETHER_S
    rate.paint(long_s)
    assert rate.due_s(long_s + 0.01) == long_s + 60
    rate.press(110.0)
    assert rate.due_s(110.0 + PATIENCE_S - 0.01) == 110.0 + PATIENCE_S - 0.01 + TOGETHER_S
    assert rate.due_s(110.0 + PATIENCE_S + 0.01) == long_s + 60


def test_a_terminal_that_blocks_gets_fewer_frames_until_it_is_fast_again() -> None:
    rate = FrameRate(is_remote=False)
    rate.write(BLOCKED_S / 2, 100.0)
    assert rate.period_s(100.0) == PERIOD_S
    rate.write(BLOCKED_S * 2, 101.0)
    rate.write(BLOCKED_S / 2, 102.0)
    assert rate.period_s(102.0) == SLOW_PERIOD_S
    assert rate.period_s(101.0 + RECOVERY_S) == PERIOD_S


def test_a_slow_terminal_is_never_made_faster_by_being_blocked() -> None:
    rate = FrameRate(is_remote=False, period_s=60)
    rate.write(1, 100.0)
    assert rate.period_s(100.0) == 60


AN_HOUR_S = 3600.0


@pytest.mark.slow
def test_a_key_is_painted_immediately_while_background_changes_wait_for_a_frame() -> None:
    with Driven(period_s=AN_HOUR_S) as terminal:
        terminal.wait_for("keys 0")
        terminal.wait_to_be_told(lambda report: report["ticks"] > 500)
        _read_all(terminal)
        told = terminal.wait_to_be_told(lambda report: report["ticks"] > 1000)
        again = terminal.wait_to_be_told(lambda report: report["ticks"] > told["ticks"] + 500)
        assert again["frames"] == told["frames"]
        terminal.send("x", shows="keys 1")
        terminal.wait_for(lambda screen: shown_ticks(screen) > again["ticks"] - 500)
        terminal.send("x" * 50, shows="keys 51")


def test_the_screen_finally_shows_every_change() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        terminal.send("s")
        halted = terminal.wait_to_be_told(lambda report: report["is_halted"])
        terminal.wait_for(lambda _: "\n".join(terminal.lines[1:]) == _shown(halted["ticks"]))


def test_textual_still_has_the_update_timer_that_the_driver_replaces() -> None:
    screen: Screen[None] = Screen()
    timer = object()
    setattr(screen, driver._TIMER, timer)
    assert screen._update_timer is timer
    assert callable(screen._on_timer_update)


def shown_ticks(screen: str) -> int:
    words = screen.split("\n")[1].split()
    return int(words[0]) if words else 0


def _shown(ticks: int) -> str:
    return "\n".join(line.rstrip() for line in rows_at(ticks, 24).split("\n"))


def _read_all(terminal: Terminal) -> None:
    while terminal.read_some():
        pass
