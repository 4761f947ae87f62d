"""What the server says about itself: versions, groups, kinds, and enough OpenAPI for kubectl."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from k8s.sandbox.api.served import SERVED, Served

Document = dict[str, Any]

KUBERNETES = "1.31"
"""The release whose behaviour this server follows."""
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
SUBRESOURCE_VERBS = {"log": ["get"], "exec": ["create", "get"], "binding": ["create"]}
REVIEWS = (
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
)
"""Questions about permissions; they are answered, never stored."""
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def server_version() -> Document:
    """Return `/version`: a Kubernetes release, and that this is no real one."""
    major, minor = KUBERNETES.split(".")
    try:
        commit = version("gpuconsole")
    except PackageNotFoundError:
        commit = "unknown"
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES}.0+gpuconsole-sandbox",
        "gitCommit": commit,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": f"python{platform.python_version()}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def groups() -> dict[str, str]:
    """Return each API group and its version; the core group has no name."""
    found = {served.resource.group: served.resource.version for served in SERVED}
    return found | {"authorization.k8s.io": "v1"}


def group_list() -> Document:
    """Return `/apis`."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, each) for name, each in groups().items() if name],
    }


def group(name: str) -> Document | None:
    """Return `/apis/NAME`."""
    found = groups().get(name) if name else None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found)} if found else None


def resource_list(name: str, release: str) -> Document | None:
    """Return `/apis/NAME/RELEASE`, or `/api/v1` for the group without a name."""
    if groups().get(name) != release:
        return None
    resources = [
        {
            "name": path,
            "singularName": served.resource.kind.lower() if served else "",
            "namespaced": served.resource.is_namespaced if served else False,
            "kind": kind,
            "verbs": verbs,
        }
        | ({"shortNames": [served.short]} if served and served.short and "/" not in path else {})
        | ({"categories": ["all"]} if served and path in ("pods", "services", "jobs") else {})
        for path, kind, verbs, served in _paths(name)
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{release}" if name else release,
        "resources": resources,
    }


def aggregated(*, core: bool) -> Document:
    """Return `/api` or `/apis` with all resources inside: one request in place of one for each group."""
    items = []
    for name, release in groups().items():
        if core != (name == ""):
            continue
        below: dict[str, Document] = {}
        for path, kind, verbs, served in _paths(name):
            plural, _, subresource = path.partition("/")
            gvk = {"group": name, "version": release, "kind": kind}
            if subresource:
                entry = {"subresource": subresource, "responseKind": gvk, "verbs": verbs}
                below[plural].setdefault("subresources", []).append(entry)
                continue
            below[plural] = {
                "resource": plural,
                "responseKind": gvk,
                "scope": "Namespaced" if served and served.resource.is_namespaced else "Cluster",
                "singularResource": kind.lower(),
                "verbs": verbs,
            }
            if served and served.short:
                below[plural]["shortNames"] = [served.short]
            if plural in ("pods", "services", "jobs"):
                below[plural]["categories"] = ["all"]
        versions = [{"version": release, "freshness": "Current", "resources": list(below.values())}]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def openapi_index() -> Document:
    """Return `/openapi/v3`: where the document of each group is."""
    paths = {_openapi_path(name, release) for name, release in groups().items()}
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted(paths)}}


def openapi(path: str) -> Document | None:
    """Return `/openapi/v3/PATH`: which objects can be patched, and that their fields are checked here.

    There are no schemas. kubectl needs the `fieldValidation` parameter to leave checking to the server.
    """
    for name, release in groups().items():
        if _openapi_path(name, release) == path:
            break
    else:
        return None
    paths = {}
    for served in SERVED:
        resource = served.resource
        if resource.group != name:
            continue
        at = resource.path("{namespace}", "{name}").replace("%7B", "{").replace("%7D", "}")
        gvk = {"group": name, "version": release, "kind": resource.kind}
        patch = {
            "parameters": [
                {"name": each, "in": "query"} for each in ("dryRun", "fieldManager", "fieldValidation")
            ],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": gvk,
        }
        paths[at] = {"patch": patch}
    about = {"title": "gpuconsole sandbox", "version": server_version()["gitVersion"]}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}


def _openapi_path(name: str, release: str) -> str:
    return f"apis/{name}/{release}" if name else f"api/{release}"


def _group(name: str, release: str) -> Document:
    each = {"groupVersion": f"{name}/{release}", "version": release}
    return {"name": name, "versions": [each], "preferredVersion": each}


def _paths(name: str) -> Iterator[tuple[str, str, list[str], Served | None]]:
    """Yield each path of a group with the kind behind it and what can be done there."""
    for served in SERVED:
        resource = served.resource
        if resource.group != name:
            continue
        yield resource.plural, resource.kind, VERBS, served
        if served.has_status:
            yield f"{resource.plural}/status", resource.kind, ["get", "patch", "update"], served
        for subresource in served.subresources:
            if subresource in SUBRESOURCE_VERBS:
                kind = {"exec": "PodExecOptions", "binding": "Binding"}.get(subresource, resource.kind)
                yield f"{resource.plural}/{subresource}", kind, SUBRESOURCE_VERBS[subresource], served
    if name == "authorization.k8s.io":
        for plural, kind in REVIEWS:
            yield plural, kind, ["create"], None
