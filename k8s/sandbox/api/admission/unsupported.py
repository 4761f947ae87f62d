"""Warnings about fields that the sandbox stores and ignores, for the creator of an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Limits for one object: warnings travel in headers.
MAX_WARNINGS, MAX_WARNING_LENGTH = 20, 250
_OWN_USER = "containers run as the user who started the sandbox, with that user's permissions"
_AS_THIS_MACHINE = "host names are resolved as on this machine"
# Names of ignored fields, anywhere below `spec`, and the effect of ignoring them.
IGNORED: Mapping[str, str] = {
    "podFailurePolicy": "every failed pod counts towards backoffLimit",
    "backoffLimitPerIndex": "failures are counted for the job as a whole, towards backoffLimit",
    "successPolicy": "the job is complete when all its completions are",
    "livenessProbe": "a container that hangs is not restarted",
    "startupProbe": "the container has started once it runs",
    "readinessProbe": "the container is ready once it runs",
    "readinessGates": "a pod is ready once its containers are",
    "lifecycle": "no hooks run, and containers are stopped by SIGTERM",
    "securityContext": _OWN_USER,
    "hostUsers": _OWN_USER,
    "ephemeral-storage": "disk space is not limited",
    "volumeDevices": "there are no block devices",
    "podAffinity": "pods are placed whatever runs beside them",
    "podAntiAffinity": "pods are placed whatever runs beside them",
    "topologySpreadConstraints": "pods are not spread",
    "priorityClassName": "there are no priority classes, and no pod is preempted",
    "serviceAccountName": "pods get no token",
    "runtimeClassName": "containers are processes of this machine",
    "resourceClaims": "no devices are allocated by claims",
    "ephemeralContainers": "they are not started",
    "hostAliases": _AS_THIS_MACHINE,
    "dnsConfig": _AS_THIS_MACHINE,
    "setHostnameAsFQDN": "the host name is the name of the pod",
    "subPathExpr": "the whole volume is mounted",
    "t9kScheduler": "the sandbox has one scheduler, without queues",
    "initializer": "nothing is fetched before the nodes start",
}


def warnings_of(obj: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each field of an object that is stored and then ignored."""
    found = (
        f"{at}: the sandbox ignores it: {IGNORED[name]}" for at, name in _ignored(obj.get("spec"), "spec")
    )
    return [sentence[:MAX_WARNING_LENGTH] for sentence, _ in zip(found, range(MAX_WARNINGS), strict=False)]


def _ignored(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _ignored(each, f"{at}[{index}]")
    elif isinstance(value, dict):
        for name, member in value.items():
            if name in IGNORED:
                if member not in (None, {}, [], ""):
                    yield f"{at}.{name}", name
            else:
                yield from _ignored(member, f"{at}.{name}")
