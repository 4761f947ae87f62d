"""GPU telemetry of a view, polled for its visible nodes while it is shown, and its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from k8s.gpus.gpu_warnings import GpuWarning
from k8s.gpus.readings import GpuKey, GpuReading, GpuSample, NodeReadings, RankReading, Telemetry
from k8s.kinds import JobRef
from k8s.snapshot import Job
from tui.screens.base.list_view import ListView
from tui.tables.column import Cell, Column
from tui.text.format import NOTHING
from tui.text.gpu_words import (
    ADVICE,
    ago,
    format_clocks,
    gpu_memory,
    percent,
    power,
    temperature,
    temperature_style,
    utilisation_style,
    warning_text,
)
from tui.text.sparkline import sparkline

if TYPE_CHECKING:
    from tui.screens.base.view import View
    from tui.session.telemetry_feed import TelemetryFeed


# Both are the same on every row, so that rows can be compared.
TREND_CELLS = 15
TREND = timedelta(minutes=30)
# A table puts its own columns for the GPU's name before these.
GPU_COLUMNS = (
    Column("util", "UTIL", align="right", min_width=4, sorts_largest_first=True),
    Column("trend", "LAST 30M", min_width=TREND_CELLS, max_width=TREND_CELLS, priority=4),
    Column("gpu_memory", "MEMORY", align="right", priority=2, sorts_largest_first=True),
    Column("power", "POWER", align="right", priority=3, sorts_largest_first=True),
    Column("temp", "TEMP", align="right", priority=1, sorts_largest_first=True),
    Column("clock", "CLOCK", align="right", priority=6),
)


def gpu_cells(
    gpu: GpuReading | None, samples: Sequence[GpuSample], *, is_held: bool = True
) -> tuple[Cell, ...]:
    """Return one cell per column of `GPU_COLUMNS`.

    Args:
        gpu: Latest reading; None if unknown.
        samples: History, oldest first.
        is_held: Highlight an idle GPU.
    """
    if gpu is None:
        return (Cell(NOTHING, "quiet"),) * len(GPU_COLUMNS)
    return (
        Cell(
            percent(gpu.utilisation),
            utilisation_style(gpu.utilisation, is_held=is_held),
            sort=gpu.utilisation,
        ),
        Cell(trend(samples), "quiet"),
        Cell(gpu_memory(gpu.memory_used, gpu.memory_total), sort=gpu.memory_used),
        Cell(power(gpu.power_w, gpu.power_limit_w), sort=gpu.power_w),
        Cell(temperature(gpu.temperature_c), temperature_style(gpu), sort=gpu.temperature_c),
        Cell(format_clocks(gpu.sm_clock_mhz, gpu.throttles), "quiet", sort=gpu.sm_clock_mhz),
    )


def trend(samples: Sequence[GpuSample]) -> str:
    """Draw the utilisation of the last 30 minutes; a gap is a dot, time before the first sample is blank."""
    if not samples:
        return NOTHING
    newest = samples[-1]
    highest: list[float | None] = [None] * TREND_CELLS
    for sample in samples[:-1]:
        back = (newest.at - sample.at) / TREND * (TREND_CELLS - 1)
        if back < TREND_CELLS - 1 and sample.utilisation is not None:
            place = TREND_CELLS - 2 - int(back)
            highest[place] = max(highest[place] or 0.0, sample.utilisation)
    highest[-1] = newest.utilisation
    first = next((place for place, value in enumerate(highest) if value is not None), TREND_CELLS - 1)
    return sparkline(highest[first:], TREND_CELLS)


def warning_detail(warnings: Sequence[GpuWarning]) -> str | None:
    """Return the detail line of a GPU's row: its worst warning with advice; None without warnings."""
    if not warnings:
        return None
    more = f" (+{len(warnings) - 1}; enter shows all)" if len(warnings) > 1 else ""
    return f"└ ! {warnings[0].text}{more} {ADVICE[warnings[0].kind]}"


def gpu_text(gpu: GpuReading, warnings: Sequence[GpuWarning], now: datetime) -> str:
    """Return all readings of a GPU, one per line, with source and age."""
    tensor = "" if gpu.tensor_active is None else percent(gpu.tensor_active)
    hot_memory = "" if gpu.memory_temperature_c is None else temperature(gpu.memory_temperature_c)
    slowed = "not reported" if gpu.throttles is None else ", ".join(sorted(gpu.throttles)) or "nothing"
    fields = (
        ("GPU", f"{gpu.name} of {gpu.node}"),
        ("model", gpu.model),
        ("UUID", gpu.uuid),
        ("MIG", gpu.mig_profile),
        ("held by", ", ".join(f"{each.namespace}/{each.pod}" for each in gpu.holders) or "none reported"),
        ("utilisation", percent(gpu.utilisation)),
        ("tensor cores", tensor),
        ("memory", gpu_memory(gpu.memory_used, gpu.memory_total)),
        ("power", power(gpu.power_w, gpu.power_limit_w)),
        ("temperature", temperature(gpu.temperature_c)),
        ("memory temp", hot_memory),
        ("clock", format_clocks(gpu.sm_clock_mhz, gpu.throttles)),
        ("throttled by", slowed),
        ("last XID", "not reported" if gpu.xid is None else str(gpu.xid or "none")),
        ("ECC errors", "not reported" if gpu.ecc_errors is None else str(gpu.ecc_errors)),
        ("source", f"{gpu.source}, {ago(gpu.read_at, now)}"),
    )
    lines = [f"{name:<13} {value}" for name, value in fields if value]
    return "\n".join([*(f"! {warning_text(each)}" for each in warnings), *([""] if warnings else []), *lines])


_NOTHING_READ = Telemetry()


class TelemetryWatch:
    """Telemetry of one view; polls only while the view is shown."""

    def __init__(
        self, view: View, nodes: Callable[[], Iterable[str]], jobs: Callable[[], Iterable[JobRef]] = tuple
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


class TelemetryList(ListView):
    """Follows the telemetry of its rows; `render_rows` of a subclass ends with `self._telemetry.follow()`."""

    def __init__(
        self, nodes: Callable[[], Iterable[str]], jobs: Callable[[], Iterable[JobRef]] = tuple
    ) -> None:
        super().__init__()
        self._telemetry = TelemetryWatch(self, nodes, jobs)

    def resume_feeds(self) -> None:
        """Start polling."""
        self._telemetry.follow()

    def pause_feeds(self) -> None:
        """Stop polling; the time until it is shown again counts as not observed."""
        self._telemetry.stop()

    def refresh_feeds(self) -> None:
        """Poll now."""
        self._telemetry.refresh()
