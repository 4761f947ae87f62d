"""How far a log has been read, so that reading it again gives each line once.

The API takes up a log at a whole second (`sinceTime`), so the first lines that come were read
before. They are known by their nanosecond stamps, and several with the same stamp by counting.
That at least one of them comes again proves that nothing between is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from k8s.logs.lines import Piece, rfc3339

_NS = 1_000_000_000

SLACK_S = 1
"""How much earlier than the last line is read again: two streams of a process may pass each other."""


class Cursor:
    """What was read of one run of one container."""

    def __init__(self) -> None:
        self.last_ns = 0
        """The newest time read; 0 when no line was."""
        self.missing_since_ns = 0
        """The last time before a hole in what was read; 0 when there is none."""
        self._first_ns = 0
        self._seen: dict[int, int] = {}
        self._floor_ns = 0
        self._expected: dict[int, int] | None = None
        self._has_overlap = True

    def since_time(self) -> str:
        """Return where to take up the log again, and expect what was read before; empty to begin."""
        if not self.last_ns:
            return ""
        second = self.last_ns // _NS - SLACK_S
        self._expected = {stamp: count for stamp, count in self._seen.items() if stamp >= second * _NS}
        self._has_overlap = False
        self.missing_since_ns = 0
        return rfc3339(second)

    @property
    def is_resumed(self) -> bool:
        """Tell whether a log was taken up again, not begun."""
        return self._expected is not None

    @property
    def knows(self) -> bool:
        """Tell whether, since the last `since_time`, it is known if anything is missing."""
        return self._has_overlap or self.missing_since_ns > 0

    def take(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Return those lines that were not read before."""
        fresh = list(pieces) if self._expected is None else self._unexpected(pieces)
        seen, last_ns = self._seen, self.last_ns
        for piece in fresh:
            stamp_ns = piece.stamp_ns
            if stamp_ns:
                seen[stamp_ns] = seen.get(stamp_ns, 0) + 1
                if stamp_ns > last_ns:
                    last_ns = stamp_ns
        if last_ns and not self._first_ns:
            self._first_ns = next(piece.stamp_ns for piece in fresh if piece.stamp_ns)
        self.last_ns = last_ns
        floor_ns = (last_ns // _NS - SLACK_S) * _NS
        if floor_ns > self._floor_ns:
            self._floor_ns = floor_ns
            self._seen = {stamp: count for stamp, count in seen.items() if stamp >= floor_ns}
        return fresh

    def _unexpected(self, pieces: Iterable[Piece]) -> list[Piece]:
        expected = self._expected if self._expected is not None else {}
        fresh = []
        for piece in pieces:
            stamp_ns = piece.stamp_ns
            if count := expected.get(stamp_ns, 0):
                expected[stamp_ns] = count - 1
                self._has_overlap = True
            # Older than where the first reading began: cut off then by `tail`.
            elif not stamp_ns or stamp_ns >= self._first_ns:
                if stamp_ns and not self._has_overlap and not self.missing_since_ns:
                    self.missing_since_ns = self.last_ns
                fresh.append(piece)
        return fresh
