"""What the form's job will be in a few lines, and whether the cluster has capacity for it now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from k8s.diagnosis.shortage import closed_words
from k8s.scheduling.predicates import ClusterCapacity, UnfitReason
from k8s.scheduling.requests import ResourceList, insufficient
from k8s.scheduling.scheduling_spec import SchedulingSpec, Toleration
from k8s.snapshot import ClusterSnapshot
from tui.jobs.new_job.form_spec import FormResult
from tui.text.format import count, plural

Severity = Literal["ok", "info", "warning", "error"]
MARKS: Mapping[Severity, str] = {"ok": "✓", "info": "·", "warning": "!", "error": "✕"}
"""The mark before a line."""


class PreflightLine(NamedTuple):
    """One finding about the job, and how much it matters."""

    severity: Severity
    text: str

    @property
    def marked(self) -> str:
        """The line with its mark: `✓ fits now: 2 of 8 GPUs free`."""
        return f"{MARKS[self.severity]} {self.text}"


def preflight(
    result: FormResult,
    snapshot: ClusterSnapshot,
    claims: Collection[str] | None = None,
    namespace: str = "",
) -> list[PreflightLine]:
    """Return what will be created, where it fits, and where its files go.

    Args:
        result: The parsed form.
        snapshot: The cluster as it is now.
        claims: The names of the volume claims there are; None while unknown.
        namespace: The namespace of these claims.
    """
    lines = [*_size(result), *_fit(result, snapshot), _storage(result)]
    spec = result.spec
    if claims is not None and namespace == spec.namespace:
        lines += [
            PreflightLine("warning", f"would wait: volume claim {mount.claim} not found in {spec.namespace}")
            for mount in spec.mounts
            if mount.claim not in claims
        ]
    if any(
        (job.ref.namespace, job.ref.name, job.ref.kind)
        == (spec.namespace, spec.name, result.kind.resource.kind)
        for job in snapshot.jobs
    ):
        lines.append(
            PreflightLine("error", f"{result.kind.title} {spec.name} already exists in {spec.namespace}")
        )
    return lines


def _size(result: FormResult) -> list[PreflightLine]:
    spec = result.spec
    # Two workers stand for any number: the other replicas are the same.
    replicas = result.kind.replicas(result.kind.manifest(replace(spec, workers=2, processes=1)))
    others = [each.role for each in replicas][: max(0, len(replicas) - 2)]
    gpus = plural(spec.gpus, "GPU") if spec.gpus else "no GPU"
    size = f"{plural(spec.workers, 'pod')} × {gpus}"
    if others:
        size += f" and {', '.join(others)}"
    if not any(each.ranks for each in replicas):
        if spec.workers > 1 or spec.processes > max(1, spec.gpus):
            text = f"pods of a {result.kind.title} get no ranks: each trains on its own"
            return [PreflightLine("info", size), PreflightLine("warning", text)]
        return [PreflightLine("info", size)]
    ranks = spec.workers * spec.processes
    noun = "process" if spec.processes == 1 else "processes"
    text = f"{size}, {count(spec.processes)} {noun} per pod = {plural(ranks, 'rank')}"
    lines = [PreflightLine("info", text)]
    if not spec.trainer and spec.processes > 1 and "torch" not in " ".join(spec.command):
        text = "the command must start the processes itself, e.g. with torchrun"
        lines.append(PreflightLine("warning", text))
    if spec.gpus and spec.processes > spec.gpus:
        text = f"{spec.processes} processes share {plural(spec.gpus, 'GPU')} in each pod"
        lines.append(PreflightLine("warning", text))
    elif spec.gpus > spec.processes:
        text = f"{spec.gpus - spec.processes} of {spec.gpus} GPUs in each pod may be idle"
        lines.append(PreflightLine("warning", text))
    return lines


def _fit(result: FormResult, snapshot: ClusterSnapshot) -> list[PreflightLine]:
    spec = result.spec
    if not spec.gpus:
        return [PreflightLine("info", "no GPU requested: any node will do")]
    if "nodes" in snapshot.problems:
        return [PreflightLine("warning", "cannot tell whether it fits: you may not list nodes")]
    if not snapshot.nodes and not snapshot.is_synced:
        return [PreflightLine("info", "cannot tell yet whether it fits: still listing nodes")]
    capacity = ClusterCapacity.of_rows(snapshot.nodes)
    nodes = [each for each in capacity.nodes.values() if each.allocatable.get(spec.gpu_resource, 0) > 0]
    if not nodes:
        others = sorted({name for node in snapshot.nodes for name in node.resources})
        available = f"; available: {', '.join(others[:3])}" if others else ""
        return [PreflightLine("error", f"would never start: no node has {spec.gpu_resource}{available}")]
    requested: ResourceList = {spec.gpu_resource: spec.gpus}
    # A taint of the resource's own name lets in who requests it: ExtendedResourceToleration.
    pod = SchedulingSpec(tolerations=[Toleration(key=spec.gpu_resource, operator="Exists")])
    unfit = {each.name: each for each in capacity.unfit(pod, requested)}
    open_nodes = [each for each in nodes if each.name not in unfit or not unfit[each.name].reason.is_closed]
    free = {each.name: max(0, int(each.free[spec.gpu_resource])) for each in open_nodes}
    totals = [int(each.allocatable[spec.gpu_resource]) for each in nodes]
    simulated = " (simulated)" * snapshot.is_simulated
    free_of_total = f"{sum(free.values())} of {sum(totals)} GPUs free{simulated}"
    needs = f"needs {count(spec.workers)} × {plural(spec.gpus, 'GPU')}"
    lines = []
    if snapshot.stale:
        lines.append(PreflightLine("warning", "cluster unreachable: free GPUs may have changed"))
    if capacity.place(requested, spec.workers, unfit)[1] >= spec.workers:
        return [*lines, PreflightLine("ok", f"fits now: {free_of_total}")]
    too_small = {name for name, each in capacity.nodes.items() if insufficient(requested, each.allocatable)}
    if capacity.emptied().place(requested, spec.workers, too_small)[1] >= spec.workers:
        most = max(free, key=lambda name: free[name], default="")
        largest = f", at most {free[most]} on one node ({most})" if most and free[most] else ""
        tainted = [each for each in unfit.values() if each.reason is UnfitReason.TAINTED]
        closed = f", {closed_words(tainted)}" if tainted else ""
        return [*lines, PreflightLine("warning", f"would wait: {needs}; {free_of_total}{largest}{closed}")]
    text = f"would never start: {needs}; the cluster has {sum(totals)}, at most {max(totals)} per node"
    return [*lines, PreflightLine("error", text)]


def _storage(result: FormResult) -> PreflightLine:
    spec = result.spec
    if not spec.mounts:
        return PreflightLine("warning", "no volume claim: its files are lost with its pods")
    first = spec.mounts[0]
    if spec.trainer:
        folder = spec.log_dir.removesuffix("/logs")
        return PreflightLine("info", f"writes to {folder} on volume claim {first.claim}")
    return PreflightLine("info", f"volume claim {first.claim} mounted at {first.path}")
