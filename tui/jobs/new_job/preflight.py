"""What the form's job will be in a few lines, and whether the cluster has capacity for it now."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from k8s.diagnosis.shortage import closed_words
from k8s.job_spec import JobSpec, specs_by_role
from k8s.kinds import CreatableKind
from k8s.kinds.to_manifest import placed_by_topology
from k8s.preflight import Finding
from k8s.scheduling.predicates import ClusterCapacity, UnfitNode, UnfitReason
from k8s.scheduling.requests import ResourceList, insufficient
from k8s.scheduling.scheduling_spec import SchedulingSpec, Toleration
from k8s.snapshot import ClusterSnapshot
from k8s.topology.ack import SCHEDULE_LABEL, TOPOLOGY
from k8s.topology.links import LinkMatrix
from tui.jobs.batch_check import batch_words
from tui.jobs.new_job.earlier_runs import EarlierRuns
from tui.jobs.new_job.fields import SIZE_FIELDS
from tui.jobs.new_job.form_spec import FormResult
from tui.jobs.new_job.link_fit import link_words, nodes_open_to
from tui.jobs.new_job.volume import VolumeContent
from tui.text.cells import elide_middle
from tui.text.format import count, plural

Severity = Literal["ok", "info", "warning", "error"]
_NONE_KNOWN = EarlierRuns()
NO_LINKS: Mapping[str, LinkMatrix] = {}
"""Where nobody has looked how GPUs are linked."""
MARKS: Mapping[Severity, str] = {"ok": "✓", "info": "·", "warning": "!", "error": "✕"}
"""The mark before a line."""


LONGEST_LINE = 150
"""Characters of a line: it may hold what was typed into a field."""
MOST_NAMES = 3
"""Nodes that the fit line names."""
_SIZE_LABELS = {"kind": "Kind", **{field.key: field.label for field in SIZE_FIELDS}}


class PreflightLine(NamedTuple):
    """One finding about the job, and how much it matters."""

    severity: Severity
    text: str

    @property
    def marked(self) -> str:
        """The line with its mark: `✓ 1 × 2 GPUs: fits now on a; 2 of 8 GPUs free`."""
        return f"{MARKS[self.severity]} {self.text}"


def preflight(
    result: FormResult,
    snapshot: ClusterSnapshot,
    claims: Collection[str] | None = None,
    namespace: str = "",
    earlier: EarlierRuns = _NONE_KNOWN,
    volume: VolumeContent | None = None,
    links: Mapping[str, LinkMatrix] = NO_LINKS,
) -> list[PreflightLine]:
    """Return what will be created, where it fits, and where its files go.

    Args:
        result: The parsed form.
        snapshot: The cluster as it is now.
        claims: The names of the volume claims there are; None while unknown.
        namespace: The namespace of these claims.
        earlier: Runs that it could go on from.
        volume: What is on its volume; None while that is not known.
        links: How the GPUs of each node are linked, as far as that is known.
    """
    lines = [*_size_and_fit(result, snapshot, links), *_storage(result, earlier), *_mnist(result, volume)]
    spec = result.spec
    if words := batch_words(spec):
        lines.append(PreflightLine("error", words))
    if claims is not None and namespace == spec.namespace:
        lines += [
            PreflightLine("warning", f"would wait: volume claim {mount.claim} not found in {spec.namespace}")
            for mount in spec.mounts
            if mount.claim not in {*claims, *(claim.name for claim in spec.new_claims)}
        ]
    lines += [PreflightLine("warning", sentence) for sentence in result.unused]
    if any(
        (job.ref.namespace, job.ref.name, job.ref.kind)
        == (spec.namespace, spec.name, result.kind.resource.kind)
        for job in snapshot.jobs
    ):
        lines.append(
            PreflightLine(
                "error", f"{result.kind.resource.kind} {spec.name} already exists in {spec.namespace}"
            )
        )
    return [PreflightLine(line.severity, elide_middle(line.text, LONGEST_LINE)) for line in lines]


def line_of(finding: Finding, *, is_old: bool = False) -> PreflightLine:
    """Return what is to be said of a finding; an old one was found before the job was changed."""
    text = elide_middle(finding.text, LONGEST_LINE)
    if is_old:
        return PreflightLine("info", f"before your last change: {text}")
    return PreflightLine(finding.severity, f"{text}; {finding.remedy}")


def _size_and_fit(
    result: FormResult, snapshot: ClusterSnapshot, links: Mapping[str, LinkMatrix]
) -> list[PreflightLine]:
    wrong = next((label for key, label in _SIZE_LABELS.items() if key in result.problems), "")
    if wrong:
        return [PreflightLine("warning", f"cannot tell the size: {wrong} is not valid")]
    return [*_size(result), *capacity_lines(result.spec, snapshot, result.kind, links)]


def _size(result: FormResult) -> list[PreflightLine]:
    spec = result.spec
    # Two workers stand for any number: the other replicas are the same.
    replicas = result.kind.replicas(result.kind.manifest(replace(spec, workers=2, processes=1)))
    others = [each.role for each in replicas][: max(0, len(replicas) - 2)]
    gpus = plural(spec.gpus, "GPU") if spec.gpus else "no GPU"
    size = f"{plural(spec.workers, 'pod')} × {gpus}"
    if others:
        size += f" and {', '.join(others)}"
    if result.kind.launcher == "mpirun":
        slots = result.kind.supported(spec).slots or max(1, spec.gpus)
        text = f"{size}, {plural(slots, 'slot')} per pod = {plural(spec.workers * slots, 'rank')}"
        return [PreflightLine("info", text)]
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


def capacity_lines(
    spec: JobSpec,
    snapshot: ClusterSnapshot,
    kind: CreatableKind | None = None,
    links: Mapping[str, LinkMatrix] = NO_LINKS,
) -> list[PreflightLine]:
    """Say whether a job fits now, later, or never: an error where no node is large enough."""
    spec = placed_by_topology(spec) if spec.gpu_topology else spec
    groups = [each for each in specs_by_role(spec, kind.role_names if kind else ()) if each.gpus]
    if not groups:
        return [PreflightLine("info", "no GPU requested: any node will do")]
    if "nodes" in snapshot.problems:
        return [PreflightLine("warning", "cannot tell whether it fits: you may not list nodes")]
    if not snapshot.nodes and not snapshot.is_synced:
        return [PreflightLine("info", "cannot tell yet whether it fits: still listing nodes")]
    capacity = ClusterCapacity.of_rows(snapshot.nodes)
    lines = []
    for pods in groups:
        found, left = _fit(pods, snapshot, capacity)
        lines += found
        closed = {each.name for each in capacity.unfit(_pod(pods), {pods.gpu_resource: pods.gpus})}
        open_nodes = nodes_open_to(snapshot.nodes, closed | set(pods.excluded_nodes))
        if words := link_words(pods, open_nodes, links):
            lines.append(PreflightLine("info", words))
        capacity = left
    return list(dict.fromkeys(lines))


def _fit(
    spec: JobSpec, snapshot: ClusterSnapshot, capacity: ClusterCapacity
) -> tuple[list[PreflightLine], ClusterCapacity]:
    """Say whether pods that are alike fit, and return the capacity that they leave where they do."""
    nodes = [each for each in capacity.nodes.values() if each.allocatable.get(spec.gpu_resource, 0) > 0]
    if not nodes:
        others = sorted({name for node in snapshot.nodes for name in node.resources})
        available = f"; available: {', '.join(others[:3])}" if others else ""
        text = f"would never start: no node has {spec.gpu_resource}{available}"
        if spec.gpu_topology:
            text += f"; label one {SCHEDULE_LABEL}={TOPOLOGY} (t on a node)"
        return [PreflightLine("error", text)], capacity
    requested: ResourceList = {spec.gpu_resource: spec.gpus}
    unfit = {each.name: each for each in capacity.unfit(_pod(spec), requested)}
    nodes = [each for each in nodes if each.name not in spec.excluded_nodes]
    unfit |= {
        name: UnfitNode(name, UnfitReason.MISMATCH, "it is excluded")
        for name in spec.excluded_nodes
        if name in capacity.nodes
    }
    open_nodes = [each for each in nodes if each.name not in unfit or not unfit[each.name].reason.is_closed]
    free = {each.name: max(0, int(each.free[spec.gpu_resource])) for each in open_nodes}
    totals = [int(each.allocatable[spec.gpu_resource]) for each in nodes] or [0]
    simulated = " (simulated)" * snapshot.is_simulated
    free_of_total = f"{sum(free.values())} of {sum(totals)} GPUs free{simulated}"
    size = f"{count(spec.workers)} × {plural(spec.gpus, 'GPU')}"
    needs = f"needs {size}"
    lines = []
    if snapshot.stale:
        lines.append(PreflightLine("warning", "cluster unreachable: free GPUs may have changed"))
    left, placed = capacity.place(requested, spec.workers, unfit)
    if placed >= spec.workers:
        where = [name for name, each in capacity.nodes.items() if left.nodes[name] is not each]
        block = f"{free_of_total}, largest free block {max(free.values())}"
        if spec.node_selector:
            text = f"{size}: would fit now, where the node selector allows: {block}"
            return [*lines, PreflightLine("info", text)], left
        return [*lines, PreflightLine("ok", f"{size}: fits now on {_names(where)}; {block}")], left
    too_small = {name for name, each in capacity.nodes.items() if insufficient(requested, each.allocatable)}
    too_small.update(spec.excluded_nodes)
    if capacity.emptied().place(requested, spec.workers, too_small)[1] >= spec.workers:
        most = max(free, key=lambda name: free[name], default="")
        largest = f", at most {free[most]} on one node ({most})" if most and free[most] else ""
        tainted = [each for each in unfit.values() if each.reason is UnfitReason.TAINTED]
        closed = f", {closed_words(tainted)}" if tainted else ""
        text = f"would wait: {needs}; {free_of_total}{largest}{closed}"
        return [*lines, PreflightLine("warning", text)], capacity
    text = f"would never start: {needs}; the cluster has {sum(totals)}, at most {max(totals)} per node"
    return [*lines, PreflightLine("error", text)], capacity


def _pod(spec: JobSpec) -> SchedulingSpec:
    """Return what decides where a pod can start.

    A taint of the resource's own name lets in who requests it: ExtendedResourceToleration.
    """
    tolerations = [Toleration(key=spec.gpu_resource, operator="Exists")]
    for each in spec.tolerations:
        tolerations.append(Toleration(each.key, each.operator, each.value, each.effect))
    return SchedulingSpec(tolerations=tolerations)


def _names(nodes: Sequence[str]) -> str:
    """Return names of nodes: `a, b, c and 5 more`."""
    shown = ", ".join(nodes[:MOST_NAMES])
    return f"{shown} and {len(nodes) - MOST_NAMES} more" if len(nodes) > MOST_NAMES else shown


def _storage(result: FormResult, earlier: EarlierRuns) -> list[PreflightLine]:
    spec = result.spec
    if not spec.mounts:
        return [PreflightLine("warning", "no volume claim: its files are lost with its pods")]
    first = spec.mounts[0]
    if not spec.trainer:
        return [PreflightLine("info", f"volume claim {first.claim} mounted at {first.path}")]
    folder = posixpath.dirname(spec.log_dir)
    lines = [PreflightLine("info", f"writes to {folder} on volume claim {first.claim}")]
    now_s = time.time()
    if result.continues is not None:
        lines.insert(0, PreflightLine("info", f"continues {result.continues.words(now_s)}"))
    elif (found := earlier.by_job.get(spec.name)) is not None and found.step is not None:
        text = f"starts anew; to go on from {found.words(now_s)}, fill in Continue"
        lines.insert(0, PreflightLine("info", text))
    return lines


def _mnist(result: FormResult, volume: VolumeContent | None) -> list[PreflightLine]:
    """Say whether MNIST is where it will be read."""
    if not result.mnist or volume is None:
        return []
    if volume.missing_mnist:
        text = f"would fail: no {volume.missing_mnist}; choose Download, or another folder"
        return [PreflightLine("error", text)]
    if not volume.is_visible:
        return [PreflightLine("info", f"reads MNIST from {result.mnist}, which cannot be checked from here")]
    return []
