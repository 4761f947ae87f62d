"""How far the server's clock is ahead of ours, from the `Date` of its answers."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

SLACK_S = 2.0
"""Differences below this are jitter: `Date` has whole seconds, and answers take their time."""


class ServerClock:
    """The newest estimate. It moves only when two answers in a row agree that it is wrong."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        """Seconds to add to our clock to have the server's."""
        self._doubt: tuple[float, float] | None = None

    def observe(self, date: str, sent_s: float, received_s: float) -> None:
        """Take the `Date` of one answer, and when by our clock (`time.time`) it was asked for and came.

        The server wrote it between the two, and cut off what was more than a whole second:
        so its clock is ahead by something between two bounds.
        """
        try:
            parsed = parsedate_to_datetime(date)
            written_s = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        least_s, most_s = written_s - received_s, written_s + 1 - sent_s
        if received_s < sent_s or least_s - SLACK_S <= self.offset_s <= most_s + SLACK_S:
            self._doubt = None
            return
        if self._doubt is not None:
            low_s, high_s = max(least_s, self._doubt[0]), min(most_s, self._doubt[1])
            if low_s <= high_s + SLACK_S:
                self.offset_s = (low_s + high_s) / 2
                self._doubt = None
                return
        self._doubt = (least_s, most_s)
