"""What would go wrong with the objects of a file, found before any of them is created.

What a job's manifest says is read as the form reads it; of what is not understood nothing is said, and
the server decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from k8s.client.client import Client
from k8s.errors import Conflict, Forbidden, Invalid, NotFound
from k8s.job_spec import JobSpec, wants_gpus
from k8s.jobs.create import create_manifest
from k8s.kinds import CREATABLE, CreatableKind, Manifest
from k8s.models.resources import CLAIMS, CONFIG_MAPS, SECRETS, Resource
from k8s.preflight import check_objects
from k8s.snapshot import ClusterSnapshot
from tui.commands.submission.manifests import ManifestObject
from tui.jobs.submit_checks import SubmitChecks, check_submit, checks_of

_SIZE_WORDS = (" gpus", " gpu resource", " workers", " devices", " cpu", " memory", " cpu request")
"""How the names of what a spec cannot say end where its pods are not all alike."""


class CheckedObject(NamedTuple):
    """What was found about one object of a file, or about all that are no job."""

    title: str
    """`PyTorchJob bert`; empty for all others together."""
    checks: SubmitChecks


async def check_manifests(
    client: Client,
    wanted: Sequence[ManifestObject],
    namespace: str,
    fetch_nodes: Callable[[], Awaitable[ClusterSnapshot | None]],
) -> list[CheckedObject]:
    """Return what would go wrong.

    Args:
        client: The cluster.
        wanted: The objects of the file.
        namespace: Of those that name none.
        fetch_nodes: Reads the cluster's nodes, for jobs with GPUs; returns None where it cannot.
    """
    made = {(resource, str(manifest["metadata"].get("name"))) for resource, manifest in wanted}
    found, others, snapshot = [], [], None
    for each in wanted:
        understood = _understood(each, namespace)
        if understood is None:
            others.append(each)
            continue
        kind, spec, is_uniform = understood
        at_once = replace(spec, workers=min(spec.workers, _pods_at_once(kind, each.manifest)))
        nodes = None
        if wants_gpus(spec) and is_uniform:
            nodes = snapshot = snapshot or await fetch_nodes()
        checks = await check_submit(client, kind, at_once, (each,), nodes, _without(spec, made))
        found.append(CheckedObject(f"{kind.title} {spec.name}", checks))
    if others:
        found.append(CheckedObject("", checks_of(await check_objects(client, others, namespace))))
    return found


def _understood(each: ManifestObject, namespace: str) -> tuple[CreatableKind, JobSpec, bool] | None:
    """Return a job's kind and spec, and whether its pods all ask for the same; None of anything else."""
    resource, manifest = each
    kind = next((kind for kind in CREATABLE if kind.resource == resource), None)
    name = manifest["metadata"].get("name")
    if kind is None or not isinstance(name, str) or not name:
        return None
    try:
        spec, lost = kind.spec_from_manifest(deepcopy(manifest))
        kind.replicas(manifest)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    home = str(manifest["metadata"].get("namespace") or namespace)
    is_uniform = not any(f" {words}".endswith(_SIZE_WORDS) for words in lost)
    return kind, replace(spec, name=name, namespace=home), is_uniform


def _pods_at_once(kind: CreatableKind, manifest: Manifest) -> int:
    """Return how many pods must have room at once: those of a Job may come one after another."""
    try:
        enough = kind.parse(manifest).enough
    except (AttributeError, KeyError, TypeError, ValueError):
        enough = None
    pods = max(1, len(kind.replicas(manifest)))
    return pods if enough is None else max(1, min(pods, enough))


def _without(spec: JobSpec, made: Collection[tuple[Resource, str]]) -> JobSpec:
    """Return a spec without the claims, Secrets and ConfigMaps that are created with it."""
    return replace(
        spec,
        mounts=tuple(each for each in spec.mounts if (CLAIMS, each.claim) not in made),
        pull_secrets=tuple(name for name in spec.pull_secrets if (SECRETS, name) not in made),
        git_secret="" if (SECRETS, spec.git_secret) in made else spec.git_secret,
        env_from=tuple(
            each
            for each in spec.env_from
            if (SECRETS if each.is_secret else CONFIG_MAPS, each.source) not in made
        ),
    )


async def check_by_server(client: Client, wanted: Sequence[ManifestObject], namespace: str) -> None:
    """Let the server validate several objects before the first is created, so that not a part is left.

    Raises:
        KubeError: It would refuse one.
    """
    for resource, manifest in wanted:
        home = namespace_of(manifest, namespace)
        try:
            await create_manifest(client, resource, manifest, home, dry_run=True)
        except (Conflict, Forbidden, Invalid, NotFound) as error:
            if not error.is_foreign:
                error.hint = f"{error.hint} Nothing was created.".strip()
                raise


def namespace_of(manifest: Manifest, namespace: str) -> str:
    """Return where a manifest is created: the namespace that it names, or else this one."""
    return str(manifest["metadata"].get("namespace") or namespace)
