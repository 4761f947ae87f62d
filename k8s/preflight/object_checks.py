"""Whether objects can be created at all, whatever is in them: served version, permission and free name."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.errors import KubeError, NotFound
from k8s.jobs.permissions import ResourceAttributes, review
from k8s.kinds import Manifest
from k8s.models.resources import NAMESPACES, Resource
from k8s.preflight.finding import REFUSED, Finding, error
from k8s.watch.discovery import fetch_served

Check = Coroutine[Any, Any, list[Finding]]
"""Asks the cluster one thing."""
_TELLS_NOTHING = (KubeError, msgspec.ValidationError, AttributeError, KeyError, TypeError, ValueError)
"""What asking raises, and what reading an answer does that is another thing than was asked for."""


async def check_objects(
    client: Client, objects: Sequence[tuple[Resource, Manifest]], namespace: str
) -> list[Finding]:
    """Return what keeps objects from being created; what cannot be asked is left out.

    Args:
        client: The cluster, as the user who would create them.
        objects: In any order; one without a name gets it from the server.
        namespace: Of those that name none.
    """
    homes: dict[str, list[tuple[Resource, str]]] = {}
    for resource, manifest in objects:
        meta = manifest["metadata"]
        home = str(meta.get("namespace") or namespace)
        homes.setdefault(home, []).append((resource, str(meta.get("name") or "")))
    found: list[Finding] = []
    for home, named in homes.items():
        if await namespace_is_missing(client, home):
            text = f"{REFUSED}there is no namespace {home}"
            found.append(error("namespace", text, "choose one that exists"))
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


async def run_checks(checks: Iterable[Check]) -> list[list[Finding]]:
    """Return what each check finds: nothing, where the cluster does not tell or answers what was not asked.

    They run side by side, as tasks from the start: one that is cancelled before its turn was never begun.
    """
    answers = await asyncio.gather(*checks, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, _TELLS_NOTHING):
            raise answer
    return [[] if isinstance(answer, BaseException) else answer for answer in answers]


async def namespace_is_missing(client: Client, namespace: str) -> bool:
    """Tell whether the cluster says that there is no such namespace."""
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound as error:
        return not error.is_foreign
    except KubeError:
        return False
    return False


async def served_findings(client: Client, resource: Resource) -> list[Finding]:
    """Tell whether the cluster has a resource in this version, and else in which.

    Raises:
        KubeError: It does not say what it has.
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
    """Return in which versions the cluster has a resource, the one that it prefers first."""
    if not resource.group:
        return []
    try:
        group = await client.get_json(f"/apis/{resource.group}", doing="read the served versions")
    except NotFound:
        return []
    versions = [str(each["groupVersion"]) for each in group.get("versions") or ()]
    served = await fetch_served(client, set(versions))
    return [each for each in versions if resource.plural in (served.plurals.get(each) or ())]


async def permission_findings(client: Client, resources: Iterable[Resource], namespace: str) -> list[Finding]:
    """Tell which of them the user may not create.

    Raises:
        KubeError: The cluster does not tell.
    """
    kinds = {resource: ResourceAttributes.of("create", resource) for resource in resources}
    answers = await asyncio.gather(*(review(client, need, namespace) for need in kinds.values()))
    remedy = "pick another namespace, or ask for that role"
    return [
        error("namespace", f"{REFUSED}{answer.why}", remedy, resource.kind)
        for resource, answer in zip(kinds, answers, strict=True)
        if answer.is_allowed is False
    ]


async def name_findings(client: Client, resource: Resource, name: str, namespace: str) -> list[Finding]:
    """Tell whether a name is taken.

    Raises:
        KubeError: The cluster does not tell.
    """
    if await find(client, resource, name, namespace) is None:
        return []
    text = f"{REFUSED}{resource.kind} {name} already exists in {namespace}"
    return [error("name", text, "choose another name, or delete that one first", f"{resource.kind} {name}")]


async def find(client: Client, resource: Resource, name: str, namespace: str = "") -> dict[str, Any] | None:
    """Return an object; None where there is none.

    Raises:
        KubeError: The cluster does not tell.
    """
    try:
        return await client.get(resource, name, namespace if resource.is_namespaced else "")
    except NotFound:
        return None
