"""Kinds that the sandbox serves, and discovery: their versions, groups and verbs."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from k8s.kinds import RUNNABLE, JobKind
from k8s.models import resources


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One kind of object and how this server treats it."""

    resource: resources.Resource
    short: str = ""
    has_status: bool = False
    # A custom resource: no strategic merge patch, no defaults.
    is_custom: bool = False
    fields: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    # A deletion is answered with the object in place of a Status.
    returns_deleted: bool = False

    # A further version of a resource with objects of its own: nothing is converted.
    is_separate_version: bool = False

    @property
    def key(self) -> str:
        """Return the key in the store: `pods`, `jobs.batch`; of a further version `jobs.v2.example.org`."""
        resource = self.resource
        if self.is_separate_version:
            return f"{resource.plural}.{resource.version}.{resource.group}"
        return resource.full_name


POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
EVENT_FIELDS = (
    *(
        f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
POD_PATHS = ("log", "exec", "binding", "attach", "portforward", "proxy")
SERVICE_ACCOUNTS = resources.Resource("", "v1", "serviceaccounts", "ServiceAccount")


def _is_further_version(kind: JobKind) -> bool:
    same = [each for each in RUNNABLE if each.resource.full_name == kind.resource.full_name]
    return same[0] is not kind


# To serve another kind, add a line.
SERVED: tuple[ServedResource, ...] = (
    ServedResource(
        resources.NAMESPACES, "ns", has_status=True, fields=("status.phase",), returns_deleted=True
    ),
    ServedResource(resources.NODES, "no", has_status=True, fields=("spec.unschedulable",)),
    ServedResource(
        resources.PODS, "po", has_status=True, fields=POD_FIELDS, subresources=POD_PATHS, returns_deleted=True
    ),
    ServedResource(resources.EVENTS, "ev", fields=EVENT_FIELDS),
    ServedResource(resources.SERVICES, "svc", has_status=True),
    ServedResource(resources.CONFIG_MAPS, "cm"),
    ServedResource(resources.SECRETS, fields=("type",)),
    ServedResource(resources.CLAIMS, "pvc", has_status=True, returns_deleted=True),
    ServedResource(SERVICE_ACCOUNTS, "sa", returns_deleted=True),
    ServedResource(resources.DEPLOYMENTS, "deploy", has_status=True),
    ServedResource(resources.JOBS, has_status=True, fields=("status.successful",)),
    *(ServedResource(each, is_custom=True) for each in resources.TRAINING_RUNTIMES),
    *(
        ServedResource(
            kind.resource, has_status=True, is_custom=True, is_separate_version=_is_further_version(kind)
        )
        for kind in RUNNABLE
        if kind.resource != resources.JOBS
    ),
)

BY_PATH: Mapping[tuple[str, str, str], ServedResource] = {
    (each.resource.group, each.resource.version, each.resource.plural): each for each in SERVED
}
BY_KEY: Mapping[str, ServedResource] = {each.key: each for each in SERVED}


Document = dict[str, Any]

KUBERNETES = "1.31"

VERBS = ["create", "delete", "get", "list", "patch", "watch"]
# By name: the kind of its bodies (empty for the kind of the object) and its verbs.
SUBRESOURCES = {
    "status": ("", ["get", "patch"]),
    "log": ("", ["get"]),
    "exec": ("PodExecOptions", ["create", "get"]),
    "binding": ("Binding", ["create"]),
}
# By version and plural: questions about users and permissions; answered, never stored.
REVIEWS = {
    ("authorization.k8s.io/v1", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io/v1", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authentication.k8s.io/v1", "selfsubjectreviews"): "SelfSubjectReview",
}
METRICS_VERSION = "metrics.k8s.io/v1beta1"
METRICS_PATH = f"/apis/{METRICS_VERSION}"


def documents() -> dict[str, Document]:
    """Return the discovery documents by path."""
    by_path: dict[str, Document] = {
        "/version": _server_version(),
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    }
    groups: dict[str, list[Document]] = {}
    paths = {}
    stored = [each.resource.api_version for each in SERVED]
    for api_version in dict.fromkeys([*stored, *(at for at, _ in REVIEWS), METRICS_VERSION]):
        group, _, release = api_version.rpartition("/")
        path = f"apis/{api_version}" if group else f"api/{api_version}"
        by_path[f"/{path}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": list(_resources(api_version)),
        }
        by_path[f"/openapi/v3/{path}"] = _openapi(api_version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
        groups.setdefault(group, []).append({"groupVersion": api_version, "version": release})
    listed = [
        {"name": name, "versions": versions, "preferredVersion": _preferred(name, versions)}
        for name, versions in groups.items()
        if name
    ]
    by_path["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    by_path |= {f"/apis/{each['name']}": {"kind": "APIGroup", "apiVersion": "v1", **each} for each in listed}
    return by_path | {"/openapi/v3": {"paths": paths}}


def _openapi(api_version: str) -> Document:
    # Just enough for kubectl to leave the checks of fields to the server: it looks for the `fieldValidation`
    # parameter of a kind's patch, and refuses to apply or create without it. No patch lists the bodies it
    # takes, so kubectl makes patches by the types it knows itself.
    parameters = [{"name": each, "in": "query"} for each in ("dryRun", "fieldValidation")]
    paths: Document = {}
    for resource in (served.resource for served in SERVED):
        if resource.api_version == api_version:
            at = resource.path("{namespace}", "{name}").replace("%7B", "{").replace("%7D", "}")
            gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
            paths[at] = {"patch": {"parameters": parameters, "x-kubernetes-group-version-kind": gvk}}
    about = {"title": "gpuconsole sandbox", "version": KUBERNETES}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}


def _preferred(group: str, versions: list[Document]) -> Document:
    """Return the preferred version of a group: of a kind served in several versions, the first of these."""
    group_kinds = [each for each in SERVED if each.resource.group == group]
    further = {each.resource.plural for each in group_kinds if each.is_separate_version}
    shared = (
        each.resource
        for each in group_kinds
        if not each.is_separate_version and each.resource.plural in further
    )
    preferred = next((resource.version for resource in shared), versions[0]["version"])
    return next(each for each in versions if each["version"] == preferred)


def _server_version() -> Document:
    major, minor = KUBERNETES.split(".")
    system = f"{platform.system().lower()}/{platform.machine()}"
    # The suffix tells people that this is no real Kubernetes release.
    release = f"v{KUBERNETES}.0+gpuconsole-sandbox"
    return {"major": major, "minor": minor, "gitVersion": release, "platform": system}


def _resources(api_version: str) -> Iterator[Document]:
    for (at, plural), kind in REVIEWS.items():
        if at == api_version:
            yield _entry(plural, kind, ["create"])
    if api_version == METRICS_VERSION:
        for served, kind in ((BY_KEY["nodes"], "NodeMetrics"), (BY_KEY["pods"], "PodMetrics")):
            yield _entry(served.resource.plural, kind, ["get", "list"], served)
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
    # Equal for the versions of a resource that share their objects.
    return base64.b64encode(hashlib.sha256(served.key.encode()).digest()[:8]).decode()


def _entry(path: str, kind: str, verbs: list[str], served: ServedResource | None = None) -> Document:
    return {
        "name": path,
        "singularName": kind.lower() if served else "",
        "namespaced": served.resource.is_namespaced if served else False,
        "kind": kind,
        "verbs": verbs,
    }
