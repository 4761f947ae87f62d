"""Checks of a job that need no server. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from msgspec.structs import replace

from k8s.kinds import CreatableKind, Manifest
from k8s.kinds.job_spec import JobSpec, role_spec
from k8s.kinds.kubeflow.pytorch_job import MASTER_PORT
from k8s.kinds.pod_code import strip_credentials
from k8s.models import quantity
from k8s.models.quantity import request_and_limit
from k8s.reasons import requests
from k8s.reasons.cause import REFUSED, Cause, error, warning
from k8s.reasons.predicates import ClusterCapacity
from k8s.reasons.requests import SchedulingSpec, Toleration, spec_from_template
from k8s.reasons.shortage import at_once, capacity_cause, pod_sets

# A pod's name is its host name too. Source: RFC 1123.
LONGEST_POD_NAME = 63
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?(?::[0-9]+)?"
# Source: distribution, `reference/regexp.go`.
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::[\w][\w.-]{{0,127}})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{{32,}})?"
)
_GIT_URL = re.compile(
    r"(?:https?|ssh|git)://[^\s/][^\s]*|file:///?[^\s/][^\s]*|[\w.-]+@[\w.-]+:[^\s]+|/[^\s]+"
)


def check_statically(kind: CreatableKind, spec: JobSpec, manifest: Manifest) -> list[Cause]:
    """Return the findings for a job; invalid fields are reported by `spec.problems`."""
    return [
        *_long_names(kind, manifest),
        *_images(spec),
        *_git_url(spec),
        *_lost_event_files(spec),
        *_requests_over_limits(spec),
        *_shadowed_mounts(spec),
        *_host_ports(kind, spec),
    ]


def _long_names(kind: CreatableKind, manifest: Manifest) -> Iterator[Cause]:
    longest = max((replica.name for replica in kind.replicas(manifest)), key=len, default="")
    over = len(longest) - LONGEST_POD_NAME
    if over > 0:
        text = f"would fail: pod {longest} would have {len(longest)} characters, {over} too many"
        yield error("name", text, "choose a shorter name")


def _images(spec: JobSpec) -> Iterator[Cause]:
    fields = ("image", "worker_image", "sync_image", "tensorboard_image")
    named = [(field, getattr(spec, field)) for field in fields]
    for field, image in [*named, *(("roles", role.image) for role in spec.roles)]:
        if image and not _IMAGE.fullmatch(image):
            text = f"would fail: {image} is not an image reference"
            yield error(field, text, "write it as registry/name:tag, the name in lowercase")


def _git_url(spec: JobSpec) -> Iterator[Cause]:
    if spec.sync_mode != "git" or not spec.sync_source:
        return
    if not _GIT_URL.fullmatch(spec.sync_source):
        text = f"would fail: {strip_credentials(spec.sync_source)} is not a repository's URL"
        yield error("sync_source", text, "write it as https://host/path.git or git@host:path.git")


def _lost_event_files(spec: JobSpec) -> Iterator[Cause]:
    if not spec.log_dir.startswith("/"):
        return
    folder = PurePosixPath(spec.log_dir)
    if any(folder.is_relative_to(path) for path in _mounted(spec)):
        return
    text = f"would lose the event files: {spec.log_dir} is not on a mounted volume"
    if spec.tensorboard:
        yield error("log_dir", f"{text}, where TensorBoard could read them", "mount a claim there")
    else:
        yield warning("log_dir", text, "mount a claim there to keep the curves")


def _requests_over_limits(spec: JobSpec) -> Iterator[Cause]:
    resources = ("cpu", "memory")
    amounts = [(field, getattr(spec, field)) for field in resources]
    for role in spec.roles:
        of_role = role_spec(spec, role.name)
        amounts += [("roles", getattr(of_role, field)) for field in resources]
    for field, amount in dict.fromkeys(amounts):
        request, limit = request_and_limit(amount)
        try:
            is_over = bool(request and limit) and quantity.parse(request) > quantity.parse(limit)
        except ValueError:
            continue
        if is_over:
            text = f"{REFUSED}the request of {request} is more than the limit of {limit}"
            yield error(field, text, f"request at most {limit}")


def _shadowed_mounts(spec: JobSpec) -> Iterator[Cause]:
    for outer, inner in pairwise(sorted(path.rstrip("/") for path in _mounted(spec))):
        if inner.startswith(f"{outer}/"):
            text = f"would hide files: the volume at {inner} covers that folder of the one at {outer}"
            yield warning("mounts", text, "mount them side by side unless this is intended")


def _host_ports(kind: CreatableKind, spec: JobSpec) -> Iterator[Cause]:
    # With the host network the master's declared port is the node's, so that two masters cannot share one.
    if "network" in spec.host_namespaces and spec.elastic is None and kind.resource.kind == "PyTorchJob":
        text = (
            f"would wait for a node with port {MASTER_PORT} free: on the node's network two masters need two"
        )
        yield warning("host_namespaces", text, "leave it off unless RDMA needs it")


def _mounted(spec: JobSpec) -> list[str]:
    # Mount paths of volumes that outlive the pods.
    return [*(mount.path for mount in spec.mounts), *(mount.path for mount in spec.host_mounts)]


def named_pods(kind: CreatableKind, manifest: Manifest) -> list[tuple[str, SchedulingSpec]]:
    """Return the pods that a manifest requests, by instance name."""
    replicas = kind.replicas(manifest)
    specs: dict[int, SchedulingSpec] = {}
    for template in {id(each.template): each.template for each in replicas}.values():
        spec = spec_from_template(template)
        # Many clusters add tolerations for taints named after a requested device.
        # Source: the admission plugin ExtendedResourceToleration.
        devices = [name for name in requests.of_pod(spec) if "/" in name]
        own = [Toleration(key=name, operator="Exists") for name in devices]
        specs[id(template)] = replace(spec, tolerations=[*(spec.tolerations or ()), *own])
    return [
        (each.role if each.index is None else f"{each.role}-{each.index}", specs[id(each.template)])
        for each in replicas
    ]


def pods_at_once(kind: CreatableKind, manifest: Manifest) -> Sequence[tuple[str, SchedulingSpec]]:
    """Return the pods that must fit at once, by instance name; those of a Job may run one after another."""
    pods = named_pods(kind, manifest)
    try:
        enough = kind.parse(manifest).min_instances
    except (AttributeError, KeyError, TypeError, ValueError):
        enough = None
    return at_once(pods, enough)


def check_capacity(
    kind: CreatableKind, manifest: Manifest, capacity: ClusterCapacity, *, is_gang: bool = False
) -> Cause | None:
    """Return the reason why the nodes cannot hold the pods of a job; None if they can, or are unknown."""
    pods = pod_sets(pods_at_once(kind, manifest))
    if not pods or not capacity.nodes:
        return None
    gang = sum(len(each.instances) for each in pods) if is_gang else 0
    return capacity_cause(pods, capacity, pods, gang=gang, tries_sizes=False)
