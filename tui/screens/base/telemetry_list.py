"""GPU telemetry of a view, polled for its visible nodes while it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from k8s.kinds import JobRef
from k8s.snapshot import Job
from k8s.telemetry.gpu_warnings import GpuWarning
from k8s.telemetry.readings import GpuKey, GpuReading, GpuSample, NodeReadings, RankReading, Telemetry
from tui.screens.base.list_view import ListView

if TYPE_CHECKING:
    from tui.feeds.telemetry_feed import TelemetryFeed
    from tui.screens.base.view import View


_NOTHING_READ = Telemetry()


class TelemetryWatch:
    """Telemetry of one view; polls only while the view is shown."""

    def __init__(
        self,
        view: View,
        nodes: Callable[[], Iterable[str]],
        jobs: Callable[[], Iterable[JobRef]] = tuple,
    ) -> None:
        """Prepare to follow telemetry.

        Args:
            view: Redrawn after each reading.
            nodes: Returns the names of the visible nodes.
            jobs: Returns the jobs whose pods' CPU, memory, network and storage are shown.
        """
        self._view = view
        self._nodes, self._jobs = nodes, jobs
        self._followed: TelemetryFeed | None = None
        self._reading: Worker[None] | None = None

    @property
    def feed(self) -> TelemetryFeed | None:
        """Telemetry feed of the cluster; None before it is connected."""
        session = self._view.session
        return session.telemetry if session is not None else None

    @property
    def newest(self) -> Telemetry:
        """Latest telemetry."""
        return self.feed.telemetry if self.feed is not None else _NOTHING_READ

    def of_node(self, name: str) -> NodeReadings | None:
        """Return the readings of a node; None before the first poll."""
        return self.newest.nodes.get(name)

    def samples(self, key: GpuKey) -> Sequence[GpuSample]:
        """Return the history of a GPU, oldest first."""
        return self.feed.history.of(key) if self.feed is not None else ()

    def warnings(self, gpu: GpuReading) -> tuple[GpuWarning, ...]:
        """Return the warnings of a GPU, worst first."""
        return self.feed.warnings(gpu) if self.feed is not None else ()

    def ranks(self, job: Job) -> tuple[RankReading, ...]:
        """Return the readings of a job's ranks."""
        return self.feed.ranks(job) if self.feed is not None else ()

    def job_warnings(self, ranks: Sequence[RankReading]) -> Mapping[GpuKey, Sequence[GpuWarning]]:
        """Return the warnings of the GPUs of a job's ranks; GPUs without warnings are left out."""
        return self.feed.job_warnings(ranks) if self.feed is not None else {}

    def follow(self) -> None:
        """Follow the visible nodes and jobs; called on every refresh."""
        feed, view = self.feed, self._view
        if feed is None or not view.is_shown:
            return
        feed.aim(self._nodes(), self._jobs())
        if feed is not self._followed or self._reading is None or self._reading.is_finished:
            self._followed = feed
            reading = partial(feed.follow, view.refresh_view)
            self._reading = view.run_worker(reading, group="telemetry", exclusive=True)

    def refresh(self) -> None:
        """Poll now."""
        if self.feed is not None:
            self.feed.retry_now()

    def stop(self) -> None:
        """Stop polling."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


AGES_S = 10.0


class TelemetryList(ListView):
    """Follows the telemetry of its rows; `render_rows` of a subclass ends with `self._telemetry.follow()`."""

    def __init__(
        self, nodes: Callable[[], Iterable[str]], jobs: Callable[[], Iterable[JobRef]] = tuple
    ) -> None:
        super().__init__()
        self._telemetry = TelemetryWatch(self, nodes, jobs)

    def on_mount(self) -> None:
        """Refresh the ages while nothing changes."""
        self.set_interval(AGES_S, self.refresh_view)

    def resume_feeds(self) -> None:
        """Start polling."""
        self._telemetry.follow()

    def pause_feeds(self) -> None:
        """Stop polling; the time until it is shown again counts as not observed."""
        self._telemetry.stop()

    def refresh_feeds(self) -> None:
        """Poll now."""
        self._telemetry.refresh()
