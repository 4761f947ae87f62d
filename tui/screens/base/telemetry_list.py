"""A list of what GPUs do: they are read while it is shown, and not while it is covered."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from k8s.kinds import JobRef
from tui.screens.base.list_view import ListView
from tui.screens.base.telemetry_watch import TelemetryWatch

AGES_S = 10.0
"""How often ages are written anew though nothing has changed."""


class TelemetryList(ListView):
    """Follows the telemetry of what it shows; a subclass ends its `draw` with `self._telemetry.look()`."""

    def __init__(
        self, nodes: Callable[[], Iterable[str]], jobs: Callable[[], Iterable[JobRef]] = tuple
    ) -> None:
        """Prepare to follow what `TelemetryWatch` is told by `nodes` and `jobs`."""
        super().__init__()
        self._telemetry = TelemetryWatch(self, nodes, jobs)

    def on_mount(self) -> None:
        """Let ages grow though nothing changes."""
        self.set_interval(AGES_S, self.redraw)

    def uncovered(self) -> None:
        """Begin to ask what the GPUs do, or go on."""
        self._telemetry.look()

    def covered(self) -> None:
        """Ask for nothing; the time until it is shown again is not observed."""
        self._telemetry.stop()

    def refresh_feeds(self) -> None:
        """Ask again now what the GPUs do."""
        self._telemetry.refresh()
