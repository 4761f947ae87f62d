"""What an object asks for that the sandbox leaves out: told whoever creates it, and by an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]

REASON = "UnsupportedField"
"""Of the events."""
MOST_WARNINGS, LONGEST_WARNING = 20, 250
"""What is told of one object: headers are short."""
OF_JOB: Mapping[str, str] = {
    "podFailurePolicy": "every failed pod counts towards backoffLimit",
    "backoffLimitPerIndex": "failures are counted for the job as a whole, towards backoffLimit",
    "maxFailedIndexes": "failures are counted for the job as a whole, towards backoffLimit",
    "successPolicy": "the job is complete when all its completions are",
}
"""Fields of a Job, and what happens instead."""
OF_CONTAINER: Mapping[str, str] = {
    "livenessProbe": "a container that hangs is not restarted",
    "startupProbe": "readiness is asked for from the start",
    "readinessProbe.grpc": "the container is ready once it runs",
    "lifecycle.postStart": "nothing runs after the start",
}
"""Fields of a container, and what happens instead."""
OF_T9K: Mapping[str, str] = {
    "scheduler.t9kScheduler": "the sandbox has one scheduler, without queues",
    "torchrunConfig.rdzvBackend": "rendezvous is static, in a single pod --standalone",
}
"""Fields of a job of TensorStack, and what happens instead."""
OF_TRAIN_JOB: Mapping[str, str] = {"initializer": "nothing is fetched before the nodes start"}
"""Fields of a TrainJob, and what happens instead."""
READINESS_GATES = "a pod is ready once its containers are"


def warnings_of(key: str, obj: Object) -> list[str]:
    """Return a sentence for each field of an object of this kind that is stored and then ignored."""
    found = dict.fromkeys(words[:LONGEST_WARNING] for words in _warnings(key, obj))
    return list(found)[:MOST_WARNINGS]


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
        if pod_spec.get("readinessGates"):
            yield _sentence(f"{at}.readinessGates", READINESS_GATES)
        for field in ("initContainers", "containers"):
            containers = pod_spec.get(field)
            for index, container in enumerate(containers if isinstance(containers, list) else ()):
                if isinstance(container, dict):
                    yield from _ignored(container, f"{at}.{field}[{index}]", OF_CONTAINER)


def _pod_specs(value: Any, at: str) -> Iterator[tuple[Object, str]]:
    """Find the specs of pods in a job of any kind: whatever has containers."""
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
        found: Any = holder
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if found is not None:
            yield _sentence(f"{at}.{path}", instead)


def _sentence(field: str, instead: str) -> str:
    return f"{field}: the sandbox ignores it: {instead}"
