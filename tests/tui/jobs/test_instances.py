"""Ranks in words: the same in lists, logs and commands."""

from __future__ import annotations

import pytest

from tui.jobs.instances import format_ranks
from tui.text.format import NOTHING


@pytest.mark.parametrize(
    ("ranks", "proof", "words"),
    [
        ((), "none", NOTHING),
        ((3,), "declared", "3"),
        ((0, 1, 2, 3), "declared", "0-3"),
        ((4, 5), "assumed", "~4-5"),
        ((0,), "observed", "=0"),
        ((4, 5), "observed", "=4-5"),
    ],
)
def test_ranks_that_are_assumed_or_observed_are_marked(
    ranks: tuple[int, ...], proof: str, words: str
) -> None:
    assert format_ranks(ranks, proof) == words
