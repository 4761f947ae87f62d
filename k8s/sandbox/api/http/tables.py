"""Representations of objects in answers: JSON, or rows of a table with the columns of `kubectl get`.

The columns are the few that people read daily; `kubectl describe` has the rest.
Source: `pkg/printers/internalversion/printers.go`, Kubernetes 1.31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.served import BY_KEY, ServedResource
from k8s.sandbox.api.store import Record

Object = Mapping[str, Any]
Cell = Callable[[Object], Any]

META = "meta.k8s.io/v1"
NONE = "<none>"
UNKNOWN = "<unknown>"
# A unit counts from two of it on; seconds are the rest.
_UNITS = ((365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "m"))


def column_definitions(key: str) -> list[dict[str, Any]]:
    """Return the headings of a kind's table; those that begin with `-` are shown by `-o wide` only."""
    return [
        {
            "name": heading.lstrip("-"),
            "type": "string",
            "format": "name" if heading == "Name" else "",
            "description": "",
            "priority": int(heading.startswith("-")),
        }
        for heading in _table_of(key)
    ]


def cells(key: str, obj: Object) -> list[Any]:
    """Return one object's row."""
    return [cell(obj) for cell in _table_of(key).values()]


def human_duration(seconds: float) -> str:
    """Format a duration as kubectl does, in the largest unit only: `45s`, `12m`, `3h`, `2d`, `5y`."""
    unit_s, letter = next((each for each in _UNITS if seconds >= 2 * each[0]), (1, "s"))
    return f"{max(0, int(seconds // unit_s))}{letter}"


def pod_status(pod: Object) -> str:
    """Return the status of a pod in the one word of `kubectl get pods`."""
    status = pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    inits = pod["spec"].get("initContainers") or ()
    sidecars = _sidecars(pod)
    is_initialized = _condition(pod, "Initialized") == "True"
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        state = each.get("state") or {}
        if each.get("name") in sidecars and (each.get("started") or is_initialized):
            continue
        if ended := state.get("terminated"):
            if ended.get("exitCode") == 0:
                continue
            return _end_word("Init:", ended)
        waiting = (state.get("waiting") or {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        word = f"Init:{index}/{len(inits)}"
        break
    else:
        running = False
        for each in reversed(status.get("containerStatuses") or ()):
            state = each.get("state") or {}
            if (state.get("waiting") or {}).get("reason"):
                word = state["waiting"]["reason"]
            elif state.get("terminated") is not None:
                word = _end_word("", state["terminated"])
            elif each.get("ready") and "running" in state:
                running = True
        if word == "Completed" and running:
            word = "Running" if _condition(pod, "Ready") == "True" else "NotReady"
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else word


def _end_word(prefix: str, ended: Object) -> str:
    if ended.get("reason"):
        return f"{prefix}{ended['reason']}"
    signal = ended.get("signal")
    return f"{prefix}Signal:{signal}" if signal else f"{prefix}ExitCode:{ended.get('exitCode', 0)}"


def _sidecars(pod: Object) -> set[str]:
    inits = pod["spec"].get("initContainers") or ()
    return {each.get("name") for each in inits if each.get("restartPolicy") == "Always"}


def _main_statuses(pod: Object) -> list[Object]:
    """Return the statuses of the containers and sidecars, without those of init containers that end."""
    sidecars = _sidecars(pod)
    inits = _at(pod, "status.initContainerStatuses") or ()
    return [
        *(each for each in inits if each.get("name") in sidecars),
        *(_at(pod, "status.containerStatuses") or ()),
    ]


def _pod_ready(pod: Object) -> str:
    statuses = _main_statuses(pod)
    ready = sum(bool(each.get("ready")) and "running" in (each.get("state") or {}) for each in statuses)
    return f"{ready}/{len(pod['spec']['containers']) + len(_sidecars(pod))}"


def _pod_restarts(pod: Object) -> str:
    statuses = _main_statuses(pod)
    restarts = sum(each.get("restartCount", 0) for each in statuses)
    ended = max(filter(None, (_at(each, "lastState.terminated.finishedAt") for each in statuses)), default="")
    return f"{restarts} ({_since(ended)} ago)" if restarts and ended else str(restarts)


def _node_status(node: Object) -> str:
    ready = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}
    word = ready.get(_condition(node, "Ready"), "Unknown")
    return word + (",SchedulingDisabled" if _at(node, "spec.unschedulable") else "")


def _event_last_seen(event: Object) -> str:
    last = _at(event, "series.lastObservedTime") or event.get("lastTimestamp")
    return _since(last or event.get("firstTimestamp") or event.get("eventTime") or "")


def _event_object(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _deployment_ready(deployment: Object) -> str:
    return f"{_at(deployment, 'status.readyReplicas') or 0}/{_at(deployment, 'spec.replicas') or 0}"


def _job_status(job: Object) -> str:
    for kind in ("Complete", "Failed"):
        if _condition(job, kind) == "True":
            return kind
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return "Suspended" if _condition(job, "Suspended") == "True" else "Running"


def _job_completions(job: Object) -> str:
    completions, parallelism = _at(job, "spec.completions"), _at(job, "spec.parallelism") or 1
    if completions is None:
        completions = f"1 of {parallelism}" if parallelism > 1 else "1"
    return f"{_at(job, 'status.succeeded') or 0}/{completions}"


def _state(obj: Object) -> str:
    status = obj.get("status") or {}
    conditions = status.get("conditions") or [{}]
    return str(status.get("phase") or status.get("launcherStatus") or conditions[-1].get("type") or "")


def _at(obj: Object, path: str) -> Any:
    found: Any = obj
    for step in path.split("."):
        found = (found or {}).get(step)
    return found


def _since(moment: str) -> str:
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return UNKNOWN
    return human_duration((datetime.now(UTC) - then.replace(tzinfo=then.tzinfo or UTC)).total_seconds())


def _condition(obj: Object, kind: str) -> str:
    conditions = _at(obj, "status.conditions") or ()
    return next((str(each.get("status")) for each in conditions if each.get("type") == kind), "")


def _field(path: str) -> Cell:
    return lambda obj: str(_at(obj, path) or NONE).strip()


_NAME: Mapping[str, Cell] = {"Name": _field("metadata.name")}
_AGE: Mapping[str, Cell] = {"Age": lambda obj: _since(_at(obj, "metadata.creationTimestamp") or "")}
TABLES: Mapping[str, Mapping[str, Cell]] = {
    "pods": {
        **_NAME,
        "Ready": _pod_ready,
        "Status": pod_status,
        "Restarts": _pod_restarts,
        **_AGE,
        "-IP": _field("status.podIP"),
        "-Node": _field("spec.nodeName"),
    },
    "nodes": {**_NAME, "Status": _node_status, **_AGE, "Version": _field("status.nodeInfo.kubeletVersion")},
    "events": {
        "Last Seen": _event_last_seen,
        "Type": _field("type"),
        "Reason": _field("reason"),
        "Object": _event_object,
        "Message": _field("message"),
    },
    "services": {**_NAME, "Cluster-IP": _field("spec.clusterIP"), **_AGE},
    "deployments.apps": {**_NAME, "Ready": _deployment_ready, **_AGE},
    "jobs.batch": {**_NAME, "Status": _job_status, "Completions": _job_completions, **_AGE},
}


def _table_of(key: str) -> Mapping[str, Cell]:
    if key in TABLES:
        return TABLES[key]
    served = BY_KEY.get(key)
    if served is None or not served.has_status:
        return {**_NAME, **_AGE}
    return {**_NAME, "State" if served.is_custom else "Status": _state, **_AGE}


@dataclass(slots=True)
class Representation:
    """The form in which one request gets objects; a table's headings are sent once per stream."""

    served: ServedResource
    is_table: bool = False
    # Object part of a table's rows: None, Metadata or Object.
    include: str = "Metadata"
    headings_sent: bool = False

    def record(self, record: Record) -> bytes:
        """Encode a stored object."""
        return self.obj(record.obj) if self.is_table else record.json

    def obj(self, obj: Object) -> bytes:
        """Encode an object."""
        if self.is_table:
            return self._table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        return msgspec.json.encode(obj)

    def many(self, records: Iterable[Record], meta: Mapping[str, Any]) -> bytes:
        """Encode a list."""
        if self.is_table:
            return self._table((record.obj for record in records), meta)
        resource = self.served.resource
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
        items = b",".join(record.json for record in records)
        return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"

    def _table(self, objects: Iterable[Object], meta: Mapping[str, Any]) -> bytes:
        key = self.served.key
        rows = []
        for obj in objects:
            row: dict[str, Any] = {"cells": cells(key, obj)}
            if self.include == "Object":
                row["object"] = obj
            elif self.include != "None":
                partial = {"kind": "PartialObjectMetadata", "apiVersion": META}
                row["object"] = {**partial, "metadata": obj["metadata"]}
            rows.append(row)
        headings = None if self.headings_sent else column_definitions(key)
        self.headings_sent = True
        head = {"kind": "Table", "apiVersion": META, "metadata": meta, "columnDefinitions": headings}
        return msgspec.json.encode({**head, "rows": rows})


def accepted(served: ServedResource, accept: str, include: str) -> Representation:
    """Return the first form in an `Accept` header that this server supports.

    Raises:
        ApiError: The server supports no form in the header.
    """
    for media in (accept or "*/*").split(","):
        kind, *parameters = (part.strip() for part in media.split(";"))
        if kind not in ("application/json", "application/*", "*/*"):
            continue
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        group_version = f"{options.get('g')}/{options.get('v')}"
        if options.get("as") == "Table" and group_version == META:
            return Representation(served, is_table=True, include=include or "Metadata")
        if "as" not in options:
            return Representation(served)
    raise ApiError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    )
