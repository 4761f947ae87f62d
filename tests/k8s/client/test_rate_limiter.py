"""The rate limiter on a clock that jumps: no test waits or depends on the machine's speed."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.client.rate_limiter import LONGEST_PAUSE_S, RateLimiter, background_requests


class _Jumping(selectors.SelectSelector):
    """Event loop that never waits: the clock jumps to the next event."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left to happen: a turn is never granted"
        self.passed_s += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return 1000.0 + self.jumping.passed_s


def run(make: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test where time passes in jumps, from one event to the next."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(make())


class Turns:
    """The requests granted, with their times in seconds from the start."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.went: list[tuple[str, float]] = []
        self._began_s = asyncio.get_running_loop().time()

    async def take(self, name: str, *, is_urgent: bool = False) -> None:
        await self.limiter.acquire(is_urgent=is_urgent)
        self.went.append((name, round(asyncio.get_running_loop().time() - self._began_s, 3)))

    def ask(self, name: str, *, is_urgent: bool = False) -> asyncio.Task[None]:
        return asyncio.create_task(self.take(name, is_urgent=is_urgent))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.went]

    @property
    def times(self) -> list[float]:
        return [at_s for _, at_s in self.went]


def test_twenty_requests_burst_and_then_ten_a_second_follow() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter())
        await asyncio.gather(*(turns.take(str(number)) for number in range(40)))
        assert turns.times[:20] == [0.0] * 20
        assert turns.times[20:] == pytest.approx([0.1 * number for number in range(1, 21)], abs=0.002)
        assert turns.names == [str(number) for number in range(40)]

    run(story)


def test_after_a_silence_the_bucket_is_full_and_no_fuller() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter())
        await asyncio.gather(*(turns.take("a") for _ in range(20)))
        await asyncio.sleep(3600)
        await asyncio.gather(*(turns.take("b") for _ in range(21)))
        assert turns.times[20:40] == [3600.0] * 20
        assert turns.times[40] == pytest.approx(3600.1, abs=0.002)

    run(story)


def test_urgent_requests_overtake_queued_requests() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter(reserve=0))
        waiting = [turns.ask(f"list {number}") for number in range(30)]
        await asyncio.sleep(0.05)
        waiting.append(turns.ask("delete", is_urgent=True))
        await asyncio.gather(*waiting)
        assert turns.names[20] == "delete"
        assert turns.names[21:] == [f"list {number}" for number in range(20, 30)]

    run(story)


def test_background_requests_are_never_urgent_even_in_child_tasks() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter(reserve=0))
        waiting = [turns.ask(f"list {number}") for number in range(20)]
        with background_requests():
            waiting += [turns.ask(f"check {number}", is_urgent=True) for number in range(10)]
        await asyncio.sleep(0.05)
        waiting.append(turns.ask("delete", is_urgent=True))
        await asyncio.gather(*waiting)
        assert turns.names[20:] == ["delete", *(f"check {number}" for number in range(10))]

    run(story)


def test_the_logs_of_sixty_four_ranks_open_at_once_and_are_paid_for_afterwards() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter())
        await asyncio.gather(*(turns.take("list") for _ in range(20)))
        await asyncio.gather(*(turns.take("log", is_urgent=True) for _ in range(64)))
        assert turns.times == [0.0] * 84
        await turns.take("yaml", is_urgent=True)
        assert turns.times[-1] == pytest.approx(0.1, abs=0.002)
        await asyncio.sleep(600)
        await asyncio.gather(*(turns.take("list") for _ in range(21)))
        assert turns.times[-2] == pytest.approx(600.1, abs=0.002)
        assert turns.times[-1] > turns.times[-2]

    run(story)


def test_background_work_is_never_starved_by_urgent_work_without_end() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter(per_s=10, burst=1, reserve=4, background_delay_s=3))

        async def hammer(name: str) -> None:
            for _ in range(20):
                await turns.take(name, is_urgent=True)

        hammers = [asyncio.create_task(hammer(f"rank {number}")) for number in range(15)]
        await asyncio.sleep(1)
        await turns.take("watch")
        assert 4.0 <= turns.went[-1][1] <= 6.0
        await asyncio.gather(*hammers)

    run(story)


def test_cancelled_requests_free_their_place_in_the_queue() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter(per_s=1, burst=1, reserve=0))
        await turns.take("first")
        leaves = [turns.ask(f"leaves {number}") for number in range(10)]
        stays = turns.ask("stays")
        await asyncio.sleep(0.5)
        for task in leaves:
            task.cancel()
        await asyncio.gather(*leaves, return_exceptions=True)
        await stays
        assert turns.names == ["first", "stays"]
        assert turns.times[-1] == pytest.approx(1.0, abs=0.002)

    run(story)


def test_a_turn_that_comes_together_with_a_cancellation_is_not_lost() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        turns = Turns(RateLimiter(per_s=1, burst=1, reserve=0))
        await turns.take("first")
        leaves, stays = turns.ask("leaves"), turns.ask("stays")
        # In the same round of the loop in which its turn is granted, before it wakes up.
        loop.call_at(loop.time() + 1 + 1e-10, leaves.cancel)
        await asyncio.gather(leaves, stays, return_exceptions=True)
        assert leaves.cancelled()
        assert turns.went == [("first", 0.0), ("stays", 1.0)]

    run(story)


def test_a_pause_holds_all_requests_and_resumes_at_the_base_rate() -> None:
    async def story() -> None:
        limiter = RateLimiter(reserve=0)
        turns = Turns(limiter)
        assert limiter.paused_until_s == 0.0
        limiter.pause(7)
        assert limiter.paused_until_s == asyncio.get_running_loop().time() + 7
        limiter.pause(2)  # a shorter one does not cut it short
        await asyncio.gather(*(turns.take("a", is_urgent=number % 2 == 0) for number in range(4)))
        assert turns.times == pytest.approx([7.1, 7.2, 7.3, 7.4], abs=0.002)
        assert limiter.paused_until_s == 0.0

    run(story)


def test_a_pause_is_capped_at_the_longest_pause() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter())
        turns.limiter.pause(3600)
        await turns.take("a", is_urgent=True)
        assert turns.times == [LONGEST_PAUSE_S]

    run(story)


def test_a_pause_also_delays_queued_requests() -> None:
    async def story() -> None:
        turns = Turns(RateLimiter(per_s=1, burst=1, reserve=0))
        await turns.take("a")
        waits = turns.ask("b")
        await asyncio.sleep(0.5)
        turns.limiter.pause(5)
        await waits
        assert turns.times[-1] >= 5.5

    run(story)


@given(
    st.lists(
        st.tuples(st.floats(0, 20), st.booleans(), st.none() | st.floats(0, 5)), min_size=1, max_size=60
    ),
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 4)), max_size=3),
)
def test_all_waiting_requests_are_granted_and_never_faster_than_the_limit(
    requests: list[tuple[float, bool, float | None]], pauses: list[tuple[float, float]]
) -> None:
    async def story() -> None:
        turns = Turns(RateLimiter(per_s=5, burst=4, reserve=3, background_delay_s=1))

        async def come(number: int, at_s: float, is_urgent: bool, stays_s: float | None) -> None:
            await asyncio.sleep(at_s)
            try:
                async with asyncio.timeout(stays_s):
                    await turns.take(str(number), is_urgent=is_urgent)
            except TimeoutError:
                return

        async def pause(at_s: float, for_s: float) -> None:
            await asyncio.sleep(at_s)
            turns.limiter.pause(for_s)

        await asyncio.gather(
            *(come(number, *each) for number, each in enumerate(requests)), *(pause(*each) for each in pauses)
        )
        patient = {str(number) for number, (_, _, stays_s) in enumerate(requests) if stays_s is None}
        assert patient <= set(turns.names)
        for first, at_s in enumerate(turns.times):
            later = [other for other in turns.times[first:] if other <= at_s + 2]
            assert len(later) <= 4 + 3 + 2 * 5 + 1

    run(story)
