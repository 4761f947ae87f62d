"""Validation of the objects that clients send, and warnings about fields that are stored and ignored.

Types come first (`wrong_values`), then rules between fields (`wrong_fields`). Fields that nothing here reads
are stored as they are. The c10d rendezvous is refused too, where the torch of the pods cannot be given a
file in place of its open store: see `node.torch_loopback`.
Source: `pkg/apis/core/validation` and `pkg/apis/batch/validation`, Kubernetes 1.31.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from k8s.models import quantity
from k8s.sandbox.api.api_errors import StatusCause

Object = dict[str, Any]
Check = Callable[[Any], str]
"""Returns the rule that a value breaks; empty if it breaks none."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character"
)
NOT_NEGATIVE = "must be greater than or equal to 0"
# Size of all values of a ConfigMap or Secret. Source: `MaxSecretSize` in core/v1.
MAX_CONFIG_BYTES = 2**20
IMMUTABLE = "field is immutable"
POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def _of_type(kind: type, title: str) -> Check:
    is_number = kind is int
    return lambda value: (
        "" if isinstance(value, kind) and not (is_number and isinstance(value, bool)) else f"must be {title}"
    )


_text, _flag, _integer = (
    _of_type(str, "a string"),
    _of_type(bool, "true or false"),
    _of_type(int, "an integer"),
)
_object = _of_type(dict, "an object")


def _count(value: Any) -> str:
    return _integer(value) or ("" if value >= 0 else NOT_NEGATIVE)


def _positive(value: Any) -> str:
    return _integer(value) or ("" if 0 < value < 2**31 else "must be between 1 and 2147483647, inclusive")


def _port(value: Any) -> str:
    return _integer(value) or ("" if 0 < value < 65536 else "must be between 1 and 65535, inclusive")


def _label_value(value: Any) -> str:
    rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
    return _text(value) or ("" if _LABEL_VALUE.fullmatch(value) else rule)


def _quantity(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return "must be a quantity"
    try:
        return "" if quantity.parse(str(value)) >= 0 else NOT_NEGATIVE
    except ValueError as error:
        return str(error)


def _one_of(*words: str) -> Check:
    listed = ", ".join(f'"{word}"' for word in words)
    return lambda value: "" if value in ("", *words) else f"supported values: {listed}"


def _list_of(check: Check) -> Check:
    return lambda value: (
        next(filter(None, map(check, value)), "") if isinstance(value, list) else "must be a list"
    )


def _map_of(check: Check) -> Check:
    return lambda value: _object(value) or next(filter(None, map(check, value.values())), "")


_BY_CHECK: Mapping[Check, str] = {
    _text: """name image workingDir mountPath subPath terminationMessagePath value claimName nodeName hostname
        schedulerName generateName namespace uid resourceVersion phase reason type component lastTimestamp
        startTime lastTransitionTime cleanPodPolicy""",
    _flag: "suspend enabled controller",
    _integer: "slotsPerWorker priority gpus exitCode",
    _count: """replicas parallelism completions backoffLimit activeDeadlineSeconds ttlSecondsAfterFinished
        terminationGracePeriodSeconds maxRestarts restartCount defaultMode""",
    _positive: "numNodes numProcPerNode",
    _port: "containerPort",
    _object: """metadata spec template resources emptyDir hostPath configMap secret persistentVolumeClaim
        valueFrom configMapRef secretRef configMapKeyRef secretKeyRef fieldRef resourceFieldRef affinity
        runPolicy elasticPolicy torchrunConfig runMode tensorboardSpec worker mpiConfig mlPolicy trainer
        runtimeRef selector involvedObject source state lastState running waiting terminated""",
    _list_of(_object): """containers initContainers volumes volumeMounts env envFrom ports tolerations items
        schedulingGates ownerReferences replicaSpecs replicatedJobs runtimePatches conditions
        containerStatuses initContainerStatuses""",
    _list_of(_text): "command args extraOptions accessModes finalizers",
    _map_of(_object): "pytorchReplicaSpecs mpiReplicaSpecs",
    _map_of(_text): "annotations nodeSelector data binaryData stringData",
    _map_of(_label_value): "labels",
    _map_of(_quantity): "limits requests capacity allocatable",
    _one_of("Always", "OnFailure", "Never", "ExitCode"): "restartPolicy",
    _one_of("Indexed", "NonIndexed"): "completionMode",
    _one_of("OpenMPI", "Intel", "MPICH"): "mpiImplementation",
    _one_of("None", "All", "Unfinished"): "cleanUpPolicy",
}
# Checks of the fields that are read, by name, wherever they are in an object.
CHECKS: Mapping[str, Check] = {name: check for check, names in _BY_CHECK.items() for name in names.split()}
# Fields whose members are named by users, or are parts of other objects.
_OPAQUE = {
    *("labels", "annotations", "nodeSelector", "limits", "requests", "capacity", "allocatable", "data"),
    *("binaryData", "stringData", "affinity", "runMode", "runtimePatches", "selector", "status"),
    "tensorboardSpec",
}
# Required members of the objects in these fields; the first is a DNS label.
_LABELLED = {"containers": ("name", "image"), "initContainers": ("name", "image"), "volumes": ("name",)}
_LABELLED |= {"replicaSpecs": ("type", "template"), "replicatedJobs": ("name", "template")}
_REQUIRED = {"volumeMounts": ("name", "mountPath"), "env": ("name",), "persistentVolumeClaim": ("claimName",)}
_REQUIRED |= {
    "runtimeRef": ("name",),
    "ownerReferences": ("uid", "name", "kind", "apiVersion"),
    "worker": ("template",),
}
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "pods": ("spec.containers",),
    "jobs.batch": ("spec.template.spec.containers",),
    "deployments.apps": ("spec.selector", "spec.template.spec.containers"),
    "pytorchjobs.kubeflow.org": ("spec.pytorchReplicaSpecs",),
    "mpijobs.kubeflow.org": ("spec.mpiReplicaSpecs",),
    "mpijobs.v1.kubeflow.org": ("spec.mpiReplicaSpecs",),
    "mpijobs.v1alpha1.kubeflow.org": ("spec",),
    "trainjobs.trainer.kubeflow.org": ("spec.runtimeRef",),
    "clustertrainingruntimes.trainer.kubeflow.org": ("spec.template.spec.replicatedJobs",),
    "trainingruntimes.trainer.kubeflow.org": ("spec.template.spec.replicatedJobs",),
    "pytorchtrainingjobs.batch.tensorstack.dev": ("spec.replicaSpecs",),
    "mpijobs.batch.tensorstack.dev": ("spec",),
    "persistentvolumeclaims": ("spec.accessModes",),
}

REFUSED = (
    "the sandbox refuses the c10d rendezvous: before torch 2.5 it unpickles what any user of this machine "
    "can write into its store; update torch, or leave it out for static rendezvous"
)
_FIELD = "rdzvBackend"
# T9k's rdzvBackend becomes a static rendezvous in the sandbox; its extra options are torchrun arguments.
_STATIC, _OPTIONS = "torchrunConfig", "extraOptions"
_VARIABLE = "PET_RDZV_BACKEND"
_WORDS = re.compile(r"--rdzv[-_]backend[=\s]\s*['\"]?c10d\b")


def wrong_values(key: str, obj: Object) -> list[StatusCause]:
    """Return the fields of an object that are missing, or have a value that no object may have."""
    causes = {cause.field: cause for cause in _wrong(obj, "")}
    if isinstance(status := obj.get("status", {}), dict):
        causes |= {cause.field: cause for cause in _wrong(status, "status")}
    else:
        causes["status"] = StatusCause.invalid("status", status, _object(status))
    for path in _OF_KIND.get(key, ()) if not causes else ():
        value: Any = obj
        for step in path.split("."):
            value = value.get(step) or {}
        if not value:
            causes[path] = StatusCause.required(path)
    return list(causes.values())


def _wrong(holder: Object, at: str) -> Iterator[StatusCause]:
    for name, value in holder.items():
        path = f"{at}.{name}" if at else name
        if (check := CHECKS.get(name)) is not None and (why := check(value)):
            # Data and variables may be secrets.
            is_secret = not isinstance(value, str | int) or name in _OPAQUE or name == "value"
            yield StatusCause.invalid(path, "…" if is_secret else value, why)
        elif name in _OPAQUE:
            continue
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, dict):
                    yield from _wrong_member(name, each, f"{path}[{index}]")
        elif isinstance(value, dict):
            yield from _wrong_member(name, value, path)


def _wrong_member(name: str, member: Object, at: str) -> Iterator[StatusCause]:
    required: tuple[str, ...] = _LABELLED.get(name) or _REQUIRED.get(name) or ()
    yield from (StatusCause.required(f"{at}.{field}") for field in required if not member.get(field))
    first = member.get(required[0]) if name in _LABELLED else None
    if isinstance(first, str) and first and not _LABEL.fullmatch(first):
        yield StatusCause.invalid(f"{at}.{required[0]}", first, LABEL_RULE)
    yield from _wrong(member, at)
    # A template of pods, or of objects that have one.
    spec = member.get("spec", {}) if name == "template" else None
    if isinstance(spec, dict) and not spec.keys() & {"containers", "template", "replicatedJobs"}:
        yield StatusCause.required(f"{at}.spec.containers")


def open_rendezvous(value: Any, at: str) -> Iterator[StatusCause]:
    """Yield each request for the c10d rendezvous in `value`, which is at the path `at`."""
    if isinstance(value, dict):
        if value.get("name") == _VARIABLE and _is_c10d(value.get("value")):
            yield StatusCause.forbidden(f"{at}.value", REFUSED)
        for name, below in value.items():
            if name == _FIELD and _is_c10d(below):
                yield StatusCause.forbidden(f"{at}.{name}", REFUSED)
            elif name == _STATIC and isinstance(below, dict):
                yield from open_rendezvous({_OPTIONS: below.get(_OPTIONS)}, f"{at}.{name}")
            elif name in ("command", "args", _OPTIONS) and isinstance(below, list):
                if _WORDS.search(" ".join(map(str, below))):
                    yield StatusCause.forbidden(f"{at}.{name}", REFUSED)
            else:
                yield from open_rendezvous(below, f"{at}.{name}")
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from open_rendezvous(below, f"{at}[{index}]")


def _is_c10d(backend: object) -> bool:
    return str(backend).strip().lower() == "c10d"


def wrong_fields(key: str, obj: Object, old: Object | None = None) -> list[StatusCause]:
    """Return the fields of an object, or of the change from `old` to it, that do not fit each other."""
    causes = list(_metadata(key, obj["metadata"]))
    if (rule := RULES.get(key)) is not None:
        causes += rule(obj)
    if old is not None and (check_change := CHANGE_RULES.get(key)) is not None:
        causes += check_change(obj, old)
    return causes


def _metadata(key: str, meta: Object) -> Iterator[StatusCause]:
    name = meta.get("name", "")
    if not name:
        yield StatusCause.required("metadata.name", "name or generateName is required")
    elif key == "namespaces" and not _LABEL.fullmatch(name):
        yield StatusCause.invalid("metadata.name", name, LABEL_RULE)
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield StatusCause.invalid("metadata.name", name, SUBDOMAIN_RULE)
    for label in meta.get("labels", ()):
        prefix, slash, word = label.rpartition("/")
        if not _QUALIFIED.fullmatch(word) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
            rule = "name part must consist of alphanumeric characters, '-', '_' or '.'"
            yield StatusCause.invalid("metadata.labels", label, rule)


def _pod_spec(spec: Object, at: str) -> Iterator[StatusCause]:
    volumes = [volume["name"] for volume in spec.get("volumes", ())]
    names: list[str] = []
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            here = f"{at}.{field}[{index}]"
            if container["name"] in names:
                yield StatusCause.duplicate(f"{here}.name", container["name"])
            names.append(container["name"])
            if field == "initContainers" and container.get("restartPolicy"):
                why = "the sandbox runs init containers one after the other, and none beside the others"
                yield StatusCause.forbidden(f"{here}.restartPolicy", why)
            for number, mount in enumerate(container.get("volumeMounts", ())):
                if mount["name"] not in volumes:
                    yield StatusCause.not_found(f"{here}.volumeMounts[{number}].name", mount["name"])
            yield from _resources(container["resources"], f"{here}.resources")


def _resources(resources: Object, at: str) -> Iterator[StatusCause]:
    limits = resources.get("limits", {})
    for name, amount in resources.get("requests", {}).items():
        is_device = "/" in name and not name.startswith("kubernetes.io/")
        request, limit = quantity.parse(amount), quantity.parse(limits.get(name, 0))
        if is_device and request.denominator != 1:
            yield StatusCause.invalid(f"{at}.requests[{name}]", amount, "must be an integer")
        elif is_device and name not in limits:
            yield StatusCause.required(f"{at}.limits", "Limit must be set for non overcommitable resources")
        elif name in limits and (request > limit or (is_device and request != limit)):
            rule = "equal to" if is_device else "less than or equal to"
            yield StatusCause.invalid(
                f"{at}.requests", amount, f"must be {rule} {name} limit of {limits[name]}"
            )


def _job(obj: Object) -> Iterator[StatusCause]:
    spec, at = obj["spec"], "spec.template.spec"
    if spec["completionMode"] == "Indexed" and "completions" not in spec:
        yield StatusCause.required("spec.completions", "when completion mode is Indexed")
    if spec["template"]["spec"].get("restartPolicy", "Always") in ("", "Always"):
        yield StatusCause.required(f"{at}.restartPolicy", 'valid values: "OnFailure", "Never"')
    yield from _pod_spec(spec["template"]["spec"], at)


def _deployment(obj: Object) -> Iterator[StatusCause]:
    pod_spec, at = obj["spec"]["template"]["spec"], "spec.template.spec"
    if pod_spec.get("restartPolicy", "Always") != "Always":
        yield StatusCause.unsupported(f"{at}.restartPolicy", pod_spec["restartPolicy"], ["Always"])
    yield from _pod_spec(pod_spec, at)


def _claim(obj: Object) -> Iterator[StatusCause]:
    storage = obj["spec"].get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        yield StatusCause.required("spec.resources[storage]")
    elif quantity.parse(storage) <= 0:
        yield StatusCause.invalid("spec.resources[storage]", storage, "must be greater than zero")


def _config(obj: Object) -> Iterator[StatusCause]:
    is_secret = obj["kind"] == "Secret"
    texts = () if is_secret else obj.get("data", {}).values()
    encoded = obj.get("data" if is_secret else "binaryData", {}).values()
    size = sum(len(text.encode()) for text in texts) + sum(len(text.rstrip("=")) * 3 // 4 for text in encoded)
    if size > MAX_CONFIG_BYTES:
        message = f"Too long: may not be more than {MAX_CONFIG_BYTES} bytes"
        yield StatusCause("data" if is_secret else "[]", "FieldValueTooLong", message)


def _fixed(spec: Object) -> Object:
    fields = {name: value for name, value in spec.items() if name not in POD_MAY_CHANGE}
    for field in fields.keys() & {"containers", "initContainers"}:
        fields[field] = [{**each, "image": ""} for each in fields[field]]
    return fields


def _pod_change(new: Object, old: Object) -> Iterator[StatusCause]:
    if _fixed(new["spec"]) != _fixed(old["spec"]):
        allowed = ", ".join(("image of containers", *POD_MAY_CHANGE))
        yield StatusCause.forbidden("spec", f"pod updates may not change other fields than {allowed}")


def _job_change(new: Object, old: Object) -> Iterator[StatusCause]:
    fixed = ["selector", "completionMode", "template"]
    if new["spec"].get("completionMode") != "Indexed":
        fixed.append("completions")
    for name in fixed:
        if new["spec"].get(name) != old["spec"].get(name):
            yield StatusCause.invalid(f"spec.{name}", new["spec"].get(name), IMMUTABLE)


Rules = Mapping[str, Callable[..., Sequence[StatusCause] | Iterator[StatusCause]]]
# Rules for every object, by key of its kind.
RULES: Rules = {
    "pods": lambda obj: _pod_spec(obj["spec"], "spec"),
    "jobs.batch": _job,
    "deployments.apps": _deployment,
    "persistentvolumeclaims": _claim,
    "configmaps": _config,
    "secrets": _config,
}
# Rules for a change from the old object (second) to the new one, by key of the kind.
CHANGE_RULES: Rules = {"pods": _pod_change, "jobs.batch": _job_change}


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
