"""One measured comparison, and how it is printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """What we need for some work, what the peer needs, and what was promised."""

    work: str
    ours: float
    peer: str
    peers: float | None
    """What the peer needs; None where there is no peer."""
    promised: str
    """In words, as DESIGN has it."""
    unit: str = "s"
    """Of both numbers: seconds unless said otherwise."""

    def __str__(self) -> str:
        peers, ratio = "", ""
        if self.peers is not None:
            peers = _words(self.peers, self.unit)
            ratio = f"{self.peers / self.ours if self.ours else float('inf'):.2f}x"
        ours = _words(self.ours, self.unit)
        compared = f"{ours:>10}   {self.peer:<36} {peers:>10}   {ratio:>8}"
        return f"{self.work:<46} {compared}   {self.promised}".rstrip()


def best_of(times: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several runs: the one least disturbed by others."""
    return min(seconds(work) for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    """Return how long one run takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _words(number: float, unit: str) -> str:
    if unit == "s":
        return f"{number:.2f} s" if number >= 1 else f"{number * 1000:.1f} ms"
    return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.2f} {unit}".rstrip()
