"""How long to wait for a cluster, and before it is asked again: one probe for everybody who waits."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from k8s.client.client import Client
from k8s.errors import KubeError, Throttled, Unauthorized, Unreachable

_PROBED = "/version"
"""Everybody may read it, and the server has it at hand."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long to wait, in seconds. Source: client-go's reflector."""

    first_s: float = 0.8
    """After the first failure; twice as long after each further one, and up to half as much again."""
    longest_s: float = 30.0
    """Most between two tries, before that half."""
    healthy_s: float = 30.0
    """What worked for so long begins with `first_s` again when it fails."""
    login_s: float = 30.0
    """While the server does not know who asks."""
    absent_s: float = 60.0
    """While a kind is not served, or may not be read."""
    watch_s: int = 290
    """How long the server is asked to keep one watch open, and up to a tenth more: none is immortal."""
    grace_s: float = 30.0
    """How much longer than that a watch may be silent before its connection is taken for dead."""
    discovery_s: float = 60.0
    """Before the server is asked again which kinds it has."""

    def delays(self) -> Iterator[float]:
        """Yield the delays after one failure and the next, without end."""
        delay_s = self.first_s
        while True:
            yield delay_s * random.uniform(1.0, 1.5)
            delay_s = min(delay_s * 2, self.longest_s)


class Outage:
    """Sits out the times in which a cluster does not answer, or knows nobody.

    Whoever gets no answer comes here. One of them asks the server something cheap until it
    answers; the others wait, so that a dead cluster is asked once, not once for each list.
    """

    def __init__(
        self, client: Client, waits: Waits | None = None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare to wait for the cluster behind `client`; when `problem` changes, call `on_change`."""
        self.waits = waits or Waits()
        """How long to wait."""
        self.problem: KubeError | None = None
        """Why the cluster does not answer anybody; None while it does, as far as is known."""
        self._on_change = on_change
        self._client = client
        self._turn = asyncio.Lock()
        self._answered_at_s = -math.inf
        self._ended_at_s = -math.inf
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Ask now instead of after the delay."""
        self._poked.set()

    async def wait(self, error: KubeError, delays: Iterator[float], poked: asyncio.Event) -> None:
        """Return when it makes sense to try again what has just failed with `error`.

        Args:
            error: Why it failed.
            delays: How long it waits for itself, while the cluster answers others.
            poked: Ends such a delay.
        """
        if isinstance(error, (Unreachable, Unauthorized)) and await self._sat_out():
            return
        delay_s = self.waits.login_s if isinstance(error, Unauthorized) else next(delays)
        if isinstance(error, Throttled):
            delay_s = max(delay_s, error.retry_after_s)
        await pause(poked, delay_s)

    async def _sat_out(self) -> bool:
        """Wait while the cluster does not answer, and tell whether that was so."""
        lost_at_s = asyncio.get_running_loop().time()
        async with self._turn:
            if self._answered_at_s < lost_at_s:
                await self._probe()
            return self._ended_at_s >= lost_at_s

    async def _probe(self) -> None:
        delays = self.waits.delays()
        was_away = False
        try:
            while problem := await self._ask():
                was_away = True
                self._say(problem)
                is_login = isinstance(problem, Unauthorized)
                await pause(self._poked, self.waits.login_s if is_login else next(delays))
        finally:
            self._say(None)
        self._answered_at_s = asyncio.get_running_loop().time()
        if was_away:
            self._ended_at_s = self._answered_at_s

    async def _ask(self) -> KubeError | None:
        """Ask once; return why there was no answer for anybody. A refusal is an answer."""
        try:
            await self._client.get_json(_PROBED)
        except (Unreachable, Unauthorized) as error:
            return error
        except KubeError:
            return None
        return None

    def _say(self, problem: KubeError | None) -> None:
        if problem is not self.problem:
            self.problem = problem
            self._on_change()


async def pause(poked: asyncio.Event, delay_s: float) -> None:
    """Wait so long, or until somebody pokes."""
    poked.clear()
    try:
        await asyncio.wait_for(poked.wait(), delay_s)
    except TimeoutError:
        return
