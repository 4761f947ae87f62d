"""Every node: its GPUs as a bar, how many are held, and by whom."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from k8s.snapshot import ClusterSnapshot, Missing, NodeRow
from tui.format import NOTHING, Look, count, gpu_runs, memory, plural
from tui.keys import NODES, Key
from tui.screens.kept_rows import KeptRows
from tui.screens.list_view import ListView, progress_of
from tui.screens.view import bindings
from tui.widgets.table import Cell, Column, Row, Table

COLUMNS = (
    Column("name", "NODE", min_width=12, elide="middle", max_width=40),
    Column("bar", "GPUS", min_width=8),
    Column("held", "HELD", align="right"),
    Column("free", "FREE", align="right", priority=2),
    Column("status", "STATUS", min_width=8, elide="end", max_width=34),
    Column("model", "MODEL", priority=5, elide="end", min_width=8, max_width=26),
    Column("holders", "HELD BY", min_width=10, elide="end", max_width=80, priority=1),
    Column("ip", "ADDRESS", priority=6),
    Column("mode", "MODE", priority=7),
    Column("memory", "MEMORY", align="right", priority=8),
)
BAR_WIDTH = 8
"""Cells of a node's bar: one for each GPU of the usual machine."""


class NodesView(ListView):
    """The list of nodes."""

    KEYS: ClassVar[tuple[Key, ...]] = NODES
    BINDINGS: ClassVar[list[BindingType]] = bindings(NODES)
    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    DESCENDING: ClassVar[frozenset[str]] = frozenset({"free"})

    def __init__(self, *, ascii_only: bool = False) -> None:
        """Make the view."""
        super().__init__(ascii_only=ascii_only)
        self._kept: KeptRows[NodeRow] = KeptRows()

    def draw(self, table: Table) -> None:
        """Fill the table and the lines around it from the snapshot."""
        snapshot = self.snapshot
        by, is_turned = self.order
        table.set_sort_mark(by, descending=is_turned)
        nodes = sorted(snapshot.nodes, key=_SORTS[by], reverse=is_turned)
        table.empty = _empty(snapshot)
        is_listed = "nodes" not in snapshot.problems
        rows = self._kept.rows(
            nodes,
            lambda node: _row(node, is_listed=is_listed, ascii_only=self.ascii_only),
            drawn_for=(is_listed, self.ascii_only),
        )
        table.set_rows(rows)
        filtered = (f"/{self.filter_text}",) if self.filter_text else ()
        self.set_title("  ".join((f"Nodes ({count(len(nodes))})", *progress_of(snapshot), *filtered)))
        self.put("notice", snapshot.stale or "\n".join(map(_partial, snapshot.missing_gpus)))
        free = sorted((node.gpus_free for node in nodes if node.gpus_free), reverse=True)
        blocks = "·".join(str(size) for size in free[:8])
        total = snapshot.gpus_total if is_listed else "?"
        self.put(
            "totals",
            f"Σ {plural(len(nodes), 'node')} · {snapshot.gpus_allocated} of {total} GPUs held"
            + (f" · free in blocks of {blocks}" if blocks else ""),
        )

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Open the job that holds most of the node."""
        event.stop()
        node = next((node for node in self.snapshot.nodes if node.name == event.key), None)
        for namespace, name, _ in node.jobs if node else ():
            for job in self.snapshot.jobs:
                if (job.ref.namespace, job.ref.name) == (namespace, name):
                    self.post_message(self.Go("open", refs=[job.ref]))
                    return
        self.notify("No job of this list holds GPUs of this node.", markup=False)

    def action_next_view(self) -> None:
        """Go to the jobs."""
        self.post_message(self.Go("jobs"))


def _empty(snapshot: ClusterSnapshot) -> str:
    if "nodes" in snapshot.problems:
        return "No pod is seen on any node.\nJobs are shown all the same."
    return "No nodes." if snapshot.is_synced else "Reading the cluster…"


def _partial(missing: Missing) -> str:
    """Say what a refusal means for the numbers of this view."""
    if missing.resource == "nodes":
        return f"{missing.words} Shown are those that pods are seen on, without their free GPUs."
    return f"pods: {missing.words} GPUs held by others are not counted."


def _row(node: NodeRow, *, is_listed: bool, ascii_only: bool) -> Row:
    total, held, bad, unit = node.gpus_total, node.gpus_allocated, node.gpus_unhealthy, ""
    free = node.gpus_free
    if node.shared is not None:
        total, held, unit = node.shared.total_gib, node.shared.allocated_gib, "G"
        free = max(0, total - held) if node.takes_pods else 0
    width = min(BAR_WIDTH, total + bad) or 1
    bar = gpu_runs(held, max(0, total - held), bad, width=width, ascii_only=ascii_only)
    look: Look = "" if node.status == "Ready" else "failed" if "NotReady" in node.status else "pending"
    status = (
        node.status + (f" · {bad} unhealthy" if bad else "") + (" · simulated" if node.is_simulated else "")
    )
    holders = ", ".join(f"{job} {amount}" for _, job, amount in node.jobs)
    return Row(
        node.name,
        (
            Cell(node.name, "bright"),
            Cell.of(*bar) if total or bad else Cell(NOTHING, "quiet"),
            Cell(f"{held}/{total if is_listed else '?'}{unit}" if total or held else NOTHING),
            Cell(f"{free}{unit}" if total else NOTHING, "quiet"),
            Cell(status, look or ("gpu-bad" if bad else "")),
            Cell(node.gpu_model or NOTHING, "quiet"),
            Cell(holders or NOTHING, "" if holders else "quiet"),
            Cell(node.ip or NOTHING, "quiet"),
            Cell(node.mode or NOTHING, "quiet"),
            Cell(memory(node.gpu_memory) if node.gpu_memory else NOTHING, "quiet"),
        ),
    )


_SORTS = {"name": lambda node: node.name, "free": lambda node: node.gpus_free}
