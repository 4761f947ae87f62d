"""Says in a few lines what a wish for a job will make, and whether the cluster has room for it now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from typing import Literal, NamedTuple

from k8s.diagnosis.shortage import closed_words
from k8s.scheduling.predicates import ClusterCapacity, UnfitReason
from k8s.scheduling.requests import insufficient
from k8s.scheduling.scheduling_spec import SchedulingSpec, Toleration
from k8s.snapshot import ClusterSnapshot
from tui.jobs.new_job.form_spec import FormResult
from tui.text.format import count, plural


class PlanLine(NamedTuple):
    """One thing that will be so, and whether somebody should think about it."""

    mark: Literal["good", "note", "warning", "bad"]
    text: str


def plan(
    wish: FormResult, snapshot: ClusterSnapshot, claims: Collection[str] | None = None, namespace: str = ""
) -> list[PlanLine]:
    """Say what will be made, where it fits, and where its files go.

    Args:
        wish: What is asked for.
        snapshot: The cluster as it is now.
        claims: The names of the volume claims there are; None while that is not known.
        namespace: The namespace whose claims these are.
    """
    lines = [*_makes(wish), *_fits(wish, snapshot), _writes(wish)]
    spec = wish.spec
    if claims is not None and namespace == spec.namespace:
        lines += [
            PlanLine("warning", f"would wait: there is no volume claim {mount.claim} in {spec.namespace}")
            for mount in spec.mounts
            if mount.claim not in claims
        ]
    if any(
        (job.ref.namespace, job.ref.name, job.ref.kind)
        == (spec.namespace, spec.name, wish.kind.resource.kind)
        for job in snapshot.jobs
    ):
        lines.append(PlanLine("bad", f"{spec.namespace} has a {wish.kind.title} {spec.name} already"))
    return lines


def _makes(wish: FormResult) -> list[PlanLine]:
    spec = wish.spec
    # Two workers stand for any number: what comes beside them is the same.
    replicas = wish.kind.replicas(wish.kind.manifest(replace(spec, workers=2, processes=1)))
    beside = [each.role for each in replicas][: max(0, len(replicas) - 2)]
    gpus = plural(spec.gpus, "GPU") if spec.gpus else "no GPU"
    size = f"{plural(spec.workers, 'pod')} × {gpus}"
    if beside:
        size += f" and {', '.join(beside)}"
    if not any(each.ranks for each in replicas):
        if spec.workers > 1 or spec.processes > max(1, spec.gpus):
            words = f"a {wish.kind.title} gives its pods no ranks, each trains on its own"
            return [PlanLine("note", size), PlanLine("warning", words)]
        return [PlanLine("note", size)]
    ranks = spec.workers * spec.processes
    each = "process" if spec.processes == 1 else "processes"
    lines = [PlanLine("note", f"{size}, {count(spec.processes)} {each} each = {plural(ranks, 'rank')}")]
    if not spec.trainer and spec.processes > 1 and "torch" not in " ".join(spec.command):
        lines.append(PlanLine("warning", "more than one process in a pod has to be started by the command"))
    if spec.gpus and spec.processes > spec.gpus:
        words = f"{spec.processes} processes share {plural(spec.gpus, 'GPU')} in each pod"
        lines.append(PlanLine("warning", words))
    elif spec.gpus > spec.processes:
        words = f"{spec.gpus - spec.processes} of {spec.gpus} GPUs in each pod may stay idle"
        lines.append(PlanLine("warning", words))
    return lines


def _fits(wish: FormResult, snapshot: ClusterSnapshot) -> list[PlanLine]:
    spec = wish.spec
    if not spec.gpus:
        return [PlanLine("note", "asks for no GPU: runs on any node with room")]
    if "nodes" in snapshot.problems:
        return [PlanLine("warning", "this user may not list nodes: nobody knows whether it fits")]
    if not snapshot.nodes and not snapshot.is_synced:
        return [PlanLine("note", "the nodes are not read yet: nobody knows whether it fits")]
    capacity = ClusterCapacity.of_rows(snapshot.nodes)
    having = [each for each in capacity.nodes.values() if each.allocatable.get(spec.gpu_resource, 0) > 0]
    if not having:
        others = sorted({name for node in snapshot.nodes for name in node.resources})
        there_is = f"; there is {', '.join(others[:3])}" if others else ""
        return [PlanLine("bad", f"could never start: no node has {spec.gpu_resource}{there_is}")]
    requested = {spec.gpu_resource: Fraction(spec.gpus)}
    # A taint of the resource's own name lets in who requests it: ExtendedResourceToleration.
    pod = SchedulingSpec(tolerations=[Toleration(key=spec.gpu_resource, operator="Exists")])
    unfit = {each.name: each for each in capacity.unfit(pod, requested)}
    open_nodes = [each for each in having if each.name not in unfit or not unfit[each.name].reason.is_closed]
    free = {each.name: max(0, int(each.free[spec.gpu_resource])) for each in open_nodes}
    totals = [int(each.allocatable[spec.gpu_resource]) for each in having]
    of_all = f"{sum(free.values())} of {sum(totals)} GPUs are free" + (" (simulated)" * snapshot.is_simulated)
    wants = f"it wants {count(spec.workers)} × {spec.gpus}"
    lines = []
    if snapshot.stale:
        lines.append(PlanLine("warning", "the cluster is away, what is free may have changed"))
    if capacity.place(requested, spec.workers, unfit)[1] >= spec.workers:
        return [*lines, PlanLine("good", f"fits now: {of_all}")]
    too_small = {name for name, each in capacity.nodes.items() if insufficient(requested, each.allocatable)}
    if capacity.emptied().place(requested, spec.workers, too_small)[1] >= spec.workers:
        most = max(free, key=lambda name: free[name], default="")
        block = f", at most {free[most]} on one node ({most})" if most and free[most] else ""
        tainted = [each for each in unfit.values() if each.reason is UnfitReason.TAINTED]
        kept_out = f", {closed_words(tainted)}" if tainted else ""
        return [*lines, PlanLine("warning", f"would wait: {wants}; {of_all}{block}{kept_out}")]
    text = f"could never start: {wants}; there are {sum(totals)}, at most {max(totals)} on one node"
    return [*lines, PlanLine("bad", text)]


def _writes(wish: FormResult) -> PlanLine:
    spec = wish.spec
    if not spec.mounts:
        return PlanLine("warning", "no volume claim: what it writes is lost with its pods")
    first = spec.mounts[0]
    if spec.trainer:
        return PlanLine("note", f"writes to claim {first.claim}, in {spec.log_dir.removesuffix('/logs')}")
    return PlanLine("note", f"claim {first.claim} is at {first.path}")
