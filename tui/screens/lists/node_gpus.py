"""The GPUs of one node: their holders, and their readings where available."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Label

from k8s.gpus.readings import GpuReading, NodeReadings, holders_of
from k8s.kinds import JobRef
from k8s.snapshot import ClusterSnapshot, Holder, Instance, Job, NodeRow, device_sums, format_sums
from k8s.text.sanitize import sanitize
from tui.screens.base.telemetry_list import GPU_COLUMNS, TelemetryList, gpu_cells, gpu_text, warning_detail
from tui.screens.dialogs.detail import DetailScreen
from tui.screens.lists import NODE_GPUS
from tui.settings.keys import ViewDeclaration
from tui.tables.column import Cell, Column, Row
from tui.tables.nodes import model_text, node_status
from tui.text.empty_states import no_cluster
from tui.text.format import NOTHING, CellStyle, Clock, plural, status_run
from tui.text.gpu_bar import BAD, FREE, MOST_CELLS, job_mark
from tui.text.gpu_words import missing_text, source_text, warning_style
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


class NodeGpusView(TelemetryList):
    """Pods that hold GPUs of one node, and its free GPUs."""

    CSS_PATH: ClassVar = "node_gpus.tcss"
    VIEW: ClassVar[ViewDeclaration] = NODE_GPUS
    ON_ENTER: ClassVar[str] = "open_job"
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    ORDER: ClassVar[tuple[str, bool] | None] = None

    def __init__(self, node: str) -> None:
        """Show the node with this name."""
        super().__init__(lambda: (node,))
        self._node_name = node
        self._jobs: dict[str, tuple[Job, Instance]] = {}
        self._devices = Table(DEVICE_COLUMNS, id="devices")

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
        if event.table is not self._devices:
            return
        event.stop().prevent_default()
        read = self._telemetry.of_node(self._node_name)
        for gpu in read.gpus if read is not None else ():
            if gpu.name == event.key:
                text = gpu_text(gpu, self._telemetry.warnings(gpu), datetime.now(UTC))
                self.app.push_screen(DetailScreen(f"GPU {gpu.name} of {self._node_name}", text))

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
