"""What a view sees of the GPUs' telemetry: read while the view is shown, of the nodes that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.telemetry.gpu_warnings import GpuWarning
from k8s.telemetry.history import GpuSample
from k8s.telemetry.job_ranks import RankReading
from k8s.telemetry.readings import GpuKey, GpuReading, NodeReadings, Telemetry

if TYPE_CHECKING:
    from tui.feeds.telemetry_feed import TelemetryFeed
    from tui.screens.base.view import View

_NOTHING_READ = Telemetry()


class TelemetryWatch:
    """Follows the telemetry for one view: begins when that is shown, and asks for nothing while it is not."""

    def __init__(
        self,
        view: View,
        nodes: Callable[[], Iterable[str]],
        jobs: Callable[[], Iterable[JobRef]] = tuple,
    ) -> None:
        """Prepare to follow for a view.

        Args:
            view: Redrawn when something was read.
            nodes: Returns the names of the nodes that it shows now.
            jobs: Returns those of which it shows what their pods use of CPU, memory, network and storage.
        """
        self._view = view
        self._nodes, self._jobs = nodes, jobs
        self._followed: TelemetryFeed | None = None
        self._reading: Worker[None] | None = None

    @property
    def feed(self) -> TelemetryFeed | None:
        """The telemetry of the cluster that is shown, once there is one."""
        return self._view.context.telemetry()

    @property
    def newest(self) -> Telemetry:
        """What was read last."""
        return self.feed.telemetry if self.feed is not None else _NOTHING_READ

    def of_node(self, name: str) -> NodeReadings | None:
        """Return what was read of a node; None before it was asked of."""
        return self.newest.nodes.get(name)

    def samples(self, key: GpuKey) -> Sequence[GpuSample]:
        """Return what was observed of a GPU, the oldest first."""
        return self.feed.history.of(key) if self.feed is not None else ()

    def warnings(self, gpu: GpuReading) -> tuple[GpuWarning, ...]:
        """Return what is wrong with a GPU, the worst first."""
        return self.feed.warnings(gpu) if self.feed is not None else ()

    def ranks(self, job: Job) -> tuple[RankReading, ...]:
        """Return what each rank of a job does, as far as that was read."""
        return self.feed.ranks(job) if self.feed is not None else ()

    def job_warnings(self, ranks: Sequence[RankReading]) -> Mapping[GpuKey, Sequence[GpuWarning]]:
        """Return what is wrong with the GPUs of one job's ranks; only those with something are in it."""
        return self.feed.job_warnings(ranks) if self.feed is not None else {}

    def look(self) -> None:
        """Follow what is in sight now, if the view is shown: called whenever it is drawn."""
        feed, view = self.feed, self._view
        if feed is None or not view.is_shown:
            return
        feed.aim(self._nodes(), self._jobs())
        if feed is not self._followed or self._reading is None or self._reading.is_finished:
            self._followed = feed
            reading = partial(feed.follow, view.redraw)
            self._reading = view.run_worker(reading, group="telemetry", exclusive=True)

    def refresh(self) -> None:
        """Ask again now."""
        if self.feed is not None:
            self.feed.retry_now()

    def stop(self) -> None:
        """Ask for nothing more."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
