"""Pauses that keep a key waiting: the garbage collector's search for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tui.__main__ import GARBAGE

MOST = 30_000
"""New objects that one look may pass: some milliseconds."""


@contextmanager
def looks() -> Iterator[list[int]]:
    """Let cycles be looked for as the console does; yield how many new objects each look has passed."""
    passed: list[int] = []

    def count(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 0:
            passed.append(len(gc.get_objects(generation=0)))

    was = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*GARBAGE)
    gc.callbacks.append(count)
    try:
        yield passed
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*was)


def test_young_generation_garbage_collection_is_short_enough_for_keys() -> None:
    with looks() as passed:
        kept: list[list[list[int]]] = [[[number]] for number in range(20_000)]
        for round_number in range(3):  # as pods that change: new ones come where older ones go
            kept = [[[number + round_number]] for number, _ in enumerate(kept)]
    assert len(passed) > 5 and max(passed) < MOST


def test_full_garbage_collections_are_rare() -> None:
    new, young, old = GARBAGE
    assert new * young >= 1_000_000 and new * young * old >= 10_000_000
