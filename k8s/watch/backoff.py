"""How long to wait for a cluster before it is asked again, and one probe for everybody who waits."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from k8s.client.client import Client
from k8s.client.server_version import fetch_version
from k8s.errors import KubeError, NotKubernetes, Throttled, Unauthorized, Unreachable

_ANSWERS_NOBODY = (Unreachable, NotKubernetes, Unauthorized)
"""What ails everybody who asks, not one collection."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait for a cluster, in seconds; one value for all that list, watch and follow.

    Source: client-go's reflector, 0.8 s doubling to 30 s.
    """

    first_s: float = 0.8
    """After the first failure; twice as long after each further one, and up to half as much again."""
    longest_s: float = 30.0
    """Most between two tries, before that half."""
    healthy_s: float = 30.0
    """What worked for so long begins with `first_s` again when it fails."""
    unauthorized_s: float = 30.0
    """While the server does not know who asks."""
    absent_s: float = 60.0
    """While a kind is not served, or may not be read."""
    watch_s: int = 290
    """Server-side timeout of one watch, plus up to a tenth, so that not all end at once."""
    grace_s: float = 30.0
    """How much longer than that a watch may stay silent before its connection counts as dead."""
    discovery_s: float = 60.0
    """Before the server is asked again which kinds it has."""
    idle_s: float = 240.0
    """Without a byte of a log: then the connection is made anew, for it may be dead."""
    waiting_s: float = 2.0
    """Between two looks at a container that does not run yet, or not again."""
    poll_s: float = 5.0
    """Between two readings of a log that is not streamed."""

    def delay_s(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row, never in step with others."""
        doubled_s = self.first_s * 2.0 ** min(max(failures - 1, 0), 16)
        return min(doubled_s, self.longest_s) * random.uniform(1.0, 1.5)

    def delays(self) -> Iterator[float]:
        """Yield the delay after one failure, after the next, and so on without end."""
        return map(self.delay_s, count(1))


DEFAULT_BACKOFF = Backoff()
"""For clusters; tests pass shorter ones."""


class ServerProbe:
    """Waits for a cluster that does not answer, is none, or does not know who asks.

    Whoever gets no answer comes here. One of them asks the server something cheap until it
    answers; the others wait, so that a dead cluster is asked once, not once for each list.
    """

    def __init__(
        self, client: Client, backoff: Backoff | None = None, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare to wait for the cluster behind `client`; when `problem` changes, call `on_change`."""
        self.backoff = backoff or DEFAULT_BACKOFF
        """How long to wait, here and by those who wait for themselves."""
        self.problem: KubeError | None = None
        """Why the cluster does not answer anybody; None while it does, as far as is known."""
        self._on_change = on_change
        self._client = client
        self._lock = asyncio.Lock()
        self._explaining = asyncio.Lock()
        self._answered_at_s = -math.inf
        self._ended_at_s = -math.inf
        self._retry_asked = asyncio.Event()

    def retry_now(self) -> None:
        """Ask now instead of after the delay."""
        self._retry_asked.set()

    async def explain(self, error: KubeError) -> KubeError:
        """Return what is behind an error: `NotKubernetes` where something else has answered.

        Whoever is told so goes on to `wait`.
        """
        if not error.is_foreign:
            return error
        async with self._explaining:
            if not isinstance(self.problem, NotKubernetes):
                try:
                    await fetch_version(self._client)
                except NotKubernetes as found:
                    self._set_problem(found)
                except KubeError:
                    return error
            return self.problem if isinstance(self.problem, NotKubernetes) else error

    async def wait(self, error: KubeError, delays: Iterator[float], woken: asyncio.Event) -> None:
        """Return when it makes sense to try again what has just failed with `error`.

        Args:
            error: Why it failed.
            delays: How long it waits for itself, while the cluster answers others.
            woken: Ends such a delay.
        """
        if isinstance(error, _ANSWERS_NOBODY) and await self._waited_for_answer():
            return
        delay_s = self.backoff.unauthorized_s if isinstance(error, Unauthorized) else next(delays)
        if isinstance(error, Throttled):
            delay_s = max(delay_s, error.retry_after_s)
        await pause(woken, delay_s)

    async def _waited_for_answer(self) -> bool:
        """Wait while the cluster does not answer, and tell whether that was so."""
        lost_at_s = asyncio.get_running_loop().time()
        async with self._lock:
            if self._answered_at_s < lost_at_s:
                await self._probe()
            return self._ended_at_s >= lost_at_s

    async def _probe(self) -> None:
        delays = self.backoff.delays()
        was_away = False
        try:
            while problem := await self._ask():
                was_away = True
                self._set_problem(problem)
                is_unauthorized = isinstance(problem, Unauthorized)
                await pause(
                    self._retry_asked, self.backoff.unauthorized_s if is_unauthorized else next(delays)
                )
        finally:
            self._set_problem(None)
        self._answered_at_s = asyncio.get_running_loop().time()
        if was_away:
            self._ended_at_s = self._answered_at_s

    async def _ask(self) -> KubeError | None:
        """Ask once; return why there was no answer for anybody. A refusal is an answer."""
        try:
            await fetch_version(self._client)
        except _ANSWERS_NOBODY as error:
            return error
        except KubeError:
            return None
        return None

    def _set_problem(self, problem: KubeError | None) -> None:
        if problem is not self.problem:
            self.problem = problem
            self._on_change()


async def pause(woken: asyncio.Event, delay_s: float) -> None:
    """Wait so long, or until `woken` is set."""
    woken.clear()
    try:
        await asyncio.wait_for(woken.wait(), delay_s)
    except TimeoutError:
        return
