"""One measured comparison, and how it is printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What we need for some work, what the peer needs, and what was promised."""

    work: str
    ours_s: float
    peer: str
    peer_s: float
    promised: str
    """In words, as DESIGN has it."""

    def __str__(self) -> str:
        ratio = self.peer_s / self.ours_s if self.ours_s else float("inf")
        return (
            f"{self.work:<46} {_words(self.ours_s):>10}   {self.peer:<36} {_words(self.peer_s):>10}"
            f"   {ratio:>7.2f}x   {self.promised}"
        )


def best_of(times: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several runs: the one least disturbed by others."""
    return min(seconds(work) for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    """Return how long one run takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _words(duration_s: float) -> str:
    return f"{duration_s:.2f} s" if duration_s >= 1 else f"{duration_s * 1000:.1f} ms"
