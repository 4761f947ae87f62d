from __future__ import annotations

import tracemalloc

from k8s.telemetry.readings import NoReadings, NoReadingsCause
from k8s.telemetry.sources.refusals import REFUSED_S, Refusals

_GONE = NoReadings(NoReadingsCause.UNREACHABLE, "dead")


def test_what_is_asked_again_is_not_remembered_for_ever() -> None:
    now_s = 0.0
    refusals = Refusals(lambda: now_s)
    tracemalloc.start()
    try:
        for number in range(20_000):  # nodes of a cluster that grows and shrinks, over days
            now_s += REFUSED_S
            refusals.keep(("node", f"gpu-{number}"), _GONE)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100_000
    assert refusals.get(("node", "gpu-19999")) is _GONE
    assert refusals.get(("node", "gpu-0")) is None
