"""Which kinds the sandbox serves: one line each, and what is special about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from k8s.kinds import RUNNABLE, JobKind
from k8s.models.resources import (
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    TRAINING_RUNTIMES,
    Resource,
)


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One kind of object as this server treats it."""

    resource: Resource
    """What it is called, and where its paths are."""
    short: str = ""
    """What people type for it, as in `po`."""
    has_status: bool = False
    """Whether `status` is written by its own path only."""
    is_custom: bool = False
    """Whether a real cluster has it from a CRD: it takes no strategic merge patch, and has no defaults."""
    fields: tuple[str, ...] = ()
    """Field selectors besides the name and the namespace."""
    subresources: tuple[str, ...] = ()
    """Paths below an object besides `status`."""
    deleted_is_returned: bool = False
    """Whether a delete answers the object, not a `Status`."""

    is_apart: bool = False
    """Whether it is a further version of a resource whose objects are its own: nothing is converted."""

    @property
    def key(self) -> str:
        """Return its name in the store: `pods`, `jobs.batch`, of a further version `jobs.v2.example.org`."""
        resource = self.resource
        if self.is_apart:
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
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


def _is_further_version(kind: JobKind) -> bool:
    same = [each for each in RUNNABLE if each.resource.full_name == kind.resource.full_name]
    return same[0] is not kind


SERVED: tuple[ServedResource, ...] = (
    ServedResource(NAMESPACES, "ns", has_status=True, fields=("status.phase",), deleted_is_returned=True),
    ServedResource(NODES, "no", has_status=True, fields=("spec.unschedulable",)),
    ServedResource(
        PODS, "po", has_status=True, fields=POD_FIELDS, subresources=POD_PATHS, deleted_is_returned=True
    ),
    ServedResource(EVENTS, "ev", fields=EVENT_FIELDS),
    ServedResource(SERVICES, "svc", has_status=True),
    ServedResource(CONFIG_MAPS, "cm"),
    ServedResource(SECRETS, fields=("type",)),
    ServedResource(CLAIMS, "pvc", has_status=True, deleted_is_returned=True),
    ServedResource(SERVICE_ACCOUNTS, "sa", deleted_is_returned=True),
    ServedResource(DEPLOYMENTS, "deploy", has_status=True),
    ServedResource(JOBS, has_status=True, fields=("status.successful",)),
    *(ServedResource(each, is_custom=True) for each in TRAINING_RUNTIMES),
    *(
        ServedResource(kind.resource, has_status=True, is_custom=True, is_apart=_is_further_version(kind))
        for kind in RUNNABLE
        if kind.resource != JOBS
    ),
)
"""All kinds. To serve another, add a line; columns for `kubectl get` are in `tables`."""

BY_PATH: Mapping[tuple[str, str, str], ServedResource] = {
    (each.resource.group, each.resource.version, each.resource.plural): each for each in SERVED
}
"""By group, version and plural, as they stand in a path."""
BY_KEY: Mapping[str, ServedResource] = {each.key: each for each in SERVED}
