"""Kinds that the sandbox serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
