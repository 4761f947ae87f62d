"""The list of nodes, with a bar of GPUs coloured by job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from k8s.snapshot import ClusterSnapshot, Job, Missing, NodeRow, format_sums
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.screens.base.list_view import progress_of
from tui.screens.base.request import ActionRequest
from tui.screens.base.telemetry_list import TelemetryList
from tui.screens.lists import NODES
from tui.settings.keys import ViewDeclaration
from tui.tables.column import ListColumn, console_columns
from tui.tables.nodes import COLUMNS, READING_KEYS, NodesNow, node_row
from tui.text.empty_states import no_nodes
from tui.text.format import Clock, plural
from tui.text.gpu_words import source_text
from tui.widgets.table.row_set import RowCache, for_ever
from tui.widgets.table.table import Table

COLUMNS_WITHOUT_READINGS = tuple(each for each in console_columns(COLUMNS) if each.key not in READING_KEYS)
MOST_BLOCKS = 6
_WAITING = (Status.QUEUED, Status.PENDING)


class NodesView(TelemetryList):
    """List of nodes."""

    VIEW: ViewDeclaration = NODES
    ON_ENTER: str = "node_gpus"
    KEEPS_ROW: bool = True
    COLUMNS: tuple[ListColumn[NodeRow, NodesNow], ...] = COLUMNS_WITHOUT_READINGS

    def __init__(self, begin_with: str = "") -> None:
        """Create the view.

        Args:
            begin_with: Node to select first, or a filter with a leading slash.
        """
        super().__init__(self._visible_nodes)
        self._row_cache: RowCache[NodeRow] = RowCache()
        self._first_node = "" if begin_with.startswith("/") else begin_with
        first_filter = begin_with.removeprefix("/") if begin_with.startswith("/") else ""
        self.set_reactive(NodesView.filter_text, first_filter)

    def render_view(self) -> None:
        """Draw the table, and select the first node once it is listed."""
        super().render_view()
        if self._first_node and self.query_one(Table).move_to(self._first_node):
            self._first_node = ""

    def labels_of(self, key: str) -> Mapping[str, str]:
        """Return a node's labels."""
        node = self._node_of(key)
        return node.labels if node is not None else {}

    def on_table_row_highlighted(self, event: Table.RowHighlighted) -> None:
        """Follow the nodes that became visible."""
        self._telemetry.follow()

    def _visible_nodes(self) -> list[str]:
        in_sight = {row.key for row in self.query_one(Table).visible_rows}
        return [node.name for node in self.snapshot.nodes if node.name in in_sight and node.gpus_total]

    def render_rows(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""
        snapshot = self.snapshot
        nodes = snapshot.nodes
        clock = Clock.ahead(snapshot.clock_offset_s)
        table.empty = no_nodes(snapshot)
        is_listed = "nodes" not in snapshot.problems
        telemetry = self._telemetry.newest
        columns = self.columns_of(COLUMNS, () if any(telemetry.gpus) else READING_KEYS)
        now = NodesNow(clock, is_listed, telemetry.nodes)
        rows = self._row_cache.rows(
            nodes,
            lambda node: node_row(node, columns, now),
            drawn_for=(is_listed, clock.is_rough, telemetry),
            now_s=clock.now.timestamp(),
            age_s=lambda node: _age_s(node, clock.now),
        )
        table.set_columns(columns, rows)
        self._telemetry.follow()
        read = source_text(telemetry.nodes.values(), datetime.now(UTC))
        self.set_list_title(f"Nodes ({self.amount_text(len(nodes))})", read, *progress_of(snapshot))
        self.set_line("notice", snapshot.stale or "\n".join(map(_partial, snapshot.missing_gpus)))
        self.set_line("totals", totals(snapshot))

    def _node_of(self, key: str | None) -> NodeRow | None:
        return next((node for node in self.snapshot.nodes if node.name == key), None)

    def selected_object(self) -> str:
        """Return the node under the cursor."""
        return self.selected_row()

    def action_largest_job(self) -> None:
        """Open the job with the most GPUs on the node under the cursor."""
        node = self._node_of(self.query_one(Table).cursor_key)
        jobs = {(job.ref.namespace, job.ref.name): job for job in self.snapshot.jobs}
        for namespace, name, _ in node.jobs if node else ():
            if job := jobs.get((namespace, name)):
                self.post_message(ActionRequest("open_job", targets=[job.ref]))
                return
        held = "Its GPUs are held from another namespace; :ns all shows all." if node and node.jobs else ""
        self.flash(held or "No job holds a GPU of this node.")


def totals(snapshot: ClusterSnapshot) -> str:
    """Summarise all nodes, with the sizes of their free blocks: `8×3·4·2`."""
    nodes = plural(len(snapshot.nodes), "node")
    if "nodes" in snapshot.problems:
        return f"Σ {nodes} · {snapshot.gpus_allocated} of ? GPUs held"
    if snapshot.nodes and not snapshot.gpus_total:
        return f"Σ {nodes} · no GPUs: is the vendor's device plugin installed?"
    blocks = Counter(node.largest_free for node in snapshot.nodes if node.largest_free)
    sizes = [f"{size}×{blocks[size]}" if blocks[size] > 1 else str(size) for size in sorted(blocks)[::-1]]
    words = f"Σ {nodes} · {format_sums(snapshot.nodes)} held"
    if sizes:
        words += f" · free in blocks of {'·'.join(sizes[:MOST_BLOCKS])}{'·…' * (len(sizes) > MOST_BLOCKS)}"
    largest = snapshot.largest_free
    name, wants = max(map(_widest_gpu_wait, snapshot.jobs), key=lambda each: each[1], default=("", 0))
    if wants > largest:
        words += f", {sanitize(name)} needs {wants}"
    return words


def _widest_gpu_wait(job: Job) -> tuple[str, int]:
    if job.status not in _WAITING or job.gpus_allocated >= job.gpus_requested:
        return "", 0
    return job.ref.name, max((each.gpus for each in job.instances if not each.node), default=0)


def _partial(missing: Missing) -> str:
    if missing.verb == "read":
        return missing.words
    if missing.resource == "nodes":
        return f"{missing.words} Showing the nodes of visible pods, without their free GPUs."
    return f"pods: {missing.words} GPUs held by others are not counted."


def _age_s(node: NodeRow, now: datetime) -> float:
    ready = next((each for each in node.conditions if each.type == "Ready"), None)
    if ready is None or ready.status == "True" or ready.since is None:
        return for_ever(node)
    return (now - ready.since).total_seconds()
