"""Retry delays for one cluster, and one shared probe for everything that waits for it."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import msgspec

from k8s.client.client import Client, fetch_version
from k8s.text.errors import (
    KubeError,
    NotKubernetes,
    Throttled,
    TooLarge,
    Unauthorized,
    Unreachable,
    without_frames,
)

# These errors concern the server or the user, not one collection.
_CLUSTER_WIDE_ERRORS = (Unreachable, NotKubernetes, Unauthorized)


class Backoff(msgspec.Struct, frozen=True):
    """Delays and timeouts, in seconds, shared by everything that lists, watches and follows.

    Source: client-go's reflector, 0.8 s doubling to 30 s.
    """

    # Each delay is twice the one before, plus up to half of it at random.
    first_s: float = 0.8
    longest_s: float = 30.0
    # A watch that stayed open this long resets the delay to `first_s`.
    healthy_s: float = 30.0
    unauthorized_s: float = 30.0
    absent_s: float = 60.0
    # Sent to the server, plus up to 10 % at random: watches opened together must not all end together.
    watch_s: int = 290
    # A watch silent for this long after its timeout is on a dead connection.
    grace_s: float = 30.0
    # Without watch events for this long, one object is listed to check that the cluster still answers.
    heartbeat_s: float = 15.0
    heartbeat_answer_s: float = 10.0
    discovery_s: float = 60.0
    # A log without a byte for this long is reopened, because a kubelet may stop sending when it rotates the
    # log, and the connection may be dead; twice as late each time that there is nothing new.
    quiet_s: float = 45.0
    idle_s: float = 240.0
    # Between checks of a container that is not running.
    waiting_s: float = 2.0
    # Between reads of a log that is polled.
    poll_s: float = 5.0

    def delay_s(self, failures: int) -> float:
        """Return the delay after `failures` failures in a row, with jitter."""
        doubled_s = self.first_s * 2.0 ** min(max(failures - 1, 0), 16)
        return min(doubled_s, self.longest_s) * random.uniform(1.0, 1.5)

    def idle_limit_s(self, quiet_reads: int) -> float:
        """Return the time after which a log is reopened that was opened so often without anything new."""
        return min(self.quiet_s * 2.0 ** min(quiet_reads, 16), self.idle_s)

    def delays(self) -> Iterator[float]:
        """Yield the delays after one failure, two failures, and so on without end."""
        return map(self.delay_s, count(1))


DEFAULT_BACKOFF = Backoff()


class ServerProbe:
    """Waits until a cluster answers again.

    Every task that gets no answer waits here. One of them probes the server with a cheap request
    and the others wait for the result, so that a dead cluster gets one request at a time.
    """

    def __init__(
        self, client: Client, backoff: Backoff | None = None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.backoff = backoff or DEFAULT_BACKOFF
        self.problem: KubeError | None = None
        """The reason why the cluster answers no request; None while it does, as far as is known."""
        self._on_change = on_change
        self._client = client
        self._lock = asyncio.Lock()
        self._explaining = asyncio.Lock()
        self._answered_at_s = -math.inf
        self._ended_at_s = -math.inf
        self._retry_requested = asyncio.Event()

    @property
    def has_just_recovered(self) -> bool:
        """Return True if the cluster was unreachable less than `healthy_s` ago."""
        return asyncio.get_running_loop().time() - self._ended_at_s < self.backoff.healthy_s

    def retry_now(self) -> None:
        """Probe now instead of after the delay."""
        self._retry_requested.set()

    async def explain(self, error: KubeError) -> KubeError:
        """Return `NotKubernetes` if something other than Kubernetes sent `error`; else return `error`.

        Pass the result to `wait`.
        """
        if not error.is_foreign:
            return error
        async with self._explaining:
            if not isinstance(self.problem, NotKubernetes):
                try:
                    await fetch_version(self._client)
                except NotKubernetes as found:
                    self._set_problem(without_frames(found))
                except KubeError:
                    return error
            return self.problem if isinstance(self.problem, NotKubernetes) else error

    async def wait(self, error: KubeError, delays: Iterator[float], woken: asyncio.Event) -> None:
        """Wait until the request that failed with `error` may be retried.

        `delays` are the caller's own, for when the server answers other requests; `woken` ends one early.
        """
        if isinstance(error, _CLUSTER_WIDE_ERRORS) and await self._waited_for_answer():
            return
        if isinstance(error, Unauthorized):
            await pause_unauthorized(self._client, woken, self.backoff)
            return
        delay_s = next(delays)
        if isinstance(error, Throttled | TooLarge):
            delay_s = max(delay_s, error.retry_after_s)
        await pause(woken, delay_s)

    async def _waited_for_answer(self) -> bool:
        lost_at_s = asyncio.get_running_loop().time()
        async with self._lock:  # by the time it is free, another task's probe may have been answered
            if self._answered_at_s < lost_at_s:
                await self._probe()
            return self._ended_at_s >= lost_at_s

    async def _probe(self) -> None:
        delays = self.backoff.delays()
        was_away = False
        try:
            while problem := await self._try_once():
                was_away = True
                self._set_problem(problem)
                if isinstance(problem, Unauthorized):
                    await pause_unauthorized(self._client, self._retry_requested, self.backoff)
                else:
                    await pause(self._retry_requested, next(delays))
        finally:  # on cancellation, too: without a probe the problem would never be cleared
            self._set_problem(None)
        self._answered_at_s = asyncio.get_running_loop().time()
        if was_away:
            self._ended_at_s = self._answered_at_s

    async def _try_once(self) -> KubeError | None:
        try:
            await fetch_version(self._client)
        except _CLUSTER_WIDE_ERRORS as error:
            return without_frames(error)
        except KubeError:  # a refusal is an answer
            return None
        return None

    def _set_problem(self, problem: KubeError | None) -> None:
        if problem is not self.problem:
            self.problem = problem
            self._on_change()


async def pause(woken: asyncio.Event, delay_s: float) -> bool:
    """Wait `delay_s`, or until `woken` is set; return True if it was set."""
    woken.clear()
    with suppress(TimeoutError):
        # Before Python 3.12 wait_for swallows a cancellation that comes together with the event.
        async with asyncio.timeout(delay_s):
            return await woken.wait()
    return False


async def pause_unauthorized(client: Client, woken: asyncio.Event, backoff: Backoff) -> None:
    """Wait `unauthorized_s`, until `woken` is set, or until the files hold credentials not yet refused."""
    clock = asyncio.get_running_loop().time
    until_s = clock() + backoff.unauthorized_s
    # In short steps: a login in another terminal, or the kubelet, may replace the files at any time.
    while (remaining_s := until_s - clock()) > 0:
        if await pause(woken, min(backoff.first_s, remaining_s)):
            return
        client.config.reread_files()
        if client.config.identity() != client.config.refused:
            return
