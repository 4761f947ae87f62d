"""Delays before a cluster is asked again."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from k8s.cluster.backoff import DEFAULT_BACKOFF, Backoff


@given(failures=st.integers(1, 10_000))
def test_a_delay_doubles_with_each_failure_up_to_thirty_seconds_and_half_as_much_again(failures: int) -> None:
    doubled_s = min(30.0, 0.8 * 2 ** min(failures - 1, 10))
    assert doubled_s <= DEFAULT_BACKOFF.delay_s(failures) <= doubled_s * 1.5


def test_the_delays_of_one_who_fails_again_and_again_are_those_of_its_failures_in_order() -> None:
    backoff = Backoff(first_s=1.0, longest_s=4.0)
    delays_s = islice(backoff.delays(), 5)
    for delay_s, least_s in zip(delays_s, (1.0, 2.0, 4.0, 4.0, 4.0), strict=True):
        assert least_s <= delay_s <= least_s * 1.5


def test_two_that_fail_together_do_not_ask_again_at_the_same_moment() -> None:
    assert len({DEFAULT_BACKOFF.delay_s(1) for _ in range(20)}) > 1
