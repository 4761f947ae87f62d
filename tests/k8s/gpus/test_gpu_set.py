"""The best set of GPUs is the best, which brute force proves; and it is found while one types."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.gpus.gpu_set import best_set, measure, split
from k8s.gpus.links import MACHINES, LinkMatrix

V100 = MACHINES["dgx-1v"].matrix()
PCIE = MACHINES["pcie"].matrix()


def weighted(weights: list[list[float]]) -> LinkMatrix:
    """Make a matrix with measured bandwidths."""
    size = len(weights)
    links = tuple(tuple("X" if a == b else "NV1" for b in range(size)) for a in range(size))
    return LinkMatrix(links, tuple(map(tuple, weights)), is_measured=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LinkMatrix, list[int], int]:
    """Draw links, symmetric or not, of few or of many speeds; which GPUs are free; how many are wanted."""
    size = draw(st.integers(1, 9))
    speed = draw(
        st.sampled_from(
            [
                st.sampled_from([10.0, 20.0, 40.0]),
                st.integers(0, 50).map(float),
                st.integers(0, 99999).map(lambda n: n / 1000),
            ]
        )
    )
    weights = [[0.0 if a == b else draw(speed) for b in range(size)] for a in range(size)]
    free = draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1))
    return weighted(weights), free, draw(st.integers(1, len(free)))


@settings(max_examples=300)
@given(cases())
@pytest.mark.slow
def test_no_set_is_better_than_the_one_found(case: tuple[LinkMatrix, list[int], int]) -> None:
    matrix, free, count = case
    found = best_set(matrix, free, count)
    assert found is not None
    assert len(found.gpus) == count
    assert set(found.gpus) <= set(free)
    every = [measure(matrix, gpus) for gpus in combinations(sorted(free), count)]
    best = max((each.bottleneck, each.total) for each in every)
    assert (found.bottleneck, found.total) == best


def test_the_sets_of_a_dgx_1v() -> None:
    for free, gpus, link in [
        (range(8), (0, 1, 2, 3), "NV1"),
        (range(8), (0, 3), "NV2"),
        (range(8), (0, 2, 3), "NV1"),
        ((0, 1, 5, 6), (5, 6), "NV2"),
        ((0, 1, 6, 7), (6, 7), "NV2"),
        ((0, 5, 6), (0, 5, 6), "SYS"),
    ]:
        found = best_set(V100, free, len(gpus))
        assert found is not None
        assert (found.gpus, found.link) == (gpus, link)


def test_the_best_of_equal_sets_leaves_the_other_gpus_best_linked() -> None:
    """GPUs 0 and 1 share a switch; 2 has lost its neighbour: a job with one GPU takes that."""
    found = best_set(PCIE, (0, 1, 2), 1)
    assert found is not None
    assert (found.gpus, found.bottleneck, found.link) == ((2,), math.inf, "")


def test_too_few_free_gpus_are_no_set() -> None:
    assert best_set(V100, (0, 1), 3) is None
    assert best_set(V100, (), 1) is None
    assert best_set(V100, (0, 99), 2) is None
    assert best_set(V100, (0, 1), 0) is None


def test_numbers_that_do_not_begin_at_zero_are_kept() -> None:
    matrix = LinkMatrix(
        (("X", "PIX", "SYS"), ("PIX", "X", "SYS"), ("SYS", "SYS", "X")), PCIE.bandwidth, numbers=(2, 5, 7)
    )
    found = best_set(matrix, (2, 5, 7), 2)
    assert found is not None
    assert found.gpus == (2, 5)


@pytest.mark.parametrize("kind", ["noise", "two speeds", "uniform", "pairs"])
def test_the_best_set_of_sixteen_gpus_is_found_within_a_second(kind: str) -> None:
    chance = random.Random(7)
    kinds: dict[str, Callable[[int, int], float]] = {
        "noise": lambda a, b: round(chance.uniform(80, 100), 3),
        "two speeds": lambda a, b: chance.choice((10.0, 40.0)),
        "uniform": lambda a, b: 120.0,
        "pairs": lambda a, b: 24.0 if a // 2 == b // 2 else 16.0,
    }
    speeds = kinds[kind]
    weights = [[0.0] * 16 for _ in range(16)]
    for a, b in combinations(range(16), 2):
        weights[a][b] = weights[b][a] = speeds(a, b)
    matrix = weighted(weights)
    began_s = time.process_time()
    found = best_set(matrix, range(16), 8)
    took_s = time.process_time() - began_s
    assert found is not None
    every = (measure(matrix, gpus) for gpus in combinations(range(16), 8))
    assert (found.bottleneck, found.total) == max((each.bottleneck, each.total) for each in every)
    assert took_s < 1.0


def test_a_machine_with_more_gpus_gets_a_good_set() -> None:
    size = 32
    links = [
        ["X" if a == b else "NV4" if a // 8 == b // 8 else "SYS" for b in range(size)] for a in range(size)
    ]
    found = best_set(LinkMatrix.of(links), range(3, size), 8)
    assert found is not None
    assert found.link == "NV4"


def test_a_set_is_divided_among_pods_so_that_each_keeps_together() -> None:
    assert split(PCIE, (0, 1, 2, 3), (2, 2)) == [(0, 1), (2, 3)]
    assert split(V100, (0, 1, 2, 3), (1, 3)) == [(1,), (0, 2, 3)]
    assert split(V100, (0, 1), (1, 0, 1)) in ([(0,), (), (1,)], [(1,), (), (0,)])
    assert split(V100, (0, 1), (2, 1)) is None
