"""A crash and an impatient second signal leave the terminal as it was; a lost one loses nothing typed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.driver_app import Driven

RESTORED = (b"\x1b[?1049l", b"\x1b[?25h")


def test_a_crash_reports_the_bug_without_secrets_and_restores_the_terminal() -> None:
    with Driven() as terminal:
        terminal.wait_for("keys 0")
        terminal.send("c")
        assert terminal.wait_for_end() == 1
        assert not terminal.is_raw
        assert b"this is a bug" in terminal.output
        assert b"a-token-of-somebody" not in terminal.output.replace(b'token = "a-token-of-somebody"', b"")
        for sequence in RESTORED:
            assert sequence in terminal.output


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_a_second_signal_ends_a_slow_shutdown_immediately(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with Driven(DRIVEN_WAITS_FOR=str(tmp_path / "never")) as terminal:
        terminal.wait_for("keys 0")
        terminal.signal(signal.SIGTERM)
        terminal.wait_to_be_told(lambda report: "is_ending" in report)
        terminal.signal(number)
        assert terminal.wait_for_end() == code
        assert not terminal.is_raw
        for sequence in RESTORED:
            assert sequence in terminal.output


def test_a_second_hangup_does_not_interrupt_saving(tmp_path: Path) -> None:
    may_end = tmp_path / "go on"
    with Driven(DRIVEN_WAITS_FOR=str(may_end)) as terminal:
        terminal.wait_for("keys 0")
        terminal.signal(signal.SIGHUP)
        terminal.wait_to_be_told(lambda report: "is_ending" in report)
        terminal.signal(signal.SIGHUP)
        may_end.touch()
        terminal.wait_to_be_told(lambda report: "is_ended" in report)
        assert terminal.wait_for_end() == 129
