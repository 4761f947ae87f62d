"""Check a job against the cluster with the user's permissions. Read only.

Checks run concurrently; one whose requests are denied finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Coroutine, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.cluster.discovery import fetch_served
from k8s.jobs.owned_objects import new_claim_spec, shortage
from k8s.jobs.permissions import ResourceAttributes, review
from k8s.kinds import CreatableKind, Manifest, NeededObject
from k8s.kinds.job_spec import ACCESS_MODES, JobSpec, NewClaim
from k8s.models import Node, convert
from k8s.models.base import Meta
from k8s.models.namespace import Claim, ClaimSpec, ClaimStatus, Quota
from k8s.models.resources import CLAIMS, CONFIG_MAPS, NAMESPACES, NODES, QUOTAS, SECRETS, Resource
from k8s.reasons import requests
from k8s.reasons.cause import REFUSED, Cause, error, warning
from k8s.reasons.objects import (
    KUEUE,
    KUEUE_VERSIONS,
    LIMIT_RANGES,
    POD_GROUPS,
    PRIORITIES,
    STORAGE_CLASSES,
    Fetcher,
    LimitRange,
    LocalQueue,
    StorageClass,
)
from k8s.reasons.pod_rules import (
    claim_cause,
    limit_causes,
    missing_key,
    missing_name,
    missing_object,
    no_namespace,
    queue_cause,
    quota_causes,
    taken_name,
)
from k8s.reasons.predicates import ClusterCapacity, NodeCapacity
from k8s.reasons.requests import SchedulingSpec
from k8s.reasons.static_checks import named_pods, pods_at_once
from k8s.text.errors import KubeError, NotFound

# Its scheduler needs Volcano's API group.
VOLCANO = "volcano"
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
# Annotation of the StorageClass for claims that name none; older clusters have a beta version of it.
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
Objects = Sequence[tuple[Resource, Manifest]]
Check = Coroutine[Any, Any, list[Cause]]
# Requests fail with the first two; an unexpected answer causes the others.
_TELLS_NOTHING = (KubeError, msgspec.ValidationError, AttributeError, KeyError, TypeError, ValueError)


async def check_against_cluster(
    client: Client, kind: CreatableKind, spec: JobSpec, objects: Objects, beside: Objects = ()
) -> list[Cause]:
    """Return the findings for a job on a cluster, errors first.

    Args:
        client: The cluster.
        kind: Kind of the job.
        spec: The job.
        objects: The objects to create, the job included.
        beside: Further objects that are created with them, and need no check.
    """
    if await namespace_is_missing(client, spec.namespace):
        return [no_namespace(spec.namespace)]
    manifest = next(obj for resource, obj in objects if resource == kind.resource)
    pods = list({id(pod): pod for _, pod in named_pods(kind, manifest)}.values())
    made = {(resource, str(obj["metadata"].get("name"))) for resource, obj in (*objects, *beside)}
    made |= {(CLAIMS, claim.name) for claim in spec.new_claims}
    mounted = (mount.claim for mount in spec.mounts)
    claims = dict.fromkeys(chain(mounted, *(pod.claims for pod in pods)))
    checks: list[Check] = [
        served_findings(client, kind.resource),
        permission_findings(client, dict.fromkeys(resource for resource, _ in objects), spec.namespace),
        # Leftovers of an earlier job are replaced, so only the job's own name must be free.
        name_findings(client, kind.resource, spec.name, spec.namespace),
        *(_claim(client, spec, name) for name in claims if (CLAIMS, name) not in made),
        *(_new_claim(client, spec, claim) for claim in spec.new_claims),
        *(_needed(client, spec, each) for each in kind.needs(manifest)),
        *_sources(client, spec, pods, made),
        quota_findings(client, kind, spec, manifest),
        _limits(client, kind, spec, manifest),
    ]
    if spec.priority_class:
        checks.append(_priority_class(client, spec.priority_class))
    if spec.queue:
        checks.append(_queue(client, spec))
    if spec.suspend:
        checks.append(_suspend(client, kind))
    if spec.gang or spec.scheduler == VOLCANO:
        checks.append(_pod_groups(client, spec))
    return sorted(chain(*await run_checks(checks)), key=lambda finding: finding.severity != "error")


async def _new_claim(client: Client, spec: JobSpec, wanted: NewClaim) -> list[Cause]:
    # An existing claim of the name is used in its place.
    obj = await find(client, CLAIMS, wanted.name, spec.namespace)
    if obj is not None:
        claim = convert(obj, Claim)
        if sentence := shortage(claim, new_claim_spec(wanted)):
            remedy = "choose another name or a smaller size, or try again"
            text = sentence[:1].lower() + sentence[1:].rstrip(".")
            return [error("new_claims", f"{REFUSED}{text}", remedy)]
        text = f"would use volume claim {wanted.name}, which already exists ({claim.size})"
        found = [warning("new_claims", text, "choose another name for a new one")]
        return [*found, *await _claim(client, spec, wanted.name)]
    modes = _access(spec, wanted.name, {ACCESS_MODES[wanted.mode]})
    class_name = wanted.storage_class
    if class_name and await find(client, STORAGE_CLASSES, class_name) is not None:
        return modes
    try:
        classes = await client.list(STORAGE_CLASSES)
    except KubeError:  # many users may not list them
        return modes
    if not class_name and any(_is_default(each) for each in classes):
        return modes
    claim = Claim(Meta(wanted.name), ClaimSpec(storage_class_name=class_name), ClaimStatus("Pending"))
    choices = [str(each["metadata"]["name"]) for each in classes]
    cause = claim_cause(wanted.name, claim, spec.namespace, {class_name: None}, choices)
    return [*_at("new_claims", cause), *modes]


def _at(field: str, cause: Cause | None) -> list[Cause]:
    return [replace(cause, field=field)] if cause is not None else []


def _is_default(storage_class: Mapping[str, Any]) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    keys = (DEFAULT_CLASS, DEFAULT_CLASS.replace("storageclass.", "storageclass.beta."))
    return any(annotations.get(key) == "true" for key in keys)


async def _suspend(client: Client, kind: CreatableKind) -> list[Cause]:
    # A CRD may list the fields of a job without one that suspends it.
    name = f"{kind.resource.plural}.{kind.resource.group}"
    crd = await find(client, CRDS, name) if kind.suspend_field else None
    for version in crd["spec"]["versions"] if crd is not None else ():
        if version["name"] != kind.resource.version:
            continue
        schema = version["schema"]["openAPIV3Schema"]
        for part in kind.suspend_field.split("."):
            if not (properties := schema.get("properties")):
                return []  # a loose schema does not tell
            if part not in properties:
                text = (
                    f"would start at once: {kind.resource.kind}s of this cluster have no {kind.suspend_field}"
                )
                return [warning("suspend", text, "create it when it may start")]
            schema = properties[part]
    return []


async def _pod_groups(client: Client, spec: JobSpec) -> list[Cause]:
    # Pods of a gang need a scheduler that knows pod groups.
    groups = POD_GROUPS[:1] if spec.scheduler == VOLCANO else POD_GROUPS
    served = await fetch_served(client, {each.api_version for each in groups})
    found = (served.plurals.get(each.api_version, frozenset()) for each in groups)
    if any(plurals is None or "podgroups" in plurals for plurals in found):
        return []
    if spec.scheduler == VOLCANO:
        text = "would wait: this cluster has no PodGroups of Volcano, so its scheduler does not run"
        return [warning("scheduler", text, "leave the scheduler empty, or ask for Volcano to be installed")]
    text = "may start in part: no scheduler of this cluster supports pod groups"
    return [warning("gang", text, "leave it off, or ask for Volcano or scheduler-plugins to be installed")]


async def _needed(client: Client, spec: JobSpec, needed: NeededObject) -> list[Cause]:
    # Without this object the job could not run.
    resource, name, field = needed
    if await find(client, resource, name, spec.namespace) is not None:
        return []
    namespace = spec.namespace if resource.is_namespaced else ""
    known = sorted(str(each["metadata"]["name"]) for each in await client.list(resource, namespace))
    text = f"would fail: there is no {resource.kind} {name}" + (f" in {namespace}" if namespace else "")
    return [
        error(field, text, f"choose one of {', '.join(known[:5])}" if known else "ask for it to be installed")
    ]


async def _claim(client: Client, spec: JobSpec, name: str) -> list[Cause]:
    obj = await find(client, CLAIMS, name, spec.namespace)
    claim = convert(obj, Claim) if obj is not None else None
    classes: dict[str, StorageClass | None] = {}
    if claim is not None and claim.state == "Pending" and (class_name := claim.spec.storage_class_name):
        found = await find(client, STORAGE_CLASSES, class_name)
        classes[class_name] = convert(found, StorageClass) if found is not None else None
    causes = _at("mounts", claim_cause(name, claim, spec.namespace, classes))
    return [*causes, *_access(spec, name, set(claim.access_modes))] if claim is not None else causes


def _access(spec: JobSpec, name: str, modes: set[str]) -> list[Cause]:
    mounts = [mount for mount in spec.mounts if mount.claim == name]
    if not mounts or not modes or "ReadWriteMany" in modes:
        return []
    if modes == {"ReadOnlyMany"} and not all(mount.is_read_only for mount in mounts):
        text = f"would fail to write: volume claim {name} is read-only (ROX)"
        return [warning("mounts", text, "mount it read-only, as claim:/path:ro, and write elsewhere")]
    if spec.workers > 1 and modes == {"ReadWriteOncePod"}:
        text = f"would never start: one pod alone may mount volume claim {name} (RWOP), not {spec.workers}"
        return [error("mounts", text, "use a claim with ReadWriteMany")]
    if spec.workers > 1 and "ReadOnlyMany" not in modes:
        text = (
            f"would wait unless all {spec.workers} pods fit on one node: volume claim {name} is mounted "
            "on one node at a time (RWO)"
        )
        return [warning("mounts", text, "use a claim with ReadWriteMany")]
    return []


def _sources(
    client: Client, spec: JobSpec, pods: Iterable[SchedulingSpec], made: Container[tuple[Resource, str]]
) -> list[Check]:
    volumes = [volume for pod in pods for volume in pod.volumes or ()]
    of_volumes = (
        (SECRETS if each.secret else CONFIG_MAPS, each.secret or each.config_map) for each in volumes
    )
    wanted = [
        *((SECRETS, name, "", "pull_secrets") for name in spec.pull_secrets),
        *((SECRETS, spec.git_secret, "", "git_secret") for _ in [0] if spec.git_secret),
        *(
            (SECRETS if each.is_secret else CONFIG_MAPS, each.source, each.key, "env_from")
            for each in spec.env_from
        ),
        *(
            (of, each.secret_name or each.name, "", "mounts")
            for of, each in of_volumes
            if each and not each.optional
        ),
    ]
    first = {each[:3]: each for each in reversed(wanted) if each[:2] not in made}
    return [_source(client, spec.namespace, *each) for each in reversed(first.values())]


async def _source(
    client: Client, namespace: str, resource: Resource, name: str, key: str, field: str
) -> list[Cause]:
    found = await find(client, resource, name, namespace)
    if found is None:
        return _at(field, missing_object(resource.kind, name, namespace))
    keys = {**(found.get("data") or {}), **(found.get("stringData") or {})}
    if not key or key in keys:
        return []
    return _at(field, missing_key(resource.kind, f"{resource.kind} {name}", key, keys))


async def _priority_class(client: Client, name: str) -> list[Cause]:
    if await find(client, PRIORITIES, name) is not None:
        return []
    known = [str(each["metadata"]["name"]) for each in await client.list(PRIORITIES)]
    return _at("priority_class", missing_name("PriorityClass", name, known))


async def _queue(client: Client, spec: JobSpec) -> list[Cause]:
    queues = (Resource(KUEUE, version, "localqueues", "LocalQueue") for version in KUEUE_VERSIONS)
    found = await asyncio.gather(*(find(client, each, spec.queue, spec.namespace) for each in queues))
    obj = next(filter(None, found), None)
    queue = convert(obj, LocalQueue) if obj is not None else None
    return _at("queue", queue_cause(spec.queue, queue, spec.namespace))


async def quota_findings(
    client: Client, kind: CreatableKind, spec: JobSpec, manifest: Manifest
) -> list[Cause]:
    """Return findings for quotas with too little left for all pods together.

    Raises:
        KubeError: Quotas cannot be listed.
    """
    pods = {name: requests.of_pod(pod) for name, pod in named_pods(kind, manifest)}
    at_once = [pods[name] for name, _ in pods_at_once(kind, manifest)]
    quotas = [convert(each, Quota) for each in await client.list(QUOTAS, spec.namespace)]
    found = (quota_causes(quota, pods, at_once, spec.namespace) for quota in quotas if pods)
    return list(chain.from_iterable(found))


async def _limits(client: Client, kind: CreatableKind, spec: JobSpec, manifest: Manifest) -> list[Cause]:
    ranges = [convert(each, LimitRange) for each in await client.list(LIMIT_RANGES, spec.namespace)]
    return limit_causes(ranges, named_pods(kind, manifest))


async def fetch_capacity(client: Client) -> ClusterCapacity:
    """Return the capacity of the nodes, as if no pod ran; empty if the user may not list them."""
    nodes = await Fetcher(client).list_all(NODES, Node) or ()
    return ClusterCapacity({node.metadata.name: NodeCapacity.of(node, {}) for node in nodes})


async def check_objects(
    client: Client, objects: Sequence[tuple[Resource, Manifest]], namespace: str
) -> list[Cause]:
    """Return the findings for objects; failed checks are ignored.

    An object without a name gets it from the server; `namespace` is for objects that name none.
    """
    homes: dict[str, list[tuple[Resource, str]]] = {}
    for resource, manifest in objects:
        meta = manifest["metadata"]
        home = str(meta.get("namespace") or namespace)
        homes.setdefault(home, []).append((resource, str(meta.get("name") or "")))
    found: list[Cause] = []
    for home, named in homes.items():
        if await namespace_is_missing(client, home):
            found.append(no_namespace(home))
            continue
        resources = list(dict.fromkeys(resource for resource, _ in named))
        unserved = await run_checks(served_findings(client, each) for each in resources)
        served = [resource for resource, findings in zip(resources, unserved, strict=True) if not findings]
        checks = [
            permission_findings(client, served, home),
            *(name_findings(client, resource, name, home) for resource, name in named if name),
        ]
        found += chain(*unserved, *await run_checks(checks))
    return found


async def run_checks(checks: Iterable[Check]) -> list[list[Cause]]:
    """Return the findings of each check; none for a check that failed."""
    # Tasks from the start: a coroutine cancelled before its turn would never be awaited.
    answers = await asyncio.gather(*checks, return_exceptions=True)
    errors = (each for each in answers if isinstance(each, BaseException))
    bug = next((each for each in errors if not isinstance(each, _TELLS_NOTHING)), None)
    try:
        if bug is not None:
            raise bug
        return [[] if isinstance(answer, BaseException) else answer for answer in answers]
    finally:
        del bug, answers, errors  # its traceback leads to this frame


async def namespace_is_missing(client: Client, namespace: str) -> bool:
    """Return True if the cluster reports that the namespace does not exist."""
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound as error:
        return not error.is_foreign
    except KubeError:
        return False
    return False


async def served_findings(client: Client, resource: Resource) -> list[Cause]:
    """Check that the cluster serves a resource in this version.

    Raises:
        KubeError: Discovery failed.
    """
    served = await fetch_served(client, {resource.api_version})
    plurals = served.plurals.get(resource.api_version, frozenset())
    if plurals is None or resource.plural in plurals:
        return []
    others = await _served_versions(client, resource)
    title = f"{resource.kind} {resource.api_version}"
    if others:
        text = f"{REFUSED}this cluster does not serve {title}, but {', '.join(others)}"
        return [error("kind", text, f"write apiVersion: {others[0]}", resource.kind)]
    text = f"{REFUSED}this cluster does not serve {title}"
    remedy = "choose another kind of job, or ask for its operator to be installed"
    return [error("kind", text, remedy, resource.kind)]


async def _served_versions(client: Client, resource: Resource) -> list[str]:
    # The preferred version first.
    if not resource.group:
        return []
    try:
        group = await client.get_json(f"/apis/{resource.group}", doing="read the served versions")
    except NotFound:
        return []
    versions = [str(each["groupVersion"]) for each in group.get("versions") or ()]
    served = await fetch_served(client, set(versions))
    return [each for each in versions if resource.plural in (served.plurals.get(each) or ())]


async def permission_findings(client: Client, resources: Iterable[Resource], namespace: str) -> list[Cause]:
    """Check that the user may create these resources.

    Raises:
        KubeError: An access review failed.
    """
    kinds = {resource: ResourceAttributes.of("create", resource) for resource in resources}
    answers = await asyncio.gather(*(review(client, need, namespace) for need in kinds.values()))
    remedy = "pick another namespace, or ask for that role"
    return [
        error("namespace", f"{REFUSED}{answer.why}", remedy, resource.kind)
        for resource, answer in zip(kinds, answers, strict=True)
        if answer.is_allowed is False
    ]


async def name_findings(client: Client, resource: Resource, name: str, namespace: str) -> list[Cause]:
    """Check that a name is unused.

    Raises:
        KubeError: The request failed.
    """
    if await find(client, resource, name, namespace) is None:
        return []
    return [taken_name(resource.kind, name, namespace)]


async def find(client: Client, resource: Resource, name: str, namespace: str = "") -> dict[str, Any] | None:
    """Return an object; None if it does not exist.

    Raises:
        KubeError: The request failed.
    """
    try:
        return await client.get(resource, name, namespace if resource.is_namespaced else "")
    except NotFound:
        return None
