"""Records of runs, read from the cluster: settings, placement, and values from event files or logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from k8s.client.client import Client
from k8s.gpus.gpu_links import fetch_known_links
from k8s.gpus.gpu_set import measure
from k8s.jobs.create import resource_of
from k8s.kinds import JobRef, kind_of
from k8s.logs import LogHub, LogLine, find_ranks, targets_of
from k8s.models import Pod
from k8s.models.gpu_sharing import given_gpus
from k8s.snapshot import CurveAlert, Job, NodeRow
from k8s.text.errors import KubeError, NotFound
from tui.runs.alerts import curve_alerts
from tui.runs.curve_feed import LOG_LINES, CurveFeed
from tui.runs.journal.kept_facts import keep_curves
from tui.runs.log_points import log_curves
from tui.runs.record import RunRecord, loss_tag, with_template, with_values
from tui.settings.options import AlertRule
from tui.text.gpu_links import format_number

if TYPE_CHECKING:
    from trainer.tfevents import ScalarCurve
    from tui.runs.journal.database import Journal

# Lines at the end of a log in which the total rate of a benchmark is searched.
LAST_LINES = 50


class NodesAndPods(NamedTuple):
    """Nodes and pods of the cluster, to find the GPUs of a job."""

    nodes: Sequence[NodeRow] = ()
    pods: Mapping[str, Pod] = {}  # by UID


NOTHING_KNOWN = NodesAndPods()


def job_record(job: Job, context: str = "") -> RunRecord:
    """Return the record of a listed job, without settings and values."""
    return RunRecord(
        job.uid,
        job.ref.name,
        job.ref.namespace,
        job.ref.kind,
        context,
        job.user,
        str(job.status),
        _seconds(job.created),
        _seconds(job.started),
        _seconds(job.finished) if job.status.is_final else None,
        time.time(),
        job.gpus_requested,
        nodes=job.nodes,
        labels=dict(job.labels),
        log_dir=job.log_dir,
        reason=job.reason,
    )


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


Gpus = Mapping[str, Sequence[int]]
"""Numbers of a job's GPUs by node."""


def gpus_of(job: Job, place: NodesAndPods) -> Gpus:
    """Return the GPUs that the scheduler gave to the pods of a job; empty if it does not tell."""
    found: dict[str, set[int]] = {}
    for each in job.instances:
        pod = place.pods.get(each.pod_uid)
        if pod is not None and each.gpus and (given := given_gpus({"annotations": pod.metadata.annotations})):
            found.setdefault(each.node, set()).update(given)
    return {node: sorted(gpus) for node, gpus in sorted(found.items())}


async def describe_run(
    client: Client,
    job: Job,
    place: NodesAndPods = NOTHING_KNOWN,
    record: RunRecord | None = None,
    gpus: Gpus | None = None,
) -> RunRecord:
    """Add its settings and placement to the record of a job; what may not be read is left out.

    `gpus` are those that it had while it ran; None reads them from its pods.
    """
    record = record or job_record(job, client.config.context)
    with suppress(KubeError):
        obj = await client.get(resource_of(job.ref), job.ref.name, job.ref.namespace)
        replicas = kind_of(job.ref).parse(obj).replicas
        if chief := min(replicas, key=lambda each: not each.is_chief, default=None):
            of_chief = next((each.containers[:1] for each in job.instances if each.is_chief), ())
            record = with_template(record, chief.template, *of_chief)
    gpus = gpus or gpus_of(job, place)
    nodes = {*job.nodes, *gpus}
    models = {node.name: node.gpu_model for node in place.nodes if node.name in nodes}
    model = ", ".join(dict.fromkeys(filter(None, models.values())))
    texts = (f"{node}: {format_number(numbers)}" for node, numbers in gpus.items())
    return msgspec.structs.replace(
        record,
        gpu_model=model,
        nodes=tuple(sorted(nodes)),
        placement=", ".join(texts),
        link=await _slowest_link(client, gpus, models),
    )


async def _slowest_link(client: Client, gpus: Gpus, models: Mapping[str, str]) -> str:
    if len(gpus) > 1:
        return f"network between {len(gpus)} nodes"
    for node, numbers in gpus.items():
        if len(numbers) > 1 and (matrix := (await fetch_known_links(client, models)).get(node)):
            found = measure(matrix, numbers)
            return f"{found.link} {found.bottleneck:g} GB/s" if found.bottleneck else found.link
    return ""


def with_log(
    record: RunRecord, curves: Sequence[ScalarCurve], lines: Sequence[LogLine], *, adds: bool = False
) -> RunRecord:
    """Return the record with the values in the lines of its log; `adds` is that of `with_values`."""
    by_tag = {each.tag: each for each in curves}
    if (tag := loss_tag(by_tag)) and not adds:
        record = with_alerts(record, curve_alerts(by_tag, tag))
    return with_values(record, curves, lines=_last_texts(lines), adds=adds)


def with_alerts(record: RunRecord, alerts: Iterable[CurveAlert]) -> RunRecord:
    """Return the record of a run that ended with these alerts."""
    text = next((each.text for each in alerts if each.rule is AlertRule.DIVERGED), "")
    return msgspec.structs.replace(record, alert=text)


def _last_texts(lines: Sequence[LogLine]) -> list[str]:
    return [line.text.decode("utf-8", "replace") for line in lines[-LAST_LINES:]]


async def read_run(
    client: Client,
    job: Job,
    place: NodesAndPods = NOTHING_KNOWN,
    hub: LogHub | None = None,
    journal: Journal | None = None,
) -> RunRecord:
    """Return everything known about a job's run; `problem` says why it has no values.

    Lines that `hub` holds are not read again. Its curves are kept in `journal`.
    """
    hub = hub or LogHub(client)
    record = await describe_run(client, job, place)
    feed = CurveFeed(client, job.ref, lambda: job)
    problem = ""
    try:
        await feed.read_once()
        problem = feed.problem
    except KubeError as error:
        problem = error.details or error.what
    curves = feed.events.curves()
    record = await asyncio.to_thread(with_values, record, curves, feed.events.texts())
    if journal is not None:
        await asyncio.to_thread(keep_curves, journal, job.uid, curves, is_log=False)
    record = msgspec.structs.replace(record, source=feed.source)
    if (target := next(iter(targets_of(await find_ranks(client, job, is_urgent=False))), None)) is None:
        return msgspec.structs.replace(record, problem="" if record.tags else problem)
    try:
        # The log may tell the rate where event files tell the loss.
        tail = await hub.read_tail(target, LAST_LINES if record.tags else LOG_LINES, is_urgent=False)
    except KubeError as error:
        return msgspec.structs.replace(record, problem="" if record.tags else error.details or error.what)
    if record.tags:
        return with_values(record, (), lines=_last_texts(tail))
    curves = await asyncio.to_thread(log_curves, tail)
    record = with_log(record, curves, tail)
    if journal is not None:
        await asyncio.to_thread(keep_curves, journal, job.uid, curves, is_log=True)
    if record.tags or record.throughput is not None:
        return msgspec.structs.replace(record, source=f"the log of {target.name}")
    return msgspec.structs.replace(record, problem=problem)


def as_deleted(record: RunRecord) -> RunRecord:
    """Return the record of a run whose job was deleted now."""
    if record.has_ended:
        return record
    return msgspec.structs.replace(record, status="Deleted", ended_s=time.time())


async def is_gone(client: Client, ref: JobRef, uid: str) -> bool:
    """Return True if the job does not exist any more.

    Raises:
        KubeError: The cluster does not say.
    """
    try:
        found = await client.get(resource_of(ref), ref.name, ref.namespace)
    except NotFound:
        return True
    return bool(uid) and (found.get("metadata") or {}).get("uid") != uid
