"""Preview of a job or a node, as sanitised lines of a given width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from k8s.snapshot import Holder, Job, NodeRow, format_sums
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_end, elide_middle, pad, wrapped
from tui.text.format import (
    NOTHING,
    CellStyle,
    Clock,
    Run,
    compact_ranges,
    memory,
    reason_text,
    status_run,
)
from tui.text.gpu_bar import job_mark, node_cells

if TYPE_CHECKING:
    from k8s.models import Event, Taint
    from tui.feeds.preview_data import PreviewData

Lines = list[list[Run]]
_LINES_OF_EVENT = 3


def status_text(job: Job, clock: Clock) -> Run:
    """Return a job's status with its duration, and the style."""
    words, look = status_run(
        job.status, job.reason, max([job.restarts, *(each.restarts for each in job.instances)])
    )
    if job.is_troubled and look in ("running", "done"):
        words, look = f"! {words}", "pending"
    if job.started is None or job.status not in (Status.RUNNING, Status.SUCCEEDED):
        return words, look
    return f"{words} {clock.age(job.started, job.finished)}", look


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


def job_preview(
    job: Job, preview: PreviewData | None, clock: Clock, width: int, height: int, *, has_reason: bool = True
) -> Lines:
    """Render the preview of a job: identity, status, reason, events.

    Args:
        job: The job.
        preview: Its events; None before they were fetched.
        clock: The current time.
        width: Cells per line.
        height: Maximum number of lines.
        has_reason: Show the reason; its row may do so.
    """
    lines: Lines = [[(elide_end(sanitize(job.ref.name), width), "bright")]]
    about = " · ".join(
        dict.fromkeys(filter(None, (job.ref.kind, job.ref.namespace, job.user, job.queue, job.priority)))
    )
    lines += _wrapped_lines(about, width, "quiet")
    amounts = f"  {job.instances_running}/{len(job.instances)} pods"
    if job.gpus_requested or job.gpus_allocated:
        amounts = f"  {job.gpus_allocated}/{job.gpus_requested} GPUs{amounts}"
    status = status_text(job, clock)
    fits = cell_len(status[0] + amounts) <= width
    lines += [[status, (amounts, "")]] if fits else [[status], *_wrapped_lines(amounts, width, "")]
    if job.nodes:
        lines += _wrapped_lines(f"on {compact_ranges(job.nodes)}", width, "quiet")
    if job.progress:
        lines += _wrapped_lines(job.progress, width, "")
    reason = reason_text(job, clock) if has_reason else ""
    if told := [
        *_wrapped_lines(reason, width, "quiet" if status[1] == "done" else status[1]),
        *_wrapped_lines(job.remedy, width, ""),
    ]:
        lines += [[], *told]
    if preview is None:
        return lines[:height]
    lines += [[], _heading("events", width)]
    if preview.events_problem:
        lines += _wrapped_lines(preview.events_problem, width, "pending")
    elif not preview.events:
        lines += _wrapped_lines("None; a cluster forgets them after an hour.", width, "quiet")
    for event in preview.events:
        if len(lines) > height:
            break
        lines += _event(event, clock, width)
    return lines[:height]


def node_preview(node: NodeRow, users: Mapping[tuple[str, str], str], clock: Clock, width: int) -> Lines:
    """Render the preview of a node: status, holders of its GPUs, taints, bad conditions.

    Args:
        node: The node.
        users: User of each job by namespace and name, as far as known.
        clock: The current time.
        width: Cells per line.
    """
    lines: Lines = [[(elide_end(sanitize(node.name), width), "bright")]]
    about = " · ".join(filter(None, (model_text(node), node.mode, ", ".join(node.roles), node.ip)))
    lines += _wrapped_lines(about, width, "quiet")
    lines.append([(elide_end(node_status(node, clock), width), node_style(node))])
    if node.gpus_total or node.gpus_unhealthy:
        held = f"  {format_sums([node], is_short=True)} held, {node.gpus_free} free"
        lines += [[], [*node_cells(node, width), (held, "")]]
    if node.holders:
        lines += [[], _heading("held by", width)]
    firsts = _first_holders(node)
    for place, (namespace, job, amount) in enumerate(node.jobs):
        mark, look = job_mark(node, place)
        user = users.get((namespace, job)) or namespace
        right = sanitize(f" {amount}  {user}  {clock.age(firsts[namespace, job].since)}")
        room = max(1, width - cell_len(right) - 2)
        lines.append(
            [(f"{mark} ", look), (pad(elide_middle(sanitize(job), room), room), ""), (right, "quiet")]
        )
    if taints := significant_taints(node):
        lines += [[], _heading("taints", width)]
        for taint in taints:
            lines += _wrapped_lines(format_taints(taint), width, "")
    bad = [each for each in node.conditions if each.type == "Ready" and each.status != "True"]
    if bad := [*bad, *node.faults]:
        lines += [[], _heading("conditions", width)]
        for each in bad:
            state = f"{each.type} {each.status} {clock.age(each.since)}"
            lines += _wrapped_lines(f"{state}: {each.message or each.reason or NOTHING}", width, "pending")
    return lines


def _first_holders(node: NodeRow) -> dict[tuple[str, str], Holder]:
    # The longest-running holder of each job.
    found: dict[tuple[str, str], Holder] = {}
    for holder in node.holders:
        first = found.setdefault((holder.namespace, holder.job), holder)
        if holder.since is not None and (first.since is None or holder.since < first.since):
            found[holder.namespace, holder.job] = holder
    return found


def _wrapped_lines(text: str, width: int, look: CellStyle) -> Lines:
    return [[(line, look)] for line in wrapped(text, width)]


def _heading(text: str, width: int) -> list[Run]:
    text = elide_end(sanitize(text), width - 4)
    return [(f"─ {text} {'─' * (width - cell_len(text) - 3)}", "quiet")]


def _event(event: Event, clock: Clock, width: int) -> Lines:
    is_warning = event.type == "Warning"
    count = f" ×{event.count}" if (event.count or 1) > 1 else ""
    start = f"{clock.age(event.at)} {event.reason or ''}{count}: "
    texts = wrapped(start + (event.message or ""), width)
    if len(texts) > _LINES_OF_EVENT:
        texts = [*texts[: _LINES_OF_EVENT - 1], elide_end(" ".join(texts[_LINES_OF_EVENT - 1 :]), width)]
    return [[(text, "pending" if is_warning else "")] for text in texts]
