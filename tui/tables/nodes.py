"""The list of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from k8s.gpus.readings import GpuReading, NodeReadings
from k8s.snapshot import Holder, NodeRow, SharedGpuMemory
from k8s.text.sanitize import sanitize
from tui.tables.column import Cell, ListColumn, Row, Values, cells
from tui.text.format import NOTHING, CellStyle, Clock, memory
from tui.text.gpu_bar import format_holder, node_cells
from tui.text.gpu_words import gpu_memory, percent, power, temperature

if TYPE_CHECKING:
    from k8s.models import Taint

Number = TypeVar("Number", int, float)


class NodesNow(msgspec.Struct, frozen=True):
    """State shared by all nodes of the list."""

    clock: Clock
    is_listed: bool = True
    """False if nodes may not be listed: then only those of visible pods are known, by name."""
    readings: Mapping[str, NodeReadings] = msgspec.field(default_factory=dict)


def node_status(node: NodeRow, clock: Clock) -> str:
    """Return a node's status in one word, with details that matter."""
    base, *closed = node.status.split(", ")
    words = [base]
    if base == "NotReady":
        ready = next((each for each in node.conditions if each.type == "Ready"), None)
        if ready is not None and ready.since is not None:
            words = [f"{base} {clock.age(ready.since)}"]
    if closed:
        words = [closed[0].capitalize(), *closed[1:]] if base == "Ready" else [*words, *closed]
    words += [each.type for each in node.faults]
    if node.gpus_unhealthy:
        words.append(f"{node.gpus_unhealthy} unhealthy")
    words += [node.cordon] if node.cordon else []
    return sanitize(" · ".join(words)) + (" · simulated" if node.is_simulated else "")


def node_style(node: NodeRow) -> CellStyle:
    """Return the style of a node's status; a healthy node is quiet."""
    if "NotReady" in node.status:
        return "failed"
    if not node.is_open or node.faults:
        return "pending"
    return "gpu-bad" if node.gpus_unhealthy else "quiet"


def model_text(node: NodeRow) -> str:
    """Return a node's GPU model without the vendor, with the memory size if the model lacks it."""
    model = node.gpu_model.removeprefix("NVIDIA-")
    size = f"{memory(node.gpu_memory)}" if node.gpu_memory and "GB" not in model else ""
    return " ".join(filter(None, (model, size)))


def format_taints(taint: Taint, *, is_short: bool = False) -> str:
    """Format a taint as `NoSchedule gpu=only`; `is_short` omits the domain of the key."""
    key = taint.key.rpartition("/")[2] if is_short else taint.key
    return f"{taint.effect} {key}" + (f"={taint.value}" if taint.value else "")


def significant_taints(node: NodeRow) -> tuple[Taint, ...]:
    """Return the taints that the node's status does not imply."""
    return tuple(each for each in node.taints if not each.key.startswith("node.kubernetes.io/"))


def _gpus(node: NodeRow) -> tuple[int, int, int, str]:
    if node.shared is None:
        return node.gpus_total, node.gpus_allocated, node.gpus_free, ""
    total, held = node.shared.total_gib, node.shared.allocated_gib
    return total, held, max(0, total - held) if node.is_schedulable else 0, "G"


def _has_gpus(node: NodeRow) -> bool:
    total, held, _, _ = _gpus(node)
    return bool(total or held or node.gpus_unhealthy)


def _bar(node: NodeRow, _now: NodesNow) -> Cell:
    _, held, _, _ = _gpus(node)
    return Cell.of(*node_cells(node), sort=float(held)) if _has_gpus(node) else Cell(NOTHING, "quiet")


def _held(node: NodeRow, now: NodesNow) -> Cell:
    total, held, _, unit = _gpus(node)
    if not _has_gpus(node):
        return Cell(NOTHING)
    return Cell(f"{held}/{total if now.is_listed else '?'}{unit}", sort=float(held))


def _free(node: NodeRow, _now: NodesNow) -> Cell:
    _, _, free, unit = _gpus(node)
    return Cell(f"{free}{unit}", "quiet", sort=float(free)) if _has_gpus(node) else Cell(NOTHING, "quiet")


def _total(node: NodeRow, now: NodesNow) -> Cell:
    total, _, _, unit = _gpus(node)
    return Cell(f"{total}{unit}" if now.is_listed else "?")


def _allocated(node: NodeRow, _now: NodesNow) -> Cell:
    _, held, _, unit = _gpus(node)
    return Cell(f"{held}{unit}")


def _holders(node: NodeRow, _now: NodesNow) -> Cell:
    return Cell.of(*format_holder(node)) if node.holders else Cell(NOTHING, "quiet")


def _taints(node: NodeRow, _now: NodesNow) -> Cell:
    taints = [format_taints(each, is_short=True) for each in significant_taints(node)]
    return Cell(", ".join(taints) or NOTHING, "quiet")


def _model(node: NodeRow, _now: NodesNow) -> str:
    words = node.gpu_model or ",".join(node.resources)
    is_unsaid = node.is_simulated and words and "simulated" not in words
    return f"{words} (simulated)" if is_unsaid else words or NOTHING


def _known(node: NodeRow, now: NodesNow, value: Callable[[GpuReading], Number | None]) -> list[Number]:
    read = now.readings.get(node.name)
    found = map(value, read.gpus if read is not None else ())
    return [each for each in found if each is not None]


def _sum(values: Sequence[Number]) -> Number | None:
    return sum(values) if values else None


def _utilisation(node: NodeRow, now: NodesNow) -> Cell:
    read = now.readings.get(node.name)
    mean = read.utilisation if read is not None else None
    return Cell(percent(mean), "quiet" if mean is None else "", sort=mean)


def _memory_used(node: NodeRow, now: NodesNow) -> Cell:
    used = _sum(_known(node, now, lambda gpu: gpu.memory_used))
    return Cell(gpu_memory(used, _sum(_known(node, now, lambda gpu: gpu.memory_total))), "quiet", sort=used)


def _power(node: NodeRow, now: NodesNow) -> Cell:
    watts = _sum(_known(node, now, lambda gpu: gpu.power_w))
    return Cell(power(watts), "quiet", sort=watts)


def _hottest(node: NodeRow, now: NodesNow) -> Cell:
    celsius = max(_known(node, now, lambda gpu: gpu.temperature_c), default=None)
    return Cell(temperature(celsius), "quiet", sort=celsius)


def _resource_values(node: NodeRow, _now: NodesNow) -> Values:
    return {
        "resources": {
            name: {
                "total": share.total,
                "allocated": share.allocated,
                "unhealthy": share.unhealthy,
                **({} if share.cards is None else {"cards": share.cards}),
            }
            for name, share in node.resources.items()
        },
        "shared_memory": _shared_values(node.shared),
    }


def _shared_values(shared: SharedGpuMemory | None) -> Values | None:
    if shared is None:
        return None
    return {
        "total_gib": shared.total_gib,
        "allocated_gib": shared.allocated_gib,
        "devices": shared.devices,
        "devices_allocated": shared.devices_allocated,
        "allocated_gib_by_device": {str(name): held for name, held in shared.allocated_by_device.items()},
    }


def _fault_values(node: NodeRow) -> list[Values]:
    return [
        {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
        for each in node.faults
    ]


def _holder_values(holder: Holder) -> Values:
    return {
        "namespace": holder.namespace,
        "pod": holder.pod,
        "job": holder.job,
        "gpus": holder.gpus,
        "resources": dict(holder.resources),
        "devices": list(holder.devices),
    }


# In the order of the console.
COLUMNS: tuple[ListColumn[NodeRow, NodesNow], ...] = (
    ListColumn(
        "name", "NODE", min_width=12, elide="middle", max_width=40,
        cell=lambda node, _: Cell(node.name, "bright"),
        value=lambda node, _: node.name, printed="table", printed_title="NAME",
    ),
    ListColumn("bar", "GPUS", min_width=8, cell=_bar, values=_resource_values),
    ListColumn("held", "HELD", align="right", sorts_largest_first=True, flashes=True, cell=_held),
    ListColumn(
        "free", "FREE", align="right", priority=2, sorts_largest_first=True,
        cell=_free, json="gpus_free largest_free",
        printed="wide", text=lambda node, now: str(node.gpus_free) if now.is_listed else "?",
        values=lambda node, _: {"gpus_free": node.gpus_free, "largest_free": node.largest_free},
    ),
    ListColumn("util", "UTIL", align="right", priority=2, sorts_largest_first=True, cell=_utilisation),
    ListColumn(
        "gpu_memory", "GPU MEM", align="right", priority=3, sorts_largest_first=True,
        cell=_memory_used,
    ),
    ListColumn("power", "POWER", align="right", priority=5, sorts_largest_first=True, cell=_power),
    ListColumn("temp", "TEMP", align="right", priority=3, sorts_largest_first=True, cell=_hottest),
    ListColumn(
        "holders", "HELD BY", min_width=17, elide="end", max_width=80, priority=1,
        cell=_holders,
        printed="wide",
        text=lambda node, _: ", ".join(f"{job} {amount}" for _, job, amount in node.jobs) or NOTHING,
        value=lambda node, _: [_holder_values(each) for each in node.holders],
    ),
    ListColumn(
        "status", "STATUS", min_width=8, max_width=34, flashes=True,
        cell=lambda node, now: Cell(node_status(node, now.clock), node_style(node)),
        value=lambda node, _: node.status, printed="table",
        text=lambda node, _: ", ".join((node.status, *(each.type for each in node.faults))),
    ),
    ListColumn(
        "model", "MODEL", priority=4, elide="end", min_width=14, max_width=26,
        cell=lambda node, _: Cell(node.gpu_model.removeprefix("NVIDIA-") or NOTHING, "quiet"),
        printed="table", printed_title="GPU", text=_model, json="gpu_model is_simulated",
        values=lambda node, _: {"gpu_model": node.gpu_model, "is_simulated": node.is_simulated},
    ),
    ListColumn(
        "gpus_total", "GPU(Total)", align="right", in_console=False,
        cell=_total,
        value=lambda node, _: node.gpus_total, printed="table",
    ),
    ListColumn(
        "gpus_allocated", "GPU(Allocated)", align="right", in_console=False,
        cell=_allocated,
        value=lambda node, _: node.gpus_allocated, printed="table",
    ),
    ListColumn(
        "unhealthy", "UNHEALTHY", align="right", in_console=False,
        cell=lambda node, now: Cell(str(node.gpus_unhealthy) if now.is_listed else "?"),
        value=lambda node, _: node.gpus_unhealthy, json="gpus_unhealthy", printed="table",
    ),
    ListColumn(
        "taints", "TAINTS", priority=5, elide="end", min_width=24, max_width=40, cell=_taints,
        values=lambda node, _: {"faults": _fault_values(node), "cordon": node.cordon},
    ),
    ListColumn(
        "role", "ROLE", priority=8, elide="end", min_width=13, max_width=20,
        value=lambda node, _: list(node.roles), json="roles",
        printed="table", text=lambda node, _: ",".join(node.roles) or NOTHING,
    ),
    ListColumn(
        "ip", "ADDRESS", priority=6,
        value=lambda node, _: node.ip, printed="table", printed_title="IP",
    ),
    ListColumn("mode", "MODE", priority=7, value=lambda node, _: node.mode, printed="wide"),
    ListColumn(
        "memory", "MEMORY", align="right", priority=9, sorts_largest_first=True,
        cell=lambda node, _: Cell(
            memory(node.gpu_memory) if node.gpu_memory else NOTHING, "quiet", sort=float(node.gpu_memory)
        ),
        value=lambda node, _: node.gpu_memory or None, json="gpu_memory_bytes",
        printed="wide", printed_title="GPU MEMORY",
    ),
)  # fmt: skip
# In the console only if any node has readings.
READING_KEYS = ("util", "gpu_memory", "power", "temp")
# Printed first, as Arena does; the others follow.
PRINTED_FIRST = (
    "name", "ip", "role", "status", "model", "gpus_total", "gpus_allocated", "unhealthy", "mode", "memory",
    "free",
)  # fmt: skip


def node_row(node: NodeRow, columns: Sequence[ListColumn[NodeRow, NodesNow]], now: NodesNow) -> Row:
    """Return the row of a node."""
    return Row(node.name, cells(node, now, columns))
