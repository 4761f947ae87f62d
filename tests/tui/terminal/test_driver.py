"""Frames: changes of the cluster wait for one, effects of a key are painted at once."""

from __future__ import annotations

import pytest
from textual.screen import Screen

from tests.support.driver_app import Driven, rows_at
from tests.support.terminal import Terminal
from tui.terminal import driver

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
