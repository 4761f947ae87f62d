"""The columns that `kubectl get` shows, made by the server as a real one makes them.

Source: `pkg/printers/internalversion/printers.go`, Kubernetes 1.31; the CRD's
additionalPrinterColumns for a PyTorchJob.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]

NONE = "<none>"
UNKNOWN = "<unknown>"
COLUMNS: Mapping[str, str] = {
    "pods": "Name Ready Status Restarts Age -IP -Node -Nominated_Node -Readiness_Gates",
    "nodes": "Name Status Roles Age Version -Internal-IP -External-IP -OS-Image -Kernel-Version "
    "-Container-Runtime",
    "events": "Last_Seen Type Reason Object -Subobject -Source Message -First_Seen -Count -Name",
    "namespaces": "Name Status Age",
    "services": "Name Type Cluster-IP External-IP Port(s) Age -Selector",
    "configmaps": "Name Data Age",
    "secrets": "Name Type Data Age",
    "persistentvolumeclaims": "Name Status Volume Capacity Access_Modes StorageClass Age -VolumeMode",
    "persistentvolumes": "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass Reason Age "
    "-VolumeMode",
    "jobs.batch": "Name Status Completions Duration Age -Containers -Images -Selector",
    "pytorchjobs.kubeflow.org": "Name State Age",
    "priorityclasses.scheduling.k8s.io": "Name Value Global-Default Age",
}
"""Headings by kind; `-` before those that only `-o wide` shows, `_` where a heading has a space."""


def column_definitions(key: str) -> list[dict[str, Any]]:
    """Return the headings of a kind's table."""
    return [
        {
            "name": heading.lstrip("-").replace("_", " "),
            "type": "string",
            "format": "name" if heading.lstrip("-") == "Name" else "",
            "description": "",
            "priority": int(heading.startswith("-")),
        }
        for heading in COLUMNS.get(key, "Name Age").split()
    ]


def cells(key: str, obj: Object) -> list[Any]:
    """Return one object's row."""
    make = ROWS.get(key)
    return make(obj) if make is not None else [_name(obj), _age(obj)]


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does: `45s`, `12m`, `3h5m`, `2d4h`, `400d`, `5y`.

    Source: apimachinery `duration.HumanDuration`.
    """
    left = int(seconds)
    if left < -1:
        return "<invalid>"
    left = max(0, left)
    if left < 120:
        return f"{left}s"
    minutes = left // 60
    if minutes < 10:
        return f"{minutes}m{left % 60}s" if left % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = left // 3600
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


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


def _pod(pod: Object) -> list[Any]:
    spec, status = pod["spec"], pod.get("status") or {}
    statuses = status.get("containerStatuses") or ()
    ready = sum(bool(each.get("ready")) and "running" in (each.get("state") or {}) for each in statuses)
    restarts = sum(each.get("restartCount", 0) for each in statuses)
    last = [(each.get("lastState") or {}).get("terminated") or {} for each in statuses]
    ended = max((each["finishedAt"] for each in last if each.get("finishedAt")), default="")
    return [
        _name(pod),
        f"{ready}/{len(spec['containers'])}",
        pod_status(pod),
        f"{restarts} ({_since(ended)} ago)" if restarts and ended else str(restarts),
        _age(pod),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        NONE,
    ]


def _node(node: Object) -> list[Any]:
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}.get(
        _condition(node, "Ready"), "Unknown"
    )
    roles = [
        label.partition("/")[2]
        for label in node["metadata"].get("labels") or {}
        if label.startswith("node-role.kubernetes.io/")
    ]
    addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
    return [
        _name(node),
        ready + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ""),
        ",".join(sorted(filter(None, roles))) or NONE,
        _age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _event(event: Object) -> list[Any]:
    about = event.get("involvedObject") or {}
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent")
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime") or ""
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    return [
        _since(last),
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, source.get("host")))),
        str(event.get("message", "")).strip(),
        _since(first),
        series.get("count") or event.get("count") or 1,
        _name(event),
    ]


def _service(service: Object) -> list[Any]:
    spec = service.get("spec") or {}
    ports = []
    for port in spec.get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port.get('port')}{node_port}/{port.get('protocol')}")
    return [
        _name(service),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        NONE,
        ",".join(ports) or NONE,
        _age(service),
        _pairs(spec.get("selector")),
    ]


def _claim(claim: Object) -> list[Any]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    going = claim["metadata"].get("deletionTimestamp")
    bound = bool(spec.get("volumeName"))
    return [
        _name(claim),
        "Terminating" if going else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        _age(claim),
        spec.get("volumeMode", "Filesystem"),
    ]


def _volume(volume: Object) -> list[Any]:
    spec, status = volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef") or {}
    return [
        _name(volume),
        (spec.get("capacity") or {}).get("storage", ""),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if volume["metadata"].get("deletionTimestamp") else status.get("phase", ""),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        status.get("reason", ""),
        _age(volume),
        spec.get("volumeMode", "Filesystem"),
    ]


def _job(job: Object) -> list[Any]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    containers = spec["template"]["spec"]["containers"]
    wanted = spec.get("completions")
    if wanted is None:
        parallelism = spec.get("parallelism") or 1
        wanted = f"1 of {parallelism}" if parallelism > 1 else "1"
    started, ended = status.get("startTime", ""), status.get("completionTime", "")
    return [
        _name(job),
        _job_status(job),
        f"{status.get('succeeded', 0)}/{wanted}",
        _between(started, ended) if started else "",
        _age(job),
        ",".join(each["name"] for each in containers),
        ",".join(each["image"] for each in containers),
        _pairs((spec.get("selector") or {}).get("matchLabels")),
    ]


def _job_status(job: Object) -> str:
    for kind, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if _condition(job, kind) == "True":
            return word
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if _condition(job, "Suspended") == "True":
        return "Suspended"
    return "FailureTarget" if _condition(job, "FailureTarget") == "True" else "Running"


def _torch_job(job: Object) -> list[Any]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return [_name(job), conditions[-1].get("type", "") if conditions else "", _age(job)]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object) -> str:
    return _since(obj["metadata"].get("creationTimestamp") or "")


def _since(moment: str) -> str:
    try:
        return human_duration((datetime.now(UTC) - _time(moment)).total_seconds())
    except ValueError:
        return UNKNOWN


def _time(moment: str) -> datetime:
    """Read a time of the API: RFC 3339, in UTC, with or without a fraction."""
    found = datetime.fromisoformat(moment)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _between(started: str, ended: str) -> str:
    try:
        last = _time(ended) if ended else datetime.now(UTC)
        return human_duration((last - _time(started)).total_seconds())
    except ValueError:
        return UNKNOWN


def _condition(obj: Object, kind: str) -> str:
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            return str(each.get("status"))
    return ""


def _access_modes(modes: Iterable[str] | None) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in modes or ())


def _pairs(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _size(obj: Object, *fields: str) -> int:
    return sum(len(obj.get(field) or ()) for field in fields)


ROWS: Mapping[str, Callable[[Object], list[Any]]] = {
    "pods": _pod,
    "nodes": _node,
    "events": _event,
    "services": _service,
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "jobs.batch": _job,
    "pytorchjobs.kubeflow.org": _torch_job,
    "namespaces": lambda obj: [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj)],
    "configmaps": lambda obj: [_name(obj), _size(obj, "data", "binaryData"), _age(obj)],
    "secrets": lambda obj: [_name(obj), obj.get("type", ""), _size(obj, "data"), _age(obj)],
    "priorityclasses.scheduling.k8s.io": lambda obj: [
        _name(obj),
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        _age(obj),
    ],
}
"""By a kind's key: its cells, in the order of its headings."""
