"""A terminal that does not read: it loses nothing, blocks nothing and costs no memory."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.driver_app import Driven, rows_at
from tui.terminal.writer import LARGEST_CHARACTERS

COLUMNS, LINES = 200, 50
FRAMES_OF_A_MINUTE = 600
"""As many as are painted in a minute at ten a second; here they come faster."""
FAST_S = 0.005


@pytest.mark.slow
def test_keys_and_work_continue_in_bounded_memory_while_the_terminal_is_stalled() -> None:
    with Driven(period_s=FAST_S, columns=COLUMNS, lines=LINES) as terminal:
        terminal.wait_for("keys 0")
        with terminal.stalled():
            first = terminal.wait_to_be_told(lambda report: report["is_stuck"])
            before_kib = resident_kib(terminal.pid)
            enough = first["frames"] + FRAMES_OF_A_MINUTE
            terminal.wait_to_be_told(lambda report: report["frames"] > enough)
            grown_kib = resident_kib(terminal.pid) - before_kib
            terminal.send("xxx")
            terminal.wait_to_be_told(lambda report: report["keys"] == 3)
            terminal.send("s")
            halted = terminal.wait_to_be_told(lambda report: report["is_halted"])
        read_bytes = len(terminal.output)
        terminal.wait_for("keys 3")
        wanted = [line.rstrip() for line in rows_at(halted["ticks"], LINES).split("\n")]
        terminal.wait_for(lambda _: terminal.lines[1:] == wanted)
    assert len(terminal.output) - read_bytes <= 3 * LARGEST_CHARACTERS
    assert grown_kib < 16 * 1024


@pytest.mark.slow
def test_painting_resumes_when_a_stalled_terminal_reads_again() -> None:
    with Driven(period_s=FAST_S) as terminal:
        terminal.wait_for("keys 0")
        for count in (1, 2, 3):
            with terminal.stalled():
                told = terminal.wait_to_be_told(lambda report: report["is_stuck"])
                terminal.send("x")
                terminal.wait_to_be_told(lambda report, count=count: report["keys"] == count)  # type: ignore[misc]
            terminal.wait_for(f"keys {count}")
            terminal.wait_for(
                lambda screen, told=told: int(screen.split("\n")[1].split()[0]) > told["ticks"]  # type: ignore[misc]
            )


def test_a_signal_ends_the_console_while_the_terminal_is_stalled() -> None:
    with Driven(period_s=FAST_S) as terminal:
        terminal.wait_for("keys 0")
        with terminal.stalled():
            terminal.wait_to_be_told(lambda report: report["is_stuck"])
            terminal.signal(signal.SIGTERM)
            assert terminal.wait_for_end() == 143
            assert not terminal.is_raw


def test_a_terminal_hangup_ends_the_console() -> None:
    with Driven(period_s=FAST_S) as terminal:
        terminal.wait_for("keys 0")
        terminal.hang_up()
        assert terminal.wait_for_end() == 129


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
