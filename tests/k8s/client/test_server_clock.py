"""The server's clock, from answers that are late, rounded or from elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.client.connection import ServerClock

NOW_S = datetime(2026, 11, 20, 18, tzinfo=UTC).timestamp()


def date(at_s: float) -> str:
    return format_datetime(datetime.fromtimestamp(int(at_s), UTC), usegmt=True)


def hear(
    clock: ServerClock, ahead_s: float, *, sent_s: float, took_s: float = 0.1, share: float = 0.5
) -> None:
    """Observe an answer from a clock that is ahead; `share` is where `Date` falls within the request."""
    clock.observe(date(sent_s + share * took_s + ahead_s), sent_s, sent_s + took_s)


@given(st.lists(st.tuples(st.floats(-1.9, 1.9), st.floats(0, 1), st.floats(0, 60), st.floats(0, 1))))
def test_differences_below_two_seconds_are_never_believed(
    answers: list[tuple[float, float, float, float]],
) -> None:
    clock = ServerClock()
    for ahead_s, fraction, took_s, share in answers:
        hear(clock, ahead_s, sent_s=NOW_S + fraction, took_s=took_s, share=share)
    assert clock.offset_s == 0.0


@given(
    st.floats(6, 100_000) | st.floats(-100_000, -6),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 2), st.floats(0, 1)), min_size=2),
)
def test_a_clock_that_is_wrong_is_known_to_a_few_seconds_after_two_answers(
    ahead_s: float, answers: list[tuple[float, float, float]]
) -> None:
    clock = ServerClock()
    for later_s, took_s, share in answers:
        hear(clock, ahead_s, sent_s=NOW_S + later_s, took_s=took_s, share=share)
    assert clock.offset_s == pytest.approx(ahead_s, abs=3.5)


def test_an_hour_is_noticed_and_one_answer_of_somebody_else_is_not() -> None:
    clock = ServerClock()
    hear(clock, 3600, sent_s=NOW_S)
    assert clock.offset_s == 0.0
    hear(clock, 3600, sent_s=NOW_S + 0.3)
    assert clock.offset_s == pytest.approx(3600, abs=1)
    known_s = clock.offset_s
    hear(clock, -50, sent_s=NOW_S + 5)  # a balancer's own error page
    hear(clock, 3600, sent_s=NOW_S + 6)
    hear(clock, -50, sent_s=NOW_S + 7)
    assert clock.offset_s == known_s
    hear(clock, 0, sent_s=NOW_S + 8)
    hear(clock, 0, sent_s=NOW_S + 9)  # the server's clock was set right
    assert abs(clock.offset_s) < 1


def test_an_answer_that_took_a_minute_says_little_and_moves_nothing() -> None:
    clock = ServerClock()
    for number in range(3):
        hear(clock, 30, sent_s=NOW_S + number, took_s=60)
    assert clock.offset_s == 0.0


@given(st.text() | st.sampled_from(["", "0", "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 20 Nov 2026 18:00:00"]))
def test_a_date_that_is_none_is_not_believed(words: str) -> None:
    clock = ServerClock()
    clock.observe(words, NOW_S, NOW_S)
    assert clock.offset_s == 0.0


def test_our_own_clock_may_jump_back_while_we_wait() -> None:
    clock = ServerClock()
    for _ in range(3):
        clock.observe(date(NOW_S), NOW_S, NOW_S - 3600)
    assert clock.offset_s == 0.0
