"""The columns that `kubectl get` shows, made by the server as a real one makes them.

Source: `pkg/printers/internalversion/printers.go`, Kubernetes 1.31; the CRD's
additionalPrinterColumns for a PyTorchJob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]
Cell = Callable[[Object], Any]
"""Returns what stands in a column for an object."""

NONE = "<none>"
UNKNOWN = "<unknown>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_DURATIONS = (
    (120, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (180 * _MINUTE, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (48 * _HOUR, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below so many seconds: the unit, its letter, and the smaller unit that stands behind it."""


def column_definitions(key: str) -> list[dict[str, Any]]:
    """Return the headings of a kind's table."""
    return [
        {
            "name": heading.lstrip("-"),
            "type": "string",
            "format": "name" if heading.lstrip("-") == "Name" else "",
            "description": "",
            "priority": int(heading.startswith("-")),
        }
        for heading in TABLES.get(key, PLAIN)
    ]


def cells(key: str, obj: Object) -> list[Any]:
    """Return one object's row."""
    return [cell(obj) for cell in TABLES.get(key, PLAIN).values()]


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does: `45s`, `12m`, `3h5m`, `2d4h`, `400d`, `5y`.

    Source: apimachinery `duration.HumanDuration`.
    """
    left_s = int(seconds)
    if left_s < -1:
        return "<invalid>"
    years = (0, _YEAR, "y", 0, "")
    _, unit_s, letter, small_s, small = next((each for each in _DURATIONS if left_s < each[0]), years)
    whole, rest_s = divmod(max(0, left_s), unit_s)
    return f"{whole}{letter}" + (f"{rest_s // small_s}{small}" if small_s and rest_s >= small_s else "")


def pod_status(pod: Object) -> str:
    """Return the one word that `kubectl get pods` shows for a pod."""
    status = pod.get("status") or {}
    word = str(status.get("reason") or status.get("phase") or "Unknown")
    inits = pod["spec"].get("initContainers") or ()
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        state = each.get("state") or {}
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
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word


def _end_word(prefix: str, ended: Object) -> str:
    if ended.get("reason"):
        return f"{prefix}{ended['reason']}"
    signal = ended.get("signal")
    return f"{prefix}Signal:{signal}" if signal else f"{prefix}ExitCode:{ended.get('exitCode', 0)}"


def _pod_ready(pod: Object) -> str:
    statuses = _at(pod, "status.containerStatuses") or ()
    ready = sum(bool(each.get("ready")) and "running" in (each.get("state") or {}) for each in statuses)
    return f"{ready}/{len(pod['spec']['containers'])}"


def _pod_restarts(pod: Object) -> str:
    statuses = _at(pod, "status.containerStatuses") or ()
    restarts = sum(each.get("restartCount", 0) for each in statuses)
    ended = max(filter(None, (_at(each, "lastState.terminated.finishedAt") for each in statuses)), default="")
    return f"{restarts} ({_since(ended)} ago)" if restarts and ended else str(restarts)


def _node_status(node: Object) -> str:
    ready = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}
    word = ready.get(_condition(node, "Ready"), "Unknown")
    return word + (",SchedulingDisabled" if _at(node, "spec.unschedulable") else "")


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))
    return ",".join(filter(None, roles)) or NONE


def _node_address(kind: str) -> Cell:
    def found(node: Object) -> str:
        addresses = {each.get("type"): each.get("address") for each in _at(node, "status.addresses") or ()}
        return addresses.get(kind) or NONE

    return found


def _event_first(event: Object) -> str:
    return event.get("firstTimestamp") or event.get("eventTime") or ""


def _event_last(event: Object) -> str:
    return _at(event, "series.lastObservedTime") or event.get("lastTimestamp") or _event_first(event)


def _event_about(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_source(event: Object) -> str:
    component = _at(event, "source.component") or event.get("reportingComponent")
    return ", ".join(filter(None, (component, _at(event, "source.host"))))


def _service_ports(service: Object) -> str:
    ports = []
    for port in service["spec"].get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node_port}/{port.get('protocol')}")
    return ",".join(ports) or NONE


def _claim_status(claim: Object) -> str:
    return "Terminating" if claim["metadata"].get("deletionTimestamp") else _at(claim, "status.phase") or ""


def _claim_modes(claim: Object) -> str:
    modes = _at(claim, "status.accessModes") or ()
    return ",".join(_MODES.get(mode, mode) for mode in modes)


def _if_bound(cell: Cell) -> Cell:
    return lambda claim: cell(claim) if _at(claim, "spec.volumeName") else ""


def _job_status(job: Object) -> str:
    for kind in ("Complete", "Failed"):
        if _condition(job, kind) == "True":
            return kind
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return "Suspended" if _condition(job, "Suspended") == "True" else "Running"


def _job_completions(job: Object) -> str:
    wanted, parallelism = _at(job, "spec.completions"), _at(job, "spec.parallelism") or 1
    if wanted is None:
        wanted = f"1 of {parallelism}" if parallelism > 1 else "1"
    return f"{_at(job, 'status.succeeded') or 0}/{wanted}"


def _job_duration(job: Object) -> str:
    started = _at(job, "status.startTime")
    return _since(started, _at(job, "status.completionTime") or "") if started else ""


def _of_containers(field: str) -> Cell:
    return lambda job: ",".join(each[field] for each in job["spec"]["template"]["spec"]["containers"])


def _last_condition(job: Object) -> str:
    conditions = _at(job, "status.conditions") or ()
    return conditions[-1].get("type", "") if conditions else ""


def _at(obj: Object, path: str) -> Any:
    """Return what stands at a path such as `status.phase`; None when nothing does."""
    found: Any = obj
    for step in path.split("."):
        found = (found or {}).get(step)
    return found


def _field(path: str, otherwise: str = "") -> Cell:
    return lambda obj: _at(obj, path) or otherwise


def _age_of(path: str) -> Cell:
    return lambda obj: _since(_at(obj, path) or "")


def _pairs_of(path: str) -> Cell:
    def found(obj: Object) -> str:
        return ",".join(f"{key}={value}" for key, value in sorted((_at(obj, path) or {}).items())) or NONE

    return found


def _size_of(*fields: str) -> Cell:
    return lambda obj: sum(len(obj.get(field) or ()) for field in fields)


def _nothing(obj: Object) -> str:
    return NONE


def _since(started: str, ended: str = "") -> str:
    """Return how long something lasted, until now if it has not ended."""
    try:
        last = _time(ended) if ended else datetime.now(UTC)
        return human_duration((last - _time(started)).total_seconds())
    except ValueError:
        return UNKNOWN


def _time(moment: str) -> datetime:
    """Read a time of the API: RFC 3339, in UTC, with or without a fraction."""
    found = datetime.fromisoformat(moment)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _condition(obj: Object, kind: str) -> str:
    conditions = _at(obj, "status.conditions") or ()
    return next((str(each.get("status")) for each in conditions if each.get("type") == kind), "")


_AGE = {"Age": _age_of("metadata.creationTimestamp")}
PLAIN: Mapping[str, Cell] = {"Name": _field("metadata.name"), **_AGE}
"""The columns of a kind that is not in `TABLES`."""
_NAME = {"Name": PLAIN["Name"]}
TABLES: Mapping[str, Mapping[str, Cell]] = {
    "pods": {
        **_NAME,
        "Ready": _pod_ready,
        "Status": pod_status,
        "Restarts": _pod_restarts,
        **_AGE,
        "-IP": _field("status.podIP", NONE),
        "-Node": _field("spec.nodeName", NONE),
        "-Nominated Node": _nothing,
        "-Readiness Gates": _nothing,
    },
    "nodes": {
        **_NAME,
        "Status": _node_status,
        "Roles": _node_roles,
        **_AGE,
        "Version": _field("status.nodeInfo.kubeletVersion"),
        "-Internal-IP": _node_address("InternalIP"),
        "-External-IP": _node_address("ExternalIP"),
        "-OS-Image": _field("status.nodeInfo.osImage", UNKNOWN),
        "-Kernel-Version": _field("status.nodeInfo.kernelVersion", UNKNOWN),
        "-Container-Runtime": _field("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
    },
    "events": {
        "Last Seen": lambda event: _since(_event_last(event)),
        "Type": _field("type"),
        "Reason": _field("reason"),
        "Object": _event_about,
        "-Subobject": _field("involvedObject.fieldPath"),
        "-Source": _event_source,
        "Message": lambda event: str(event.get("message", "")).strip(),
        "-First Seen": lambda event: _since(_event_first(event)),
        "-Count": lambda event: _at(event, "series.count") or event.get("count") or 1,
        "-Name": PLAIN["Name"],
    },
    "namespaces": {**_NAME, "Status": _field("status.phase"), **_AGE},
    "services": {
        **_NAME,
        "Type": _field("spec.type"),
        "Cluster-IP": _field("spec.clusterIP", NONE),
        "External-IP": _nothing,
        "Port(s)": _service_ports,
        **_AGE,
        "-Selector": _pairs_of("spec.selector"),
    },
    "configmaps": {**_NAME, "Data": _size_of("data", "binaryData"), **_AGE},
    "secrets": {**_NAME, "Type": _field("type"), "Data": _size_of("data"), **_AGE},
    "persistentvolumeclaims": {
        **_NAME,
        "Status": _claim_status,
        "Volume": _field("spec.volumeName"),
        "Capacity": _if_bound(_field("status.capacity.storage", "0")),
        "Access Modes": _if_bound(_claim_modes),
        "StorageClass": _field("spec.storageClassName"),
        **_AGE,
        "-VolumeMode": _field("spec.volumeMode"),
    },
    "jobs.batch": {
        **_NAME,
        "Status": _job_status,
        "Completions": _job_completions,
        "Duration": _job_duration,
        **_AGE,
        "-Containers": _of_containers("name"),
        "-Images": _of_containers("image"),
        "-Selector": _pairs_of("spec.selector.matchLabels"),
    },
    "pytorchjobs.kubeflow.org": {**_NAME, "State": _last_condition, **_AGE},
}
"""By a kind's key: headings and what stands below them; `-` before those that only `-o wide` shows."""
