"""Timing of frames."""

from __future__ import annotations

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
