"""Check whether objects can be created: served version, permission and unused name."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from k8s.client.client import Client
from k8s.cluster.discovery import fetch_served
from k8s.jobs.permissions import ResourceAttributes, review
from k8s.kinds import Manifest
from k8s.models.resources import NAMESPACES, Resource
from k8s.reasons.cause import REFUSED, Cause, error
from k8s.text.errors import KubeError, NotFound

Check = Coroutine[Any, Any, list[Cause]]
# Requests fail with the first two; an unexpected answer causes the others.
_TELLS_NOTHING = (KubeError, msgspec.ValidationError, AttributeError, KeyError, TypeError, ValueError)


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
    text = f"{REFUSED}{resource.kind} {name} already exists in {namespace}"
    return [error("name", text, "choose another name, or delete that one first", f"{resource.kind} {name}")]


async def find(client: Client, resource: Resource, name: str, namespace: str = "") -> dict[str, Any] | None:
    """Return an object; None if it does not exist.

    Raises:
        KubeError: The request failed.
    """
    try:
        return await client.get(resource, name, namespace if resource.is_namespaced else "")
    except NotFound:
        return None
