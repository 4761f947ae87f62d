"""Scalars printed by a job: one point per step, however many ranks print it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from k8s.logs import LogLine
from k8s.logs.training_lines import TrainingLineReader
from trainer.tfevents import Columns, ScalarCurve, ScalarSeries

# A step that another rank prints later than this belongs to a new run.
REPEATED_WITHIN_NS = 60 * 10**9
# Steps of each scalar in which repetitions are detected.
REMEMBERED_STEPS = 512

# A script that numbers its scalar names would make charts without end.
MAX_TAGS = 128


class LogPoints:
    """Scalars by name, from the lines of one log."""

    def __init__(self) -> None:
        self.series: dict[str, ScalarSeries] = {}
        self._reader = TrainingLineReader()
        self._seen_ns: dict[str, dict[int, int]] = {}
        # Scalars that only bars have shown so far.
        self._of_bars: set[str] = set()

    def add(self, lines: Iterable[LogLine]) -> bool:
        """Add lines; return True if they held points.

        If lines name their rank, only those of the first rank count. If ranks share a log without
        naming themselves, the first to print a step counts.
        """
        has_news = False
        for line in lines:
            # The ranks of its pod may be assumed, but there is only one rank 0.
            if line.rank not in (None, 0, min(line.source.ranks, default=0)):
                continue
            is_shared = line.rank is None and (len(line.source.ranks) != 1 or line.source.prints_all_ranks)
            for point in self._reader.read(line.text):
                if self._of_bars and self._reader.has_inner_bars:
                    for tag in self._of_bars:
                        self.series.pop(tag, None)
                    self._of_bars.clear()
                for tag, value in point.scalars:
                    if point.is_bar and tag not in self.series:
                        self._of_bars.add(tag)
                    elif not point.is_bar:
                        self._of_bars.discard(tag)
                    if tag not in self.series and len(self.series) >= MAX_TAGS:
                        continue
                    if is_shared and self._is_repeated(tag, point.step, line.stamp_ns):
                        continue
                    where = array("q", [point.step]), array("d", [line.stamp_ns / 1e9]), array("d", [value])
                    self.series.setdefault(tag, ScalarSeries()).extend(Columns(tag, *where))
                    has_news = True
        return has_news

    def _is_repeated(self, tag: str, step: int, now_ns: int) -> bool:
        # Also records the step as seen.
        seen_ns = self._seen_ns.setdefault(tag, {})
        if step in seen_ns and now_ns - seen_ns[step] <= REPEATED_WITHIN_NS:
            return True
        seen_ns.pop(step, None)
        seen_ns[step] = now_ns
        if len(seen_ns) > REMEMBERED_STEPS:
            del seen_ns[next(iter(seen_ns))]
        return False


def log_curves(lines: Iterable[LogLine]) -> list[ScalarCurve]:
    """Return the curves in lines of a log."""
    points = LogPoints()
    points.add(lines)
    return [
        ScalarCurve(".", tag, "log", each.steps, each.wall_times, each.values, tuple(each.restarts))
        for tag, each in points.series.items()
    ]
