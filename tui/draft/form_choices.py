"""Suggestions for the fields of the new-job form, fetched once from the cluster."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k8s.client.client import Client
from k8s.models.resources import CLAIMS, NAMESPACES, NODES, SECRETS, TRAINING_RUNTIMES, Resource
from k8s.snapshot import ClusterSnapshot
from k8s.text.errors import KubeError, NotFound, join_sentences
from tui.text.format import plural

PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", is_namespaced=False
)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue")
# Only registry credentials.
PULL_SECRETS = "type=kubernetes.io/dockerconfigjson"
MAX_NODES = 500
_ACCESS = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FieldChoices:
    """Suggestions for one field."""

    options: tuple[tuple[str, str], ...] = ()
    """Values, each with a description."""
    problem: str = ""
    """The reason that there are no suggestions, as a sentence."""


@dataclass(frozen=True, slots=True)
class _Listing:
    resource: Resource
    title: str
    describe: Callable[[Object], str]
    field_selector: str = ""
    prefix: str = ""


def _describe_claim(claim: Object) -> str:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    modes = ",".join(_ACCESS.get(mode, str(mode)) for mode in spec.get("accessModes") or ())
    size = str(
        ((status.get("capacity") or spec.get("resources", {}).get("requests")) or {}).get("storage", "")
    )
    return "  ".join(filter(None, (modes, size, str(status.get("phase", "")))))


def _describe_queue(queue: Object) -> str:
    status = queue.get("status") or {}
    pending = status.get("pendingWorkloads")
    cluster_queue = str((queue.get("spec") or {}).get("clusterQueue", ""))
    return "  ".join(filter(None, (cluster_queue, f"{pending} waiting" if pending is not None else "")))


def _describe_runtime(runtime: Object) -> str:
    labels = (runtime.get("metadata") or {}).get("labels") or {}
    return str(labels.get("trainer.kubeflow.org/framework", ""))


_CLUSTER_RUNTIMES, _RUNTIMES = TRAINING_RUNTIMES
_LISTINGS: Mapping[str, tuple[_Listing, ...]] = {
    "namespace": (_Listing(NAMESPACES, "namespaces", lambda _: ""),),
    "claim": (_Listing(CLAIMS, "volume claims", _describe_claim),),
    "priority_class": (
        _Listing(PRIORITY_CLASSES, "priority classes", lambda each: str(each.get("value", ""))),
    ),
    "queue": (_Listing(LOCAL_QUEUES, "queues", _describe_queue),),
    "pull_secrets": (_Listing(SECRETS, "secrets", lambda _: "", PULL_SECRETS),),
    "runtime": (
        _Listing(_CLUSTER_RUNTIMES, "training runtimes", _describe_runtime),
        _Listing(_RUNTIMES, "training runtimes", _describe_runtime, prefix="trainingruntime/"),
    ),
}
KEYS = tuple(_LISTINGS)
"""Fields with suggestions from the cluster."""


async def fetch_choices(client: Client, key: str, namespace: str) -> FieldChoices:
    """Return suggestions for a field, or the reason that there are none. Never raises `KubeError`."""
    found = await asyncio.gather(*(_fetch(client, listing, namespace) for listing in _LISTINGS[key]))
    options = tuple(option for each in found for option in each.options)
    problem = next((each.problem for each in found if each.problem), "")
    return FieldChoices(options, "" if options else problem)


async def _fetch(client: Client, listing: _Listing, namespace: str) -> FieldChoices:
    try:
        found = await client.list(
            listing.resource,
            namespace if listing.resource.is_namespaced else "",
            field_selector=listing.field_selector,
        )
    except NotFound:
        return FieldChoices()  # not served here
    except KubeError as error:
        return FieldChoices(problem=join_sentences(f"Cannot list {listing.title}, type a name.", error.why))
    options = [
        (listing.prefix + str((each.get("metadata") or {}).get("name", "")), listing.describe(each))
        for each in found
    ]
    return FieldChoices(tuple(sorted(options, key=lambda each: (each[0] != "workspace", each[0]))))


def volume_choices(claims: FieldChoices) -> FieldChoices:
    """Return volume claims as mounts, each at a folder of the claim's name."""
    return FieldChoices(tuple((f"{name}:/{name}", text) for name, text in claims.options), claims.problem)


async def fetch_node_labels(client: Client) -> FieldChoices:
    """Return the labels of nodes with the number of nodes, rare labels first."""
    try:
        page = json.loads(await client.list_page(NODES, limit=MAX_NODES))
    except KubeError as error:
        return FieldChoices(problem=f"Cannot list nodes, type name=value. {' '.join(error.why.split())}")
    found: Counter[str] = Counter()
    for node in page.get("items") or ():
        labels = (node.get("metadata") or {}).get("labels") or {}
        found.update(f"{name}={value}" for name, value in labels.items())
    options = sorted(found.items(), key=lambda each: (each[1], each[0]))
    return FieldChoices(tuple((label, plural(number, "node")) for label, number in options))


def snapshot_choices(snapshot: ClusterSnapshot) -> dict[str, FieldChoices]:
    """Return suggestions from the snapshot: GPU resources and nodes, each with its free GPUs."""
    free: Counter[str] = Counter()
    total: Counter[str] = Counter()
    models: dict[str, set[str]] = {}
    for node in snapshot.nodes:
        free.update(node.free)
        for name, share in node.resources.items():
            total[name] += share.total
            models.setdefault(name, set()).update(filter(None, [node.gpu_model]))
    resources = tuple(
        (name, ", ".join(filter(None, (f"{free[name]} of {total[name]} free", *sorted(models[name])[:3]))))
        for name in sorted(total)
    )
    nodes = tuple(
        (node.name, ", ".join(filter(None, (node.gpu_model, f"{node.gpus_free} free", node.status))))
        for node in snapshot.nodes
    )
    return {"gpu_resource": FieldChoices(resources), "excluded_nodes": FieldChoices(nodes)}


async def fetch_all(client: Client, namespace: str, keys: Sequence[str] = KEYS) -> dict[str, FieldChoices]:
    """Return the suggestions for several fields, by key."""
    found = await asyncio.gather(*(fetch_choices(client, key, namespace) for key in keys))
    return dict(zip(keys, found, strict=True))
