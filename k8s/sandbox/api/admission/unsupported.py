"""Warnings about fields that the sandbox ignores, for the creator of an object and for an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]

REASON = "UnsupportedField"
# Limits for one object: warnings travel in headers.
MAX_WARNINGS, MAX_WARNING_LENGTH = 20, 250
# Each table: ignored fields, and the effect of ignoring them.
OF_JOB: Mapping[str, str] = {
    "podFailurePolicy": "every failed pod counts towards backoffLimit",
    "backoffLimitPerIndex": "failures are counted for the job as a whole, towards backoffLimit",
    "maxFailedIndexes": "failures are counted for the job as a whole, towards backoffLimit",
    "successPolicy": "the job is complete when all its completions are",
}
OF_CONTAINER: Mapping[str, str] = {
    "livenessProbe": "a container that hangs is not restarted",
    "startupProbe": "the container has started once it runs",
    "readinessProbe": "the container is ready once it runs",
    "lifecycle": "no hooks run, and containers are stopped by SIGTERM",
    "securityContext": "containers run as the user who started the sandbox, with that user's permissions",
    "resources.limits.ephemeral-storage": "disk space is not limited",
    "volumeDevices": "there are no block devices",
}
OF_T9K: Mapping[str, str] = {
    "scheduler.t9kScheduler": "the sandbox has one scheduler, without queues",
    "torchrunConfig.rdzvBackend": "rendezvous is static, in a single pod --standalone",
}
OF_TRAIN_JOB: Mapping[str, str] = {"initializer": "nothing is fetched before the nodes start"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OF_POD: Mapping[str, str] = {
    f"affinity.podAffinity.{_REQUIRED}": "pods are placed whatever runs beside them",
    f"affinity.podAntiAffinity.{_REQUIRED}": "pods are placed whatever runs beside them",
    "readinessGates": "a pod is ready once its containers are",
    "securityContext": "containers run as the user who started the sandbox, with that user's permissions",
    "priorityClassName": "there are no priority classes, and no pod is preempted",
    "serviceAccountName": "pods get no token",
    "runtimeClassName": "containers are processes of this machine",
    "topologySpreadConstraints": "pods are not spread",
    "resourceClaims": "no devices are allocated by claims",
    "ephemeralContainers": "they are not started",
    "hostAliases": "host names are resolved as on this machine",
    "dnsConfig": "host names are resolved as on this machine",
    "hostUsers": "containers run as the user who started the sandbox, with that user's permissions",
    "setHostnameAsFQDN": "the host name is the name of the pod",
}
OF_MOUNT: Mapping[str, str] = {"subPathExpr": "the whole volume is mounted"}
OF_EMPTY_DIR: Mapping[str, str] = {"sizeLimit": "disk space is not limited"}


def warnings_of(key: str, obj: Object) -> list[str]:
    """Return a sentence for each field of an object that is stored and then ignored."""
    sentences = dict.fromkeys(sentence[:MAX_WARNING_LENGTH] for sentence in _warnings(key, obj))
    return list(sentences)[:MAX_WARNINGS]


def _warnings(key: str, obj: Object) -> Iterator[str]:
    spec = obj.get("spec")
    if key == "jobs.batch" and isinstance(spec, dict):
        yield from _ignored(spec, "spec", OF_JOB)
        if spec.get("podReplacementPolicy") == "Failed":
            yield _sentence("spec.podReplacementPolicy", "a pod that is ending is replaced at once")
    if isinstance(spec, dict) and "replicaSpecs" in spec:
        yield from _ignored(spec, "spec", OF_T9K)
    if isinstance(spec, dict) and "runtimeRef" in spec:
        yield from _ignored(spec, "spec", OF_TRAIN_JOB)
    for pod_spec, at in _pod_specs(spec, "spec"):
        yield from _ignored(pod_spec, at, OF_POD)
        volumes = _objects(pod_spec, "volumes")
        durable = [
            each.get("name") for each in volumes if {"persistentVolumeClaim", "hostPath"} & each.keys()
        ]
        for index, volume in enumerate(volumes):
            folder = volume.get("emptyDir")
            if isinstance(folder, dict) and folder.get("medium") != "Memory":  # of /dev/shm it is set always
                yield from _ignored(folder, f"{at}.volumes[{index}].emptyDir", OF_EMPTY_DIR)
        for field in ("initContainers", "containers"):
            for index, container in enumerate(_objects(pod_spec, field)):
                here = f"{at}.{field}[{index}]"
                yield from _ignored(container, here, OF_CONTAINER)
                if container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
                    yield _sentence(f"{here}.terminationMessagePolicy", "the log gives no message")
                for number, mount in enumerate(_objects(container, "volumeMounts")):
                    where = f"{here}.volumeMounts[{number}]"
                    yield from _ignored(mount, where, OF_MOUNT)
                    if mount.get("readOnly") and mount.get("name") in durable:
                        yield _sentence(f"{where}.readOnly", "programs can write to the volume")


def _objects(holder: Object, field: str) -> list[Object]:
    elements = holder.get(field)
    return [each for each in elements if isinstance(each, dict)] if isinstance(elements, list) else []


def _pod_specs(value: Any, at: str) -> Iterator[tuple[Object, str]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _pod_specs(each, f"{at}[{index}]")
    if not isinstance(value, dict):
        return
    if isinstance(value.get("containers"), list):
        yield value, at
        return
    for name, member in value.items():
        yield from _pod_specs(member, f"{at}.{name}")


def _ignored(holder: Object, at: str, fields: Mapping[str, str]) -> Iterator[str]:
    for path, instead in fields.items():
        value: Any = holder
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value not in (None, {}, [], ""):
            yield _sentence(f"{at}.{path}", instead)


def _sentence(field: str, instead: str) -> str:
    return f"{field}: the sandbox ignores it: {instead}"
