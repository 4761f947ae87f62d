"""What the server says about itself: versions, groups, kinds, and enough OpenAPI for kubectl."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from k8s.sandbox.api.served import SERVED, ServedResource

Document = dict[str, Any]

KUBERNETES = "1.31"
"""The release whose behaviour this server follows."""
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
SUBRESOURCES = {
    "status": ("", ["get", "patch", "update"]),
    "log": ("", ["get"]),
    "exec": ("PodExecOptions", ["create", "get"]),
    "binding": ("Binding", ["create"]),
}
"""By name: the kind that is sent to it, empty for the object's own, and what can be done there."""
REVIEW_VERSION = "authorization.k8s.io/v1"
"""Group and version of the kinds in `REVIEWS`."""
REVIEWS = {
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
}
"""Questions about permissions, by path; they are answered, never stored."""
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def documents() -> dict[str, Document]:
    """Return what stands at each path that is about the server and its kinds."""
    found: dict[str, Document] = {
        "/version": _server_version(),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    }
    groups: dict[str, list[Document]] = {}
    paths = {}
    for api_version in dict.fromkeys([*(each.resource.api_version for each in SERVED), REVIEW_VERSION]):
        group, _, release = api_version.rpartition("/")
        path = f"apis/{api_version}" if group else f"api/{api_version}"
        found[f"/{path}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": list(_resources(api_version)),
        }
        found[f"/openapi/v3/{path}"] = _openapi(api_version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
        groups.setdefault(group, []).append({"groupVersion": api_version, "version": release})
    listed = [
        {"name": name, "versions": versions, "preferredVersion": versions[0]}
        for name, versions in groups.items()
        if name
    ]
    found["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    found |= {f"/apis/{each['name']}": {"kind": "APIGroup", "apiVersion": "v1", **each} for each in listed}
    return found | {"/openapi/v3": {"paths": paths}}


def _server_version() -> Document:
    """Return a Kubernetes release, and that this is no real one."""
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


def _resources(api_version: str) -> Iterator[Document]:
    """Yield each path of a group's version with the kind behind it and what can be done there."""
    if api_version == REVIEW_VERSION:
        for plural, kind in REVIEWS.items():
            yield _entry(plural, kind, ["create"])
    for served in SERVED:
        resource = served.resource
        if resource.api_version == api_version:
            names = {"shortNames": [served.short]} if served.short else {}
            if resource.plural in ("pods", "services", "jobs"):
                names["categories"] = ["all"]
            yield _entry(resource.plural, resource.kind, VERBS, served) | names
            for name in ("status",) * served.has_status + served.subresources:
                if name in SUBRESOURCES:
                    kind, verbs = SUBRESOURCES[name]
                    yield _entry(f"{resource.plural}/{name}", kind or resource.kind, verbs, served)


def _entry(path: str, kind: str, verbs: list[str], served: ServedResource | None = None) -> Document:
    return {
        "name": path,
        "singularName": kind.lower() if served else "",
        "namespaced": served.resource.is_namespaced if served else False,
        "kind": kind,
        "verbs": verbs,
    }


def _openapi(api_version: str) -> Document:
    """Return which objects can be patched, and that their fields are checked here.

    There are no schemas. kubectl needs the `fieldValidation` parameter to leave checking to the server.
    """
    paths = {}
    for resource in (served.resource for served in SERVED if served.resource.api_version == api_version):
        at = resource.path("{namespace}", "{name}").replace("%7B", "{").replace("%7D", "}")
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        patch = {
            "parameters": [
                {"name": each, "in": "query"} for each in ("dryRun", "fieldManager", "fieldValidation")
            ],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": gvk,
        }
        paths[at] = {"patch": patch}
    about = {"title": "gpuconsole sandbox", "version": KUBERNETES}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}
