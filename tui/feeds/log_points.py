"""The scalars that a job prints: one point a step, however many ranks print it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from k8s.logs import LogLine
from trainer.tfevents import Columns, ScalarSeries
from tui.text.training_lines import TrainingLineReader

REPEATED_WITHIN_NS = 60 * 10**9
"""How much later than the first rank another one may print a step; what comes later began anew."""
REMEMBERED_STEPS = 512
"""Of each scalar, those in which a repeated one is looked for."""

MOST_TAGS = 128
"""Scalars that are taken from a log: a script that numbers its names would make charts without end."""


class LogPoints:
    """Scalars by name, from the lines of one log."""

    def __init__(self) -> None:
        self.series: dict[str, ScalarSeries] = {}
        """What was found so far, by name."""
        self._reader = TrainingLineReader()
        self._seen_ns: dict[str, dict[int, int]] = {}

    def add(self, lines: Iterable[LogLine]) -> bool:
        """Take further lines; return whether they held points.

        Of several ranks that say who they are, the first one's lines count. Where ranks share a log
        without saying so, the first to print a step counts.
        """
        has_news = False
        for line in lines:
            if line.rank not in (None, min(line.source.ranks, default=0)):
                continue
            is_shared = line.rank is None and (len(line.source.ranks) != 1 or line.source.prints_all_ranks)
            for point in self._reader.read(line.text):
                for tag, value in point.scalars:
                    if tag not in self.series and len(self.series) >= MOST_TAGS:
                        continue
                    if is_shared and self._is_repeated(tag, point.step, line.stamp_ns):
                        continue
                    where = array("q", [point.step]), array("d", [line.stamp_ns / 1e9]), array("d", [value])
                    self.series.setdefault(tag, ScalarSeries()).extend(Columns(tag, *where))
                    has_news = True
        return has_news

    def _is_repeated(self, tag: str, step: int, now_ns: int) -> bool:
        """Tell whether another rank printed a step just before; note it otherwise."""
        seen_ns = self._seen_ns.setdefault(tag, {})
        if step in seen_ns and now_ns - seen_ns[step] <= REPEATED_WITHIN_NS:
            return True
        seen_ns.pop(step, None)
        seen_ns[step] = now_ns
        if len(seen_ns) > REMEMBERED_STEPS:
            del seen_ns[next(iter(seen_ns))]
        return False
