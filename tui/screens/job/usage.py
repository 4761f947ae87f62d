"""Resource usage of one job: GPU per rank; CPU, memory, network and storage per pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from k8s.gpus.gpu_warnings import GpuWarning
from k8s.gpus.readings import GpuKey, PodReadings, RankReading
from k8s.kinds import JobRef
from k8s.snapshot import Instance, Job
from k8s.text.sanitize import sanitize
from tui.screens.base.telemetry_list import GPU_COLUMNS, TelemetryList, gpu_cells, gpu_text, warning_detail
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.job import USAGE
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, Column, Row
from tui.text.empty_states import no_cluster
from tui.text.format import NOTHING, plural
from tui.text.gpu_words import (
    cores,
    describe_pod_source,
    host_memory,
    missing_text,
    network,
    percent,
    power,
    source_text,
    storage,
    warning_style,
)
from tui.widgets.table.table import Table

COLUMNS = (
    Column("rank", "RANK", align="right", min_width=4),
    Column("instance", "INSTANCE", elide="middle", min_width=10, max_width=40),
    *GPU_COLUMNS,
    Column("gpu", "GPU", elide="middle", min_width=8, max_width=40, priority=5),
    Column("cpu", "CPU", align="right", priority=7, sorts_largest_first=True),
    Column("ram", "RAM", align="right", priority=7, sorts_largest_first=True),
    Column("network", "NETWORK B/S", align="right", priority=8),
    Column("storage", "STORAGE B/S", align="right", priority=9),
)
# Repeats the pod's number from the row above.
_DITTO = '"'


class UsageView(TelemetryList):
    """Ranks of one job with their usage."""

    VIEW: ClassVar[ViewDeclaration] = USAGE
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = None

    def __init__(self, ref: JobRef) -> None:
        super().__init__(self._gpu_nodes, lambda: (ref,))
        self.ref = ref
        self._ranks: tuple[RankReading, ...] = ()
        self._warnings: Mapping[GpuKey, Sequence[GpuWarning]] = {}

    def current_job(self) -> JobRef:
        """Return the job."""
        return self.ref

    def selected_instance(self) -> str:
        """Return the instance of the row under the cursor."""
        return (self.selected_row() or "").partition(" ")[0]

    def _gpu_nodes(self) -> tuple[str, ...]:
        job = self.snapshot.job(self.ref)
        instances = job.instances if job is not None else ()
        return tuple(dict.fromkeys(each.node for each in instances if each.node and each.gpus))

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it."""
        snapshot, telemetry = self.snapshot, self._telemetry.newest
        job = snapshot.job(self.ref)
        table.empty = no_cluster(snapshot) or "No pod of this job is running."
        self._ranks = self._telemetry.ranks(job) if job is not None else ()
        self._warnings = self._telemetry.job_warnings(self._ranks)
        table.set_rows(self._rows(job, telemetry.pods) if job is not None else [])
        now = datetime.now(UTC)
        nodes = [each for name in self._gpu_nodes() if (each := telemetry.nodes.get(name))]
        names = {each.pod for each in job.instances} if job is not None else set[str]()
        pods = [
            each
            for (space, name), each in telemetry.pods.items()
            if space == self.ref.namespace and name in names
        ]
        sources = source_text(nodes, now), describe_pod_source(pods, now)
        self.set_list_title(f"Jobs › {sanitize(self.ref.name)} › usage", *sources)
        missing = {missing_text(each.missing): each.node for each in nodes if each.missing is not None}
        self.set_line(
            "notice", snapshot.stale or "\n".join(f"{node}: {words}" for words, node in missing.items())
        )
        self.set_line("totals", self._totals())
        self._telemetry.follow()

    def _rows(self, job: Job, pods: Mapping[tuple[str, str], PodReadings]) -> list[Row]:
        found: list[Row] = []
        for instance in job.instances:
            if not instance.pod or not instance.node or instance.status.is_final:
                continue
            used = pods.get((self.ref.namespace, instance.pod))
            own: Sequence[RankReading] = [each for each in self._ranks if each.instance is instance]
            for place, rank in enumerate(own or [RankReading(instance, None, None)]):
                found.append(self._row(rank, instance, used, is_first=place == 0))
        return found

    def _row(self, rank: RankReading, instance: Instance, used: PodReadings | None, *, is_first: bool) -> Row:
        gpu = rank.gpu
        warnings = self._warnings.get(gpu.key, ()) if gpu is not None else ()
        of_pod = _pod_cells(used)
        if not is_first:
            of_pod = [cell if cell.text == NOTHING else Cell(_DITTO, "quiet") for cell in of_pod]
        name = NOTHING if rank.rank is None else f"{'~' * rank.is_assumed}{rank.rank}"
        return Row(
            f"{instance.name} {gpu.name if gpu is not None else name}",
            (
                Cell(f"{'! ' * bool(warnings)}{name}", warning_style(warnings), sort=float(rank.rank or 0)),
                Cell(instance.name, "bright"),
                *gpu_cells(gpu, self._telemetry.samples(gpu.key) if gpu is not None else ()),
                Cell(f"{gpu.node}:{gpu.name}" if gpu is not None else NOTHING, "quiet"),
                *of_pod,
            ),
            warning_detail(warnings),
        )

    def _totals(self) -> str:
        gpus = [each.gpu for each in self._ranks if each.gpu is not None]
        known = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
        watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
        bad = sum(map(len, self._warnings.values()))
        parts = [f"Σ {plural(len(gpus), 'GPU')} seen"]
        parts += (
            [f"{percent(sum(known) / len(known))} in the mean, {percent(min(known))} the least"]
            if known
            else []
        )
        parts += [power(sum(watts))] if watts else []
        parts += [plural(bad, "warning")] if bad else []
        return " · ".join(parts)

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Show the details of a rank's GPU."""
        event.stop().prevent_default()
        self.action_gpu()

    def action_gpu(self) -> None:
        """Show the details of the GPU of the rank under the cursor."""
        selected = self.selected_row()
        for rank in self._ranks:
            if rank.gpu is not None and f"{rank.instance.name} {rank.gpu.name}" == selected:
                words = gpu_text(rank.gpu, self._warnings.get(rank.gpu.key, ()), datetime.now(UTC))
                self.app.push_screen(DetailScreen(f"GPU {rank.gpu.name} of {rank.gpu.node}", words))
                return
        self.flash("No readings for this GPU.")


def _pod_cells(used: PodReadings | None) -> list[Cell]:
    usage, traffic = (used.usage, used.traffic) if used is not None else (None, None)
    return [
        Cell(words, "quiet")
        for words in (cores(usage), host_memory(usage), network(traffic), storage(traffic))
    ]
