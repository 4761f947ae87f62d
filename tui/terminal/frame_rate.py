"""When the next frame may be painted: at once after a key, seldom for what the cluster changes.

Every frame is bytes over SSH. A terminal that takes them slowly is noticed by how long its
bytes lie here, and gets fewer of them until it is fast again. All times are one clock's seconds.
"""

from __future__ import annotations

from math import inf

PERIOD_S = 0.1
"""Between two frames of what the cluster changes, on a terminal nearby."""
SLOW_PERIOD_S = 0.25
"""The same over SSH, and where writes block."""
TOGETHER_S = 0.004
"""What comes within so short a time is painted in one frame, also after a key."""
PRESS_S = 0.15
"""For how long after a key all is painted at once: what a key does, it does in several steps."""
PATIENCE_S = 2.0
"""For how long after a key its first frame is waited for, if whatever does it takes long."""
BLOCKED_S = 0.1
"""A terminal that takes longer than this for a frame is slow."""
RECOVERY_S = 5.0
"""For how long a terminal counts as slow after it was."""


class FrameRate:
    """The times that matter for the next frame."""

    def __init__(self, *, is_remote: bool, period_s: float = PERIOD_S) -> None:
        self._period_s = SLOW_PERIOD_S if is_remote else period_s
        self._pressed_s = self._painted_s = self._blocked_s = -inf

    def press(self, now_s: float) -> None:
        """Note that somebody waits for what comes next."""
        self._pressed_s = now_s

    def paint(self, now_s: float) -> None:
        """Note that a frame is painted."""
        self._painted_s = now_s

    def write(self, took_s: float, now_s: float) -> None:
        """Note how long the terminal took for what it was given."""
        if took_s > BLOCKED_S:
            self._blocked_s = now_s

    def period_s(self, now_s: float) -> float:
        """Return the least time between two frames that nobody asked for."""
        is_slow = now_s - self._blocked_s < RECOVERY_S
        return max(self._period_s, SLOW_PERIOD_S) if is_slow else self._period_s

    def due_s(self, now_s: float) -> float:
        """Return when what has changed now is to be painted."""
        since_press_s = now_s - self._pressed_s
        is_unanswered = self._painted_s < self._pressed_s and since_press_s < PATIENCE_S
        if since_press_s < PRESS_S or is_unanswered:
            return now_s + TOGETHER_S
        return max(now_s + TOGETHER_S, self._painted_s + self.period_s(now_s))
