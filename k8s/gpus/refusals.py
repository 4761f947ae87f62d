"""Memory of refused requests for telemetry."""

from __future__ import annotations

import time
from collections.abc import Callable

from k8s.client.proxied import refusal_text
from k8s.gpus.readings import NoReadings, NoReadingsCause
from k8s.text.errors import Forbidden, KubeError, NotFound

# Also for missing objects; permissions rarely change.
REFUSED_S = 600.0
FAILED_S = 60.0


class Refusals:
    """Reasons to suspend requests, by any hashable key."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until: dict[object, tuple[float, NoReadings]] = {}

    def get(self, key: object) -> NoReadings | None:
        """Return the reason that a request is suspended; None if it is not."""
        until_s, reason = self._until.get(key, (0.0, None))
        return reason if self._now_s() < until_s else None

    def record(self, key: object, error: KubeError, forbidden: str, absent: str = "") -> NoReadings:
        """Record a failure and return the reason.

        Args:
            key: Key of the request.
            error: The failure.
            forbidden: The missing permission, as `get pods/proxy in namespace monitoring`.
            absent: Reason to show for `NotFound`; empty to treat it like any other failure.
        """
        if isinstance(error, Forbidden):
            reason = NoReadings(NoReadingsCause.FORBIDDEN, f"You may not {forbidden}.")
        elif isinstance(error, NotFound) and absent:
            reason = NoReadings(NoReadingsCause.NO_EXPORTER, absent)
        else:
            reason = NoReadings(NoReadingsCause.UNREACHABLE, refusal_text(error))
        is_final = reason.cause is not NoReadingsCause.UNREACHABLE
        self.suspend(key, reason, REFUSED_S if is_final else FAILED_S)
        return reason

    def suspend(self, key: object, reason: NoReadings, for_s: float = REFUSED_S) -> None:
        """Suspend a request for some time, and drop expired entries."""
        now_s = self._now_s()
        self._until = {each: entry for each, entry in self._until.items() if now_s < entry[0]}
        self._until[key] = (now_s + for_s, reason)

    def clear(self) -> None:
        """Forget all reasons."""
        self._until.clear()
