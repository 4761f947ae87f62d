"""Remembers what was refused or failed, so that it is not asked again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from k8s.errors import Forbidden, KubeError, NotFound
from k8s.telemetry.readings import NoReadings, NoReadingsCause
from k8s.telemetry.sources.proxied import refusal_words

REFUSED_S = 600.0
"""How long a refusal, or that something is not there, is believed: roles are seldom given meanwhile."""
FAILED_S = 60.0
"""How long what did not answer is left alone."""


class Refusals:
    """Why some things are not asked for now, by any name that whoever asks gives them."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Start without any; `now_s` is a clock that never goes back."""
        self._now_s = now_s
        self._until: dict[object, tuple[float, NoReadings]] = {}

    def get(self, key: object) -> NoReadings | None:
        """Return why something is not asked for now; None when it may be."""
        until_s, reason = self._until.get(key, (0.0, None))
        return reason if self._now_s() < until_s else None

    def note(self, key: object, error: KubeError, forbidden: str, absent: str = "") -> NoReadings:
        """Remember why something failed, and return it.

        Args:
            key: What was asked for.
            error: What came of it.
            forbidden: What this user may not do, as `get pods/proxy in namespace monitoring`.
            absent: What to say when it is not there; empty where that is a failure as others.
        """
        if isinstance(error, Forbidden):
            reason = NoReadings(NoReadingsCause.FORBIDDEN, f"You may not {forbidden}.")
        elif isinstance(error, NotFound) and absent:
            reason = NoReadings(NoReadingsCause.NO_EXPORTER, absent)
        else:
            reason = NoReadings(NoReadingsCause.UNREACHABLE, refusal_words(error))
        is_final = reason.cause is not NoReadingsCause.UNREACHABLE
        self.keep(key, reason, REFUSED_S if is_final else FAILED_S)
        return reason

    def keep(self, key: object, reason: NoReadings, for_s: float = REFUSED_S) -> None:
        """Remember a reason for some time; those whose time is over are forgotten."""
        now_s = self._now_s()
        self._until = {each: kept for each, kept in self._until.items() if now_s < kept[0]}
        self._until[key] = (now_s + for_s, reason)

    def clear(self) -> None:
        """Forget all: ask for everything again."""
        self._until.clear()
