"""The GPUs of one node with their holders, and those of one job's ranks with the usage of its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Label

from k8s.gpus.gpu_warnings import GpuWarning
from k8s.gpus.readings import GpuKey, GpuReading, NodeReadings, PodReadings, RankReading, holders_of
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Holder, Instance, Job, NodeRow, device_sums, format_sums
from k8s.text.sanitize import sanitize
from tui.screens.base.telemetry_list import GPU_COLUMNS, TelemetryList, gpu_cells, gpu_text, warning_detail
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.lists import GPUS
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, Column, Row
from tui.tables.nodes import model_text, node_status
from tui.text.empty_states import no_cluster
from tui.text.format import NOTHING, CellStyle, Clock, plural, status_run
from tui.text.gpu_bar import BAD, FREE, MOST_CELLS, job_mark
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
    Column("gpus", "GPUS", min_width=10, sorts_largest_first=True),
    Column("job", "JOB", min_width=12, elide="middle", max_width=40),
    Column("namespace", "NAMESPACE", priority=2, elide="end", min_width=9, max_width=20),
    Column("user", "USER", priority=3, elide="end", min_width=4, max_width=14),
    Column("status", "STATUS", min_width=8),
    Column("since", "SINCE", align="right", is_age=True),
    Column("pod", "POD", priority=1, elide="middle", min_width=16, max_width=60),
)
USAGE_COLUMNS = (
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
DEVICE_COLUMNS = (
    Column("gpu", "GPU", min_width=3),
    *GPU_COLUMNS,
    Column("held", "HELD BY", elide="middle", min_width=14, max_width=60, priority=5),
)
# Status of a scheduled pod of which only the phase is known.
_WORDS = {"Running": "Running", "Pending": "Starting"}
_STYLES: tuple[tuple[str, str, str, CellStyle], ...] = (
    ("free", FREE, "free", "gpu-free"),
    ("unhealthy", BAD, "unhealthy", "gpu-bad"),
)


class GpusView(TelemetryList):
    """The GPUs of a node or a job, with their readings."""

    VIEW: ViewDeclaration = GPUS

    @property
    def node_name(self) -> str:
        """Name of the node of the row under the cursor; empty if there is none."""
        return ""

    def action_next_pane(self) -> None:
        """Focus the next table, if there are two."""
        self.flash("The readings are in the list itself.")

    def show_gpu(self, gpu: GpuReading | None, warnings: Sequence[GpuWarning]) -> None:
        """Show all readings of a GPU."""
        if gpu is None:
            self.flash("No readings for this GPU.")
        else:
            text = gpu_text(gpu, warnings, datetime.now(UTC))
            self.app.push_screen(DetailScreen(f"GPU {gpu.name} of {gpu.node}", text))


class NodeGpusView(GpusView):
    """Pods that hold GPUs of one node, and its free GPUs."""

    CSS_PATH: ClassVar = "gpus.tcss"
    ON_ENTER: str = "open_job"
    COLUMNS: tuple[Column, ...] = COLUMNS
    ORDER: tuple[str, bool] | None = None

    def __init__(self, node: str) -> None:
        """Show the node with this name."""
        super().__init__(lambda: (node,))
        self._node_name = node
        self._jobs: dict[str, tuple[Job, Instance]] = {}
        self._devices = Table(DEVICE_COLUMNS, id="devices")

    @property
    def node_name(self) -> str:
        """Name of the node."""
        return self._node_name

    def compose_body(self) -> ComposeResult:
        """Lay out the holders above the readings."""
        yield from super().compose_body()
        yield Label("", id="telemetry", markup=False)
        yield self._devices

    def on_mount(self) -> None:
        """Keep the GPUs in their given order."""
        self._devices.order = None

    @property
    def is_drawable(self) -> bool:
        """True if both tables are mounted."""
        return super().is_drawable and self._devices.is_mounted

    def action_next_pane(self) -> None:
        """Focus the other table."""
        holders = self.query_one(Table)
        has_readings = self.has_class("-read")
        (self._devices if has_readings and not self._devices.has_focus else holders).focus()
        if not has_readings:
            self.flash("No telemetry for these GPUs.")

    def render_rows(self, table: Table) -> None:
        """Fill the tables and the lines around them from the snapshot."""
        snapshot = self.snapshot
        clock = Clock.ahead(snapshot.clock_offset_s)
        node = next((node for node in snapshot.nodes if node.name == self._node_name), None)
        table.empty = no_cluster(snapshot) or "No GPUs on this node, and no pod holds one."
        self.set_line("notice", snapshot.stale)
        self.set_list_title(_title(self._node_name, node, clock))
        self._jobs = _jobs_by_pod(snapshot, node) if node else {}
        table.set_rows(_rows(node, self._jobs, clock) if node else [])
        self._draw_devices(snapshot, self._telemetry.of_node(self._node_name))
        self._telemetry.follow()
        held = f" · {format_sums([node])} held" if node else ""
        jobs, pods = len(node.jobs) if node else 0, len(node.holders) if node else 0
        self.set_line("totals", f"Σ {plural(pods, 'pod')} of {plural(jobs, 'job')}{held}")

    def _draw_devices(self, snapshot: ClusterSnapshot, read: NodeReadings | None) -> None:
        gpus = read.gpus if read is not None else ()
        self.set_class(bool(gpus), "-read")
        sources = source_text((read,), datetime.now(UTC)) if read is not None else ""
        why_not = missing_text(read.missing) if read is not None and read.missing is not None else ""
        self.set_line("telemetry", "  ".join(filter(None, (sources, why_not))))
        self._devices.set_rows([self._device_row(gpu, snapshot) for gpu in gpus])

    def _device_row(self, gpu: GpuReading, snapshot: ClusterSnapshot) -> Row:
        warnings = self._telemetry.warnings(gpu)
        held = ", ".join(each.pod for each in holders_of(gpu, snapshot.nodes))
        name = f"{gpu.name} {gpu.mig_profile}".rstrip()
        return Row(
            gpu.name,
            (
                Cell(
                    f"{name}{' !' * bool(warnings)}",
                    warning_style(warnings) or "bright",
                    sort=float(gpu.index),
                ),
                *gpu_cells(gpu, self._telemetry.samples(gpu.key), is_held=bool(held)),
                Cell(held or NOTHING, "quiet"),
            ),
            warning_detail(warnings),
        )

    def on_table_row_selected(self, event: Table.RowSelected) -> None:
        """Show the details of a GPU; open the job of a holder."""
        event.stop().prevent_default()
        self.action_open()

    def action_open(self) -> None:
        """Open the job of the holder under the cursor, or show the GPU's details."""
        if not self._devices.has_focus:
            self.action_request(self.ON_ENTER)
            return
        read = self._telemetry.of_node(self._node_name)
        gpus = read.gpus if read is not None else ()
        gpu = next((gpu for gpu in gpus if gpu.name == self._devices.cursor_key), None)
        self.show_gpu(gpu, self._telemetry.warnings(gpu) if gpu is not None else ())

    def current_job(self) -> JobRef | None:
        """Return the job of the pod under the cursor."""
        found = self._under_cursor()
        return found[0].ref if found else None

    def selected_instance(self) -> str:
        """Return the instance of the pod under the cursor."""
        found = self._under_cursor()
        return found[1].name if found else ""

    def _under_cursor(self) -> tuple[Job, Instance] | None:
        return self._jobs.get(self.selected_row())

    def action_request(self, name: str) -> None:
        """Request an action, or explain why the row has no job."""
        action = self.context.actions.find(name)
        if self._under_cursor() or action is None or not action.acts_on_job:
            super().action_request(name)
        elif self.selected_row() in ("free", "unhealthy", ""):
            self.flash("No job holds these GPUs.")
        else:
            self.flash("Its job is in another namespace; :ns all shows all.")


class UsageView(GpusView):
    """Ranks of one job with their usage."""

    COLUMNS: tuple[Column, ...] = USAGE_COLUMNS
    ORDER: tuple[str, bool] | None = None

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
        self.action_open()

    def action_open(self) -> None:
        """Show the details of the GPU of the rank under the cursor."""
        selected = self.selected_row()
        gpus = {f"{rank.instance.name} {rank.gpu.name}": rank.gpu for rank in self._ranks if rank.gpu}
        gpu = gpus.get(selected)
        self.show_gpu(gpu, self._warnings.get(gpu.key, ()) if gpu is not None else ())

    @property
    def node_name(self) -> str:
        """Name of the node of the rank under the cursor; empty if there is none."""
        job, name = self.snapshot.job(self.ref), self.selected_instance()
        return next((each.node for each in job.instances if each.name == name), "") if job is not None else ""


def _title(name: str, node: NodeRow | None, clock: Clock) -> str:
    if node is None:
        return f"Nodes › {sanitize(name)}   not found; it may have been removed"
    _, total, what = device_sums([node])[-1]
    model = f"{total} × {model_text(node)}" if node.gpu_model and not node.parts else f"{total} {what}"
    return f"Nodes › {sanitize(name)}   {sanitize(model)} · {node_status(node, clock)}"


def _jobs_by_pod(snapshot: ClusterSnapshot, node: NodeRow) -> dict[str, tuple[Job, Instance]]:
    wanted = {(each.namespace, each.job) for each in node.holders}
    return {
        f"{job.ref.namespace}/{instance.pod}": (job, instance)
        for job in snapshot.jobs
        if (job.ref.namespace, job.ref.name) in wanted
        for instance in job.instances
        if instance.node == node.name
    }


def _rows(node: NodeRow, jobs: dict[str, tuple[Job, Instance]], clock: Clock) -> list[Row]:
    places = {(namespace, name): place for place, (namespace, name, _) in enumerate(node.jobs)}
    rows = []
    for holder in sorted(node.holders, key=lambda each: (places[each.namespace, each.job], each.pod)):
        key = f"{holder.namespace}/{holder.pod}"
        job, instance = jobs.get(key, (None, None))
        status = (
            status_run(instance.status, instance.reason, instance.restarts)
            if instance
            else status_run(_WORDS.get(holder.phase, "Unknown"))
        )
        mark, style = job_mark(node, places[holder.namespace, holder.job])
        cells = min(holder.gpus, MOST_CELLS)
        rows.append(
            Row(
                key,
                (
                    Cell.of((mark * cells, style), (f" {_amount(holder)}", ""), sort=float(holder.units)),
                    Cell(holder.job, "bright"),
                    Cell(holder.namespace, "quiet"),
                    Cell(job.user if job else NOTHING, "quiet"),
                    Cell(*status),
                    Cell(clock.age(holder.since), sort=-holder.since.timestamp() if holder.since else None),
                    Cell(holder.pod, "quiet"),
                ),
                f"└ {instance.reason}" if instance and instance.reason else None,
            )
        )
    left = (max(0, node.gpus_total - node.gpus_allocated), node.gpus_unhealthy)
    for amount, (key, mark, words, style) in zip(left, _STYLES, strict=True):
        if amount:
            cell = Cell.of((mark * min(amount, MOST_CELLS), style), (f" {amount}", ""), sort=float(amount))
            nothing = [Cell(NOTHING, "quiet")] * (len(COLUMNS) - 2)
            only = "only for pods that tolerate its taint" if node.is_open else "but the node takes no pods"
            why = "" if key != "free" or node.is_schedulable else f", {only}"
            rows.append(Row(key, (cell, Cell(words + why, "quiet"), *nothing)))
    return rows


def _amount(holder: Holder) -> str:
    if holder.devices and len(holder.devices) == holder.gpus:
        return ",".join(map(str, sorted(holder.devices)))
    return str(holder.gpus) if holder.gpus else f"{holder.units}G" if holder.units else "shared"


def _pod_cells(used: PodReadings | None) -> list[Cell]:
    usage, traffic = (used.usage, used.traffic) if used is not None else (None, None)
    return [
        Cell(words, "quiet")
        for words in (cores(usage), host_memory(usage), network(traffic), storage(traffic))
    ]
