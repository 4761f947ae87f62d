"""What the server says about itself: versions, groups, kinds and what can be done with them."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from k8s.sandbox.api.http import openapi
from k8s.sandbox.api.http.openapi import KUBERNETES
from k8s.sandbox.api.served import SERVED, ServedResource

Document = dict[str, Any]

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
SUBRESOURCES = {
    "status": ("", ["get", "patch", "update"]),
    "log": ("", ["get"]),
    "exec": ("PodExecOptions", ["create", "get"]),
    "binding": ("Binding", ["create"]),
}
"""By name: the kind that is sent to it, empty for the object's own, and what can be done there."""
REVIEWS = {
    ("authorization.k8s.io/v1", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io/v1", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authentication.k8s.io/v1", "selfsubjectreviews"): "SelfSubjectReview",
}
"""Questions about who asks and what they may do, by version and plural; answered, never stored."""
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
    stored = [each.resource.api_version for each in SERVED]
    for api_version in dict.fromkeys([*stored, *(at for at, _ in REVIEWS)]):
        group, _, release = api_version.rpartition("/")
        path = f"apis/{api_version}" if group else f"api/{api_version}"
        found[f"/{path}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": list(_resources(api_version)),
        }
        found[f"/openapi/v3/{path}"] = openapi.document(api_version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
        groups.setdefault(group, []).append({"groupVersion": api_version, "version": release})
    listed = [
        {"name": name, "versions": versions, "preferredVersion": _preferred(name, versions)}
        for name, versions in groups.items()
        if name
    ]
    found["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    found |= {f"/apis/{each['name']}": {"kind": "APIGroup", "apiVersion": "v1", **each} for each in listed}
    return found | {"/openapi/v3": {"paths": paths}}


def _preferred(group: str, versions: list[Document]) -> Document:
    """Return the version that people mean who name none: of what is there in several, the first served."""
    here = [each for each in SERVED if each.resource.group == group]
    further = {each.resource.plural for each in here if each.is_apart}
    first = next(
        (each.resource.version for each in here if not each.is_apart and each.resource.plural in further),
        versions[0]["version"],
    )
    return next(each for each in versions if each["version"] == first)


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
    for (at, plural), kind in REVIEWS.items():
        if at == api_version:
            yield _entry(plural, kind, ["create"])
    for served in SERVED:
        resource = served.resource
        if resource.api_version == api_version:
            names: Document = {"shortNames": [served.short]} if served.short else {}
            if resource.plural in ("pods", "services", "deployments", "jobs"):
                names["categories"] = ["all"]
            names["storageVersionHash"] = _storage_version_hash(served)
            yield _entry(resource.plural, resource.kind, VERBS, served) | names
            for name in ("status",) * served.has_status + served.subresources:
                if name in SUBRESOURCES:
                    kind, verbs = SUBRESOURCES[name]
                    yield _entry(f"{resource.plural}/{name}", kind or resource.kind, verbs, served)


def _storage_version_hash(served: ServedResource) -> str:
    """Return the same for the versions of a resource that show the same objects."""
    return base64.b64encode(hashlib.sha256(served.key.encode()).digest()[:8]).decode()


def _entry(path: str, kind: str, verbs: list[str], served: ServedResource | None = None) -> Document:
    return {
        "name": path,
        "singularName": kind.lower() if served else "",
        "namespaced": served.resource.is_namespaced if served else False,
        "kind": kind,
        "verbs": verbs,
    }
