"""Preflight: what the cluster and our own rules say about a job before it is created."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from k8s.client.client import Client
from k8s.gpus.gpu_set import LinkFit, link_fit
from k8s.gpus.links import LinkMatrix
from k8s.kinds import CREATABLE, CreatableKind, Manifest
from k8s.kinds.job_spec import JobSpec, wants_gpus
from k8s.kinds.pods_spec import spec_of_pods
from k8s.models import accelerators
from k8s.models.gpu_sharing import SCHEDULE_LABEL, TOPOLOGY
from k8s.models.resources import Resource
from k8s.reasons.cause import ERROR, Cause, Severity
from k8s.reasons.cluster_checks import check_against_cluster, check_objects, fetch_capacity
from k8s.reasons.pod_rules import claim_cause, taken_name
from k8s.reasons.predicates import ClusterCapacity, InfeasibleNode, InfeasibleReason, main_resource
from k8s.reasons.shortage import PodSet, pod_sets
from k8s.reasons.static_checks import check_capacity, check_statically, pods_at_once
from k8s.snapshot import ClusterSnapshot, NodeRow
from trainer.catalogue import find
from tui.draft.fields import SIZE_FIELDS
from tui.draft.job_draft import FormResult, arguments_of
from tui.draft.manifest_yaml import ManifestObject
from tui.draft.volume import VolumeContent
from tui.text.cells import elide_middle
from tui.text.format import count, plural

FetchNodes = Callable[[], Awaitable[ClusterSnapshot | None]]
"""Reads the cluster's nodes, for jobs with GPUs; returns None if it cannot."""
# Training images of fixed data sets, None if unknown; the others are generated on demand.
_IMAGES = {"mnist": 60_000, "folder": None, "tokens": None}
NO_LINKS: Mapping[str, LinkMatrix] = {}
MARKS: Mapping[Severity, str] = {"ok": "✓", "info": "·", "warning": "!", "error": "✕"}

NO_CLAIM = "no volume claim: its files are lost with its pods"
LONGEST_LINE = 150
MOST_NAMES = 3
_SIZE_LABELS = {"kind": "Kind", **{field.key: field.label for field in SIZE_FIELDS}}


def info(text: str) -> Cause:
    """Return a remark about the job."""
    return Cause(text, severity="info")


def line_text(cause: Cause, *, is_marked: bool = False) -> str:
    """Return the line of a cause with its remedy: `✓ 1 × 2 GPUs: fits now on a; 2 of 8 GPUs free`."""
    text = "; ".join(filter(None, (elide_middle(cause.text, LONGEST_LINE), cause.remedy)))
    return f"{MARKS[cause.severity]} {text}" if is_marked else text


def preflight(
    result: FormResult,
    snapshot: ClusterSnapshot,
    claims: Collection[str] | None = None,
    namespace: str = "",
    volume: VolumeContent | None = None,
    links: Mapping[str, LinkMatrix] = NO_LINKS,
    capacity: ClusterCapacity | None = None,
) -> list[Cause]:
    """Return the lines about size, capacity and storage.

    Args:
        result: The parsed form.
        snapshot: The cluster as it is now.
        claims: Names of the volume claims; None if unknown.
        namespace: The namespace of these claims.
        volume: The content of its volume; None if unknown.
        links: The known GPU links of each node.
        capacity: That of the snapshot's nodes, if it was computed before.
    """
    fit = _size_and_fit(result, snapshot, links, capacity or ClusterCapacity.of_rows(snapshot.nodes))
    if result.problems:  # a ✓ would praise a job that cannot be created as it is
        ok = {"ok": "info"}
        fit = [msgspec.structs.replace(each, severity=ok.get(each.severity, each.severity)) for each in fit]
    lines = [*fit, *_storage(result), *_mnist(result, volume)]
    spec = result.spec
    if text := describe_batch(spec):
        lines.append(Cause(text, severity=ERROR))
    if claims is not None and namespace == spec.namespace:
        known = {*claims, *(claim.name for claim in spec.new_claims)}
        missing = [mount.claim for mount in spec.mounts if mount.claim not in known]
        causes = (claim_cause(name, None, namespace, {}) for name in missing)
        lines += [Cause(cause.text) for cause in causes if cause is not None]
    lines += [Cause(sentence) for sentence in result.unused]
    if any(
        (job.ref.namespace, job.ref.name, job.ref.kind)
        == (spec.namespace, spec.name, result.kind.resource.kind)
        for job in snapshot.jobs
    ):
        taken = taken_name(result.kind.resource.kind, spec.name, spec.namespace)
        lines.append(Cause(taken.text, severity=ERROR))
    return lines


def _size_and_fit(
    result: FormResult, snapshot: ClusterSnapshot, links: Mapping[str, LinkMatrix], capacity: ClusterCapacity
) -> list[Cause]:
    wrong = next((label for key, label in _SIZE_LABELS.items() if key in result.problems), "")
    if wrong:
        return [Cause(f"cannot tell the size: {wrong} is not valid")]
    return [*_size(result), *_capacity_lines(result, snapshot, links, capacity)]


def _size(result: FormResult) -> list[Cause]:
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
        return [info(text)]
    if not any(each.ranks for each in replicas):
        if spec.workers > 1 or spec.processes > max(1, spec.gpus):
            text = f"pods of a {result.kind.title} get no ranks: each trains on its own"
            return [info(size), Cause(text)]
        return [info(size)]
    ranks = spec.workers * spec.processes
    noun = "process" if spec.processes == 1 else "processes"
    text = f"{size}, {count(spec.processes)} {noun} per pod = {plural(ranks, 'rank')}"
    lines = [info(text)]
    if not spec.trainer and spec.processes > 1 and "torch" not in " ".join(spec.command):
        text = "the command must start the processes itself, e.g. with torchrun"
        lines.append(Cause(text))
    if spec.gpus and spec.processes > spec.gpus:
        text = f"{spec.processes} processes share {plural(spec.gpus, 'GPU')} in each pod"
        lines.append(Cause(text))
    elif spec.gpus > spec.processes:
        text = f"{spec.gpus - spec.processes} of {spec.gpus} GPUs in each pod may be idle"
        lines.append(Cause(text))
    return lines


def _capacity_lines(
    result: FormResult, snapshot: ClusterSnapshot, links: Mapping[str, LinkMatrix], capacity: ClusterCapacity
) -> list[Cause]:
    spec, kind = result.spec, result.kind
    if wants_gpus(spec):
        if "nodes" in snapshot.problems:
            return [Cause("cannot tell whether it fits: you may not list nodes")]
        if not snapshot.nodes and snapshot.stale:
            return [Cause("cannot tell whether it fits: the cluster is unreachable")]
        if not snapshot.nodes and not snapshot.is_synced:
            return [info("cannot tell yet whether it fits: still listing nodes")]
        if not snapshot.nodes:
            return [Cause(f"would never start: no node has {spec.gpu_resource}", severity=ERROR)]
    manifest = kind.manifest(spec)
    lines = []
    if snapshot.stale:
        lines.append(Cause("cluster unreachable: free GPUs may have changed"))
    if (cause := check_capacity(kind, manifest, capacity, is_gang=spec.gang)) is not None:
        lines.append(cause)
        if snapshot.is_simulated:
            lines.append(info("the GPUs are simulated"))
        if spec.gpu_topology:
            lines.append(info(f"label a node {SCHEDULE_LABEL}={TOPOLOGY} (t on a node)"))
    elif not wants_gpus(spec):
        return [info("no GPU requested: any node will do")]
    for pods in pod_sets(pods_at_once(kind, manifest)) if links or cause is None else ():
        gpus = main_resource(pods.requested)
        if not accelerators.is_accelerator(gpus):
            if gpus == spec.gpu_resource and cause is None:
                text = f"cannot tell whether it fits now: {gpus} is not counted as a GPU"
                lines.append(info(text))
            continue
        infeasible = capacity.infeasible(pods.spec, pods.requested)
        closed = {each.name for each in infeasible}
        open_nodes = [each for each in snapshot.nodes if each.name not in closed]
        if cause is None:
            left, _ = capacity.place(pods.requested, len(pods.instances), closed)
            text = _fits_line(pods, capacity, infeasible, left, snapshot.is_simulated)
            lines.append(Cause(text, severity="ok"))
            capacity = left
        if links and (text := describe_links(pods, open_nodes, links)):
            lines.append(info(text))
    return list(dict.fromkeys(lines))


def _fits_line(
    pods: PodSet,
    capacity: ClusterCapacity,
    infeasible: Sequence[InfeasibleNode],
    left: ClusterCapacity,
    is_simulated: bool,
) -> str:
    gpus = main_resource(pods.requested)
    reasons = {each.name: each.reason for each in infeasible}
    having = [each for each in capacity.nodes.values() if each.allocatable.get(gpus, 0) > 0]
    having = [each for each in having if reasons.get(each.name) is not InfeasibleReason.MISMATCH]
    is_open = {each.name: each.name not in reasons or not reasons[each.name].is_closed for each in having}
    free = [max(0, int(each.free[gpus])) for each in having if is_open[each.name]]
    size = f"{count(len(pods.instances))} × {plural(int(pods.requested[gpus]), 'GPU')}"
    where = [name for name, each in capacity.nodes.items() if left.nodes[name] is not each]
    total = sum(int(each.allocatable[gpus]) for each in having)
    free_of_total = f"{sum(free)} of {total} GPUs free{' (simulated)' * is_simulated}"
    return f"{size}: fits now on {_names(where)}; {free_of_total}, largest free block {max(free)}"


def _names(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:MOST_NAMES])
    return f"{shown} and {len(nodes) - MOST_NAMES} more" if len(nodes) > MOST_NAMES else shown


def _storage(result: FormResult) -> list[Cause]:
    spec = result.spec
    if not spec.mounts:
        return [Cause(NO_CLAIM)]
    first = spec.mounts[0]
    if not spec.trainer:
        return [info(f"volume claim {first.claim} mounted at {first.path}")]
    folder = posixpath.dirname(spec.log_dir)
    return [info(f"writes to {folder} on volume claim {first.claim}")]


def _mnist(result: FormResult, volume: VolumeContent | None) -> list[Cause]:
    if not result.mnist or volume is None:
        return []
    if volume.missing_mnist:
        text = f"would fail: no {volume.missing_mnist}; choose Download, or another folder"
        return [Cause(text, severity=ERROR)]
    if not volume.is_visible:
        return [info(f"reads MNIST from {result.mnist}, which cannot be checked from here")]
    return []


MOST_NODES = 3
# At this share of NVLink's bandwidth a job is expected to take twice as long. Alibaba Cloud measured it with
# four V100: VGG-16 made 205 images/s per GPU over NVLink and 109 otherwise; ResNet-50, which has a fifth of
# the gradients, 331 and 313.
HALF = 0.5


class _Suggestion(NamedTuple):
    node: NodeRow
    free: int
    wanted: int
    fit: LinkFit


def describe_links(pods: PodSet, nodes: Sequence[NodeRow], links: Mapping[str, LinkMatrix]) -> str:
    """Describe the links of the GPUs of equal pods on each node; empty if unknown.

    Args:
        pods: The pods.
        nodes: Nodes that can take at least one of the pods now.
        links: The known links of each node's GPUs.
    """
    offers = [offer for node in nodes if (offer := _offer(pods, node, links.get(node.name))) is not None]
    if not offers:
        return ""
    wanted = max(offer.wanted for offer in offers)
    offers = [offer for offer in offers if offer.wanted == wanted]
    offers.sort(key=lambda offer: (not offer.fit.is_nvlink, -offer.fit.worst.bottleneck, offer.node.name))
    fastest = max((each.fit.worst.bottleneck for each in offers if each.fit.is_nvlink), default=0.0)
    return "; ".join(_describe_suggestion(offer, fastest) for offer in offers[:MOST_NODES])


def _offer(pods: PodSet, node: NodeRow, matrix: LinkMatrix | None) -> _Suggestion | None:
    resource = main_resource(pods.requested)
    gpus, free = int(pods.requested[resource]), node.free_if_tolerated.get(resource, 0)
    wanted = min(len(pods.instances), free // gpus) * gpus
    if matrix is None or wanted < 2:
        return None
    fit = link_fit(node, matrix, wanted)
    return _Suggestion(node, free, wanted, fit) if fit is not None else None


def _describe_suggestion(offer: _Suggestion, fastest: float) -> str:
    fit = offer.fit
    of_them = "" if offer.free == offer.wanted else f", {offer.wanted} of them"
    start = f"{offer.node.name}: {offer.free} free{of_them}"
    if fit.is_nvlink:
        return f"{start}{' ' if of_them else ', '}NVLink-connected"
    if fit.is_pcie:
        is_half = fastest and fit.best.bottleneck <= fastest * HALF
        return f"{start} over PCIe{', expect about half' if is_half else ''}"
    return f"{start}{' ' if of_them else ', '}NVLink-connected in part"


async def check_manifest(
    client: Client,
    resource: Resource,
    manifest: Manifest,
    namespace: str,
    fetch_nodes: FetchNodes,
    beside: Sequence[tuple[Resource, Manifest]],
) -> list[Cause] | None:
    """Return the problems of a job by what its pods request; None for an object without such pods.

    Args:
        client: The cluster.
        resource: The resource of the object.
        manifest: The object.
        namespace: Namespace of an object that names none.
        fetch_nodes: Reads the nodes.
        beside: The objects that are created with it.
    """
    kind = next((kind for kind in CREATABLE if kind.resource == resource), None)
    name = manifest["metadata"].get("name")
    if kind is None or not isinstance(name, str) or not name:
        return None
    try:
        spec = spec_of_pods(kind, manifest)
    except (AttributeError, LookupError, TypeError, ValueError):
        return None
    spec = replace(spec, name=name, namespace=str(manifest["metadata"].get("namespace") or namespace))
    nodes = await fetch_nodes() if wants_gpus(spec) else None
    return await check_submit(client, kind, spec, ((resource, manifest),), nodes, beside)


async def check_submit(
    client: Client,
    kind: CreatableKind,
    spec: JobSpec,
    objects: tuple[tuple[Resource, Manifest], ...],
    snapshot: ClusterSnapshot | None,
    beside: Sequence[tuple[Resource, Manifest]] = (),
) -> list[Cause]:
    """Return the problems of a job, without what is `beside` its objects and checked elsewhere."""
    manifest = next(manifest for resource, manifest in objects if resource == kind.resource)
    found = [
        *check_statically(kind, spec, manifest),
        *await check_against_cluster(client, kind, spec, objects, beside),
    ]
    if text := describe_batch(spec):
        found.append(Cause(f"{text}."))
    if snapshot is not None and "nodes" in snapshot.problems:
        return [*found, Cause("cannot tell whether it fits: you may not list nodes.")]
    rows = snapshot.nodes if snapshot is not None else ()
    capacity = ClusterCapacity.of_rows(rows) if rows else await fetch_capacity(client)
    fit = check_capacity(kind, manifest, capacity, is_gang=spec.gang)
    return [fit, *found] if fit is not None else found


def describe_batch(spec: JobSpec) -> str:
    """Return an error if batch size × ranks exceeds the images; empty if not.

    Ignores trainers without images, and arguments that are invalid for other reasons.
    """
    chosen = arguments_of(find("ddp"), spec.command) if spec.trainer == "ddp" else None
    if chosen is None or find("ddp").conflict(chosen):
        return ""
    ranks = _ranks(spec)
    batch = chosen.batch_size
    step = batch * chosen.accumulate * ranks
    images = _IMAGES.get(chosen.dataset, chosen.train_images)
    if images is None or step <= images:
        return ""
    size = f"{count(batch * chosen.accumulate)} × {plural(ranks, 'rank')} = {plural(step, 'image')}"
    return f"would fail: a step takes {size}, and there are {count(images)}; choose a smaller batch size"


def _ranks(spec: JobSpec) -> int:
    # mpirun gets the number of processes; torchrun starts its own in each pod.
    words = spec.command
    if words[0] == "mpirun" and "-np" in words:
        return int(words[words.index("-np") + 1])
    return spec.workers * spec.processes


class CheckedObject(NamedTuple):
    """Findings about one job of a file, or about all its other objects."""

    title: str
    """Such as `PyTorchJob bert`; empty for all other objects together."""
    causes: Sequence[Cause]


async def check_manifests(
    client: Client, wanted: Sequence[ManifestObject], namespace: str, fetch_nodes: FetchNodes
) -> list[CheckedObject]:
    """Return the problems that creating these objects would meet; `namespace` is for those that name none."""
    found, others, snapshot = [], [], None

    async def nodes() -> ClusterSnapshot | None:
        nonlocal snapshot
        snapshot = snapshot or await fetch_nodes()
        return snapshot

    for each in wanted:
        resource, manifest = each
        causes = await check_manifest(client, resource, manifest, namespace, nodes, wanted)
        if causes is None:
            others.append(each)
        else:
            kind = next(kind for kind in CREATABLE if kind.resource == resource)
            found.append(CheckedObject(f"{kind.title} {manifest['metadata']['name']}", causes))
    if others:
        found.append(CheckedObject("", await check_objects(client, others, namespace)))
    return found
