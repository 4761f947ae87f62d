"""ctrl+z gives the terminal to the shell, fg takes it again and paints all of it."""

from __future__ import annotations

import signal

from tests.support.driver_app import Driven, rows_at
from tests.support.terminal import Terminal

CTRL_Z = "\x1a"
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h")
TAKEN = b"\x1b[?1049h"


def test_ctrl_z_restores_the_terminal_and_fg_repaints_the_screen_repeatedly() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        assert terminal.is_raw
        terminal.send(CTRL_Z)
        terminal.wait_for_stop()
        assert not terminal.is_raw
        for sequence in RESTORED:
            assert sequence in terminal.output
        terminal.output.clear()
        come_back(terminal)
        terminal.wait_for("keys 0")
        assert terminal.is_raw
        assert TAKEN in terminal.output
        for count in (1, 2):
            terminal.send("x", shows=f"keys {count}")
            terminal.send(CTRL_Z)
            terminal.wait_for_stop()
            come_back(terminal)
        terminal.send("x", shows="keys 3")
        terminal.signal(signal.SIGSTOP)  # from outside: the terminal stays as it is
        terminal.wait_for_stop()
        come_back(terminal)
        terminal.wait_for("keys 3")
        assert terminal.is_raw
        terminal.send("xxx", shows="keys 6")
        wait_for_rows(terminal)


def test_a_suspended_console_ends_on_resume_after_a_sigterm() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        terminal.send(CTRL_Z)
        terminal.wait_for_stop()
        terminal.signal(signal.SIGTERM)
        terminal.signal(signal.SIGCONT)
        assert terminal.wait_for_end() == 143
        assert not terminal.is_raw
        assert terminal.output.rstrip().rfind(TAKEN) < terminal.output.rfind(RESTORED[0])


def test_nothing_is_written_after_the_terminal_was_restored_even_when_stalled() -> None:
    with Driven(period_s=0.005) as terminal:
        terminal.wait_for("keys 0")
        terminal.send(CTRL_Z)
        terminal.wait_for_stop()
        after = bytes(terminal.output).rpartition(RESTORED[0])[2]
        assert after.replace(b"\x1b[?25h", b"").replace(b"\x1b[?1004l", b"") == b""
        come_back(terminal)
        terminal.wait_for("keys 0")
        with terminal.stalled():
            terminal.wait_to_be_told(lambda report: report["is_stuck"])
            terminal.send(CTRL_Z)
            terminal.wait_for_stop()
            assert not terminal.is_raw
        come_back(terminal)
        terminal.send("x", shows="keys 1")
        wait_for_rows(terminal)


def come_back(terminal: Terminal) -> None:
    """Do what fg does, seen by a screen that shows nothing of before."""
    terminal.clear()
    terminal.signal(signal.SIGCONT)


def wait_for_rows(terminal: Driven) -> None:
    """Stop the changes and wait until the last rows are painted."""
    terminal.send("s")
    halted = terminal.wait_to_be_told(lambda report: report["is_halted"])
    wanted = [line.rstrip() for line in rows_at(halted["ticks"], 24).split("\n")]
    terminal.wait_for(lambda _: terminal.lines[1:] == wanted)
