"""The columns that `kubectl get` shows, made by the server as a real one makes them.

Source: `pkg/printers/internalversion/printers.go`, Kubernetes 1.31; the CRD's
additionalPrinterColumns for a PyTorchJob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from k8s.sandbox.api.admission.schemas import words_by_row

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
TABLES_TEXT = """
pods        Name=metadata.name Ready=pod_ready Status=pod_status Restarts=pod_restarts Age=age
            -IP=status.podIP|<none> -Node=spec.nodeName|<none>
            -Nominated_Node=status.nominatedNodeName|<none> -Readiness_Gates=|<none>
nodes       Name=metadata.name Status=node_status Roles=node_roles Age=age
            Version=status.nodeInfo.kubeletVersion -Internal-IP=node_address -External-IP=node_outer_address
            -OS-Image=status.nodeInfo.osImage|<unknown>
            -Kernel-Version=status.nodeInfo.kernelVersion|<unknown>
            -Container-Runtime=status.nodeInfo.containerRuntimeVersion|<unknown>
events      Last_Seen=event_last Type=type Reason=reason Object=event_about
            -Subobject=involvedObject.fieldPath -Source=event_source Message=message
            -First_Seen=event_first -Count=event_count -Name=metadata.name
namespaces  Name=metadata.name Status=status.phase Age=age
services    Name=metadata.name Type=spec.type Cluster-IP=spec.clusterIP|<none> External-IP=|<none>
            Port(s)=service_ports|<none> Age=age -Selector=spec.selector|<none>
configmaps  Name=metadata.name Data=entries Age=age
secrets     Name=metadata.name Type=type Data=entries Age=age
persistentvolumeclaims  Name=metadata.name Status=claim_status Volume=spec.volumeName Capacity=claim_size
            Access_Modes=claim_modes StorageClass=spec.storageClassName Age=age -VolumeMode=spec.volumeMode
deployments.apps  Name=metadata.name Ready=deployment_ready Up-to-date=status.updatedReplicas|0
            Available=status.availableReplicas|0 Age=age -Containers=job_names -Images=job_images
            -Selector=spec.selector.matchLabels|<none>
jobs.batch  Name=metadata.name Status=job_status Completions=job_completions Duration=job_duration Age=age
            -Containers=job_names -Images=job_images -Selector=spec.selector.matchLabels|<none>
mpijobs.batch.tensorstack.dev  Name=metadata.name Phase=status.phase Age=age
pytorchtrainingjobs.batch.tensorstack.dev  Name=metadata.name Phase=status.phase Age=age
jobsets.jobset.x-k8s.io  Name=metadata.name TerminalState=status.terminalState Restarts=status.restarts|0
            Completed=completed Suspended=suspended Age=age
clustertrainingruntimes.trainer.kubeflow.org  Name=metadata.name Age=age
trainingruntimes.trainer.kubeflow.org  Name=metadata.name Age=age
mpijobs.v1alpha1.kubeflow.org  Name=metadata.name Age=age State=status.launcherStatus
serviceaccounts  Name=metadata.name Age=age
thing       Name=metadata.name State=last_condition Age=age
"""
"""By a kind's key, headings and cells: one of `CELLS` or a field, and behind `|` what stands for nothing.
`-` is before what only `-o wide` shows, `_` where a heading has a space; `thing` is any other kind."""
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
        for heading in TABLES.get(key, TABLES["thing"])
    ]


def cells(key: str, obj: Object) -> list[Any]:
    """Return one object's row."""
    return [cell(obj) for cell in TABLES.get(key, TABLES["thing"]).values()]


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
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return word


def _end_word(prefix: str, ended: Object) -> str:
    if ended.get("reason"):
        return f"{prefix}{ended['reason']}"
    signal = ended.get("signal")
    return f"{prefix}Signal:{signal}" if signal else f"{prefix}ExitCode:{ended.get('exitCode', 0)}"


def _sidecars(pod: Object) -> set[str]:
    """Return the names of the init containers that run on beside the others."""
    inits = pod["spec"].get("initContainers") or ()
    return {each.get("name") for each in inits if each.get("restartPolicy") == "Always"}


def _lasting(pod: Object) -> list[Object]:
    """Return the statuses of the containers and sidecars."""
    sidecars = _sidecars(pod)
    inits = _at(pod, "status.initContainerStatuses") or ()
    return [
        *(each for each in inits if each.get("name") in sidecars),
        *(_at(pod, "status.containerStatuses") or ()),
    ]


def _pod_ready(pod: Object) -> str:
    ready = sum(bool(each.get("ready")) and "running" in (each.get("state") or {}) for each in _lasting(pod))
    return f"{ready}/{len(pod['spec']['containers']) + len(_sidecars(pod))}"


def _pod_restarts(pod: Object) -> str:
    statuses = _lasting(pod)
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


def _node_address(node: Object, kind: str) -> str:
    addresses = {each.get("type"): each.get("address") for each in _at(node, "status.addresses") or ()}
    return addresses.get(kind) or NONE


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


def _is_bound(claim: Object) -> bool:
    return bool(_at(claim, "spec.volumeName"))


def _claim_modes(claim: Object) -> str:
    modes = _at(claim, "status.accessModes") or ()
    return ",".join(_MODES.get(mode, mode) for mode in modes) if _is_bound(claim) else ""


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
    wanted, parallelism = _at(job, "spec.completions"), _at(job, "spec.parallelism") or 1
    if wanted is None:
        wanted = f"1 of {parallelism}" if parallelism > 1 else "1"
    return f"{_at(job, 'status.succeeded') or 0}/{wanted}"


def _job_duration(job: Object) -> str:
    started = _at(job, "status.startTime")
    return _since(started, _at(job, "status.completionTime") or "") if started else ""


def _of_containers(job: Object, field: str) -> str:
    return ",".join(each[field] for each in job["spec"]["template"]["spec"]["containers"])


def _last_condition(job: Object) -> str:
    conditions = _at(job, "status.conditions") or ()
    return conditions[-1].get("type", "") if conditions else ""


def _at(obj: Object, path: str) -> Any:
    """Return what stands at a path such as `status.phase`; None when nothing does."""
    found: Any = obj
    for step in path.split("."):
        found = (found or {}).get(step)
    return found


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


CELLS: Mapping[str, Cell] = {
    "pod_ready": _pod_ready,
    "pod_status": pod_status,
    "pod_restarts": _pod_restarts,
    "node_status": _node_status,
    "node_roles": _node_roles,
    "node_address": lambda node: _node_address(node, "InternalIP"),
    "node_outer_address": lambda node: _node_address(node, "ExternalIP"),
    "event_last": lambda event: _since(_event_last(event)),
    "event_first": lambda event: _since(_event_first(event)),
    "event_about": _event_about,
    "event_source": _event_source,
    "event_count": lambda event: _at(event, "series.count") or event.get("count") or 1,
    "service_ports": _service_ports,
    "claim_status": _claim_status,
    "claim_size": lambda claim: (_at(claim, "status.capacity.storage") or "0") if _is_bound(claim) else "",
    "claim_modes": _claim_modes,
    "deployment_ready": _deployment_ready,
    "job_status": _job_status,
    "job_completions": _job_completions,
    "job_duration": _job_duration,
    "job_names": lambda job: _of_containers(job, "name"),
    "job_images": lambda job: _of_containers(job, "image"),
    "age": lambda obj: _since(_at(obj, "metadata.creationTimestamp") or ""),
    "entries": lambda obj: sum(len(obj.get(field) or ()) for field in ("data", "binaryData")),
    "suspended": lambda job: str(bool(_at(job, "spec.suspend"))).lower(),
    "completed": lambda job: _condition(job, "Completed"),
    "last_condition": _last_condition,
}
"""What stands in a cell that is more than a field."""


def _cell(words: str) -> Cell:
    path, _, otherwise = words.partition("|")
    return CELLS.get(path) or (lambda obj: _text(_at(obj, path)) or otherwise)


def _text(value: Any) -> str:
    """Write a field: labels as a selector, all else as it is."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={word}" for key, word in sorted(value.items()))
    return str(value or "").strip()


TABLES: Mapping[str, Mapping[str, Cell]] = {
    key: {
        heading.replace("_", " "): _cell(cell) for heading, _, cell in (word.partition("=") for word in words)
    }
    for key, words in words_by_row(TABLES_TEXT).items()
}
"""By a kind's key: headings, and what stands below each."""
