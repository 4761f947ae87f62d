"""The preview of one row, for the pane beside a list: a job's, or a node's, in lines of a given width.

Pure: from what is known to pieces of text and how they are meant. All of it is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from k8s.snapshot import Holder, Job, NodeRow
from k8s.status import Status
from k8s.text.sanitize import sanitize
from tui.text.cells import cell_len, elide_end, elide_middle, head, pad
from tui.text.format import NOTHING, Clock, Look, Run, compact_ranges, memory, status_run
from tui.text.gpu_bar import job_mark, node_cells

if TYPE_CHECKING:
    from k8s.models import Condition, Event, Taint
    from tui.feeds.preview_data import PreviewData

Lines = list[list[Run]]
"""Lines of a pane, each in pieces."""
PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""Conditions of nodes that are bad when they are true."""
_LINES_OF_EVENT = 3
_QUIET = (Status.SUCCEEDED, Status.SUSPENDED)


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of `width` cells, between words where there are any."""
    lines: list[str] = []
    line = ""
    for word in sanitize(text).split():
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        line = word
        while cell_len(line) > width and (part := head(line, width)):
            lines.append(part)
            line = line[len(part) :]
    return [*lines, line] if line else lines


def status_words(job: Job, clock: Clock) -> Run:
    """Return a job's status, for how long it runs or ran, and how that is meant."""
    words, look = status_run(
        job.status, job.reason, max([job.restarts, *(each.restarts for each in job.instances)])
    )
    if job.started is None or job.status not in (Status.RUNNING, Status.SUCCEEDED):
        return words, look
    return f"{words} {clock.age(job.started, job.finished)}", look


def node_status(node: NodeRow, clock: Clock) -> str:
    """Return how a node is, in one word and what has to be known beside it."""
    base, _, cordoned = node.status.partition(", ")
    words = [base]
    if base == "NotReady":
        ready = next((each for each in node.conditions if each.type == "Ready"), None)
        if ready is not None and ready.last_transition_time is not None:
            words = [f"{base} {clock.age(ready.last_transition_time)}"]
    if cordoned:
        words = ["Cordoned"] if base == "Ready" else [*words, "cordoned"]
    words += [each.type for each in node.conditions if each.type in PRESSURES and each.status == "True"]
    if node.gpus_unhealthy:
        words.append(f"{node.gpus_unhealthy} unhealthy")
    return " · ".join(words) + (" · simulated" if node.is_simulated else "")


def node_look(node: NodeRow) -> Look:
    """Return how a node's status is meant: what is fine is quiet."""
    if "NotReady" in node.status:
        return "failed"
    is_pressed = any(each.type in PRESSURES and each.status == "True" for each in node.conditions)
    if not node.takes_pods or is_pressed:
        return "pending"
    return "gpu-bad" if node.gpus_unhealthy else "quiet"


def model_words(node: NodeRow) -> str:
    """Return the model of a node's GPUs, without the usual maker, and their memory where it does not say."""
    model = node.gpu_model.removeprefix("NVIDIA-")
    size = f"{memory(node.gpu_memory)}" if node.gpu_memory and "GB" not in model else ""
    return " ".join(filter(None, (model, size)))


def taint_words(taint: Taint, *, is_short: bool = False) -> str:
    """Return a taint as `NoSchedule gpu=only`; `is_short` leaves out whose key it is."""
    key = taint.key.rpartition("/")[2] if is_short else taint.key
    return f"{taint.effect} {key}" + (f"={taint.value}" if taint.value else "")


def telling_taints(node: NodeRow) -> tuple[Taint, ...]:
    """Return the taints that say more than the node's status does."""
    return tuple(each for each in node.taints if not each.key.startswith("node.kubernetes.io/"))


def job_preview(job: Job, preview: PreviewData | None, clock: Clock, width: int, height: int) -> Lines:
    """Tell what a job is, why it is so, and what happened to it.

    Args:
        job: The job.
        preview: What was seen of it; None before that.
        clock: Now.
        width: Cells of a line.
        height: Lines that there are.
    """
    lines: Lines = [[(elide_end(sanitize(job.ref.name), width), "bright")]]
    about = " · ".join(
        dict.fromkeys(filter(None, (job.ref.kind, job.ref.namespace, job.user, job.queue, job.priority)))
    )
    lines += _said(about, width, "quiet")
    amounts = f"  {job.instances_running}/{len(job.instances)} pods"
    if job.gpus_requested or job.gpus_allocated:
        amounts = f"  {job.gpus_allocated}/{job.gpus_requested} GPUs{amounts}"
    status = status_words(job, clock)
    lines.append([status, (amounts, "")])
    if job.nodes:
        lines += _said(f"on {compact_ranges(job.nodes)}", width, "quiet")
    if job.progress:
        lines += _said(job.progress, width, "")
    if job.reason:
        lines += [
            [],
            *_said(job.reason, width, "quiet" if job.status in _QUIET else status[1]),
        ]
    if preview is None:
        return lines[:height]
    lines += [[], _heading("events", width)]
    if preview.events_problem:
        lines += _said(preview.events_problem, width, "pending")
    elif not preview.events:
        lines += _said("None; a cluster forgets them after an hour.", width, "quiet")
    for event in preview.events:
        if len(lines) > height:
            break
        lines += _event(event, clock, width)
    return lines[:height]


def node_preview(node: NodeRow, users: Mapping[tuple[str, str], str], clock: Clock, width: int) -> Lines:
    """Tell what a node is, who holds its GPUs since when, and what keeps pods away.

    Args:
        node: The node.
        users: Whose each job is, by namespace and name, as far as that is known.
        clock: Now.
        width: Cells of a line.
    """
    lines: Lines = [[(elide_end(sanitize(node.name), width), "bright")]]
    about = " · ".join(filter(None, (model_words(node), node.mode, ", ".join(node.roles), node.ip)))
    lines += _said(about, width, "quiet")
    lines.append([(elide_end(node_status(node, clock), width), node_look(node))])
    if node.gpus_total or node.gpus_unhealthy:
        held = f"  {node.gpus_allocated} of {node.gpus_total} held, {node.gpus_free} free"
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
    if taints := telling_taints(node):
        lines += [[], _heading("taints", width)]
        for taint in taints:
            lines += _said(taint_words(taint), width, "")
    if bad := [each for each in node.conditions if _is_bad(each)]:
        lines += [[], _heading("conditions", width)]
        for each in bad:
            words_of = f"{each.type} {each.status} {clock.age(each.last_transition_time)}"
            lines += _said(f"{words_of}: {each.message or each.reason or NOTHING}", width, "pending")
    return lines


def _first_holders(node: NodeRow) -> dict[tuple[str, str], Holder]:
    """Return of each job the pod that has held GPUs here for longest."""
    found: dict[tuple[str, str], Holder] = {}
    for holder in node.holders:
        first = found.setdefault((holder.namespace, holder.job), holder)
        if holder.since is not None and (first.since is None or holder.since < first.since):
            found[holder.namespace, holder.job] = holder
    return found


def _is_bad(condition: Condition) -> bool:
    bad = {"Ready": ("False", "Unknown")}.get(condition.type)
    return condition.status in bad if bad else condition.type in PRESSURES and condition.status == "True"


def _said(text: str, width: int, look: Look) -> Lines:
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
