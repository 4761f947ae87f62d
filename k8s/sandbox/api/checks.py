"""Whether the values of an object make sense: the refusals of a real server that users meet.

Each check yields the fields that are wrong, with the server's own words.
Source: `pkg/apis/core/validation` and `pkg/apis/batch/validation`, Kubernetes 1.31.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from k8s import quantity
from k8s.sandbox.api.refused import Cause

Object = Mapping[str, Any]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SERVICE_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
NAME_WORDS = "name part must consist of alphanumeric characters, '-', '_' or '.'"
IMMUTABLE = "field is immutable"
POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
POD_FORBIDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def wrong_fields(key: str, obj: Object, old: Object | None = None) -> list[Cause]:
    """Return what is wrong with an object, or with changing `old` into it."""
    causes = list(_metadata(key, obj["metadata"]))
    if (check := CHECKS.get(key)) is not None:
        causes += check(obj)
    if old is not None and (check_change := CHANGE_CHECKS.get(key)) is not None:
        causes += check_change(obj, old)
    return causes


def _metadata(key: str, meta: Object) -> Iterator[Cause]:
    name = meta.get("name", "")
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    elif key == "namespaces" and not _LABEL.fullmatch(name):
        yield Cause.invalid("metadata.name", name, LABEL_WORDS)
    elif key == "services" and not _SERVICE_NAME.fullmatch(name):
        yield Cause.invalid("metadata.name", name, SERVICE_WORDS)
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield Cause.invalid("metadata.name", name, SUBDOMAIN_WORDS)
    yield from _labels("metadata.labels", meta.get("labels", {}))
    for each in meta.get("annotations", {}):
        if not _qualified(each.lower()):
            yield Cause.invalid(
                "metadata.annotations", each, "name part must consist of alphanumeric characters"
            )


def _labels(field: str, labels: Mapping[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        if not _qualified(key):
            yield Cause.invalid(
                field, key, "name part must consist of alphanumeric characters, '-', '_' or '.'"
            )
        if not _LABEL_VALUE.fullmatch(value):
            yield Cause.invalid(
                field, value, "a valid label must be an empty string or consist of alphanumeric characters"
            )


def _qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_QUALIFIED.fullmatch(name)) and (not slash or bool(_SUBDOMAIN.fullmatch(prefix)))


def _pod(obj: Object) -> Iterator[Cause]:
    yield from _pod_spec(obj.get("spec", {}), "spec", ("Always", "OnFailure", "Never"))


def _pod_spec(spec: Object, at: str, restart_policies: Sequence[str]) -> Iterator[Cause]:
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes", ())):
        name = volume.get("name", "")
        field = f"{at}.volumes[{index}].name"
        if not name:
            yield Cause.required(field)
        elif name in volumes:
            yield Cause.duplicate(field, name)
        elif not _LABEL.fullmatch(name):
            yield Cause.invalid(field, name, LABEL_WORDS)
        volumes.add(name)
        if "persistentVolumeClaim" in volume and not volume["persistentVolumeClaim"].get("claimName"):
            yield Cause.required(f"{at}.volumes[{index}].persistentVolumeClaim.claimName")
    if not spec.get("containers"):
        yield Cause.required(f"{at}.containers")
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            yield from _container(container, f"{at}.{field}[{index}]", names, volumes)
    policy = spec.get("restartPolicy", "")
    if policy not in restart_policies and (policy in ("", "Always") and "Always" not in restart_policies):
        yield Cause.required(
            f"{at}.restartPolicy", "valid values: " + ", ".join(f'"{each}"' for each in restart_policies)
        )
    elif policy not in restart_policies:
        yield Cause.unsupported(f"{at}.restartPolicy", policy, restart_policies)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield _negative(f"{at}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"])
    if "activeDeadlineSeconds" in spec and spec["activeDeadlineSeconds"] < 1:
        yield Cause.invalid(
            f"{at}.activeDeadlineSeconds",
            spec["activeDeadlineSeconds"],
            "must be between 1 and 2147483647, inclusive",
        )


def _container(container: Object, at: str, names: set[str], volumes: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield Cause.required(f"{at}.name")
    elif not _LABEL.fullmatch(name):
        yield Cause.invalid(f"{at}.name", name, LABEL_WORDS)
    elif name in names:
        yield Cause.duplicate(f"{at}.name", name)
    names.add(name)
    if not container.get("image"):
        yield Cause.required(f"{at}.image")
    for index, port in enumerate(container.get("ports", ())):
        if not 0 < port.get("containerPort", 0) < 65536:
            yield Cause.invalid(
                f"{at}.ports[{index}].containerPort",
                port.get("containerPort", 0),
                "must be between 1 and 65535, inclusive",
            )
    for index, variable in enumerate(container.get("env", ())):
        if not variable.get("name"):
            yield Cause.required(f"{at}.env[{index}].name")
        if variable.get("value") and variable.get("valueFrom"):
            yield Cause.invalid(
                f"{at}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty"
            )
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        field = f"{at}.volumeMounts[{index}]"
        if not mount.get("name"):
            yield Cause.required(f"{field}.name")
        elif mount["name"] not in volumes:
            yield Cause.not_found(f"{field}.name", mount["name"])
        path = mount.get("mountPath", "")
        if not path:
            yield Cause.required(f"{field}.mountPath")
        elif path in paths:
            yield Cause.invalid(f"{field}.mountPath", path, "must be unique")
        paths.add(path)
    yield from _resources(container.get("resources", {}), f"{at}.resources")


def _resources(resources: Object, at: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, amount in limits.items():
        if quantity.parse(amount) < 0:
            yield Cause.invalid(f"{at}.limits[{name}]", amount, "must be greater than or equal to 0")
    for name, amount in requests.items():
        asked = quantity.parse(amount)
        is_device = "/" in name and not name.startswith("kubernetes.io/")
        if asked < 0:
            yield Cause.invalid(f"{at}.requests[{name}]", amount, "must be greater than or equal to 0")
        elif name in limits:
            limit = quantity.parse(limits[name])
            if is_device and asked != limit:
                yield Cause.invalid(
                    f"{at}.requests", amount, f"must be equal to {name} limit of {limits[name]}"
                )
            elif asked > limit:
                yield Cause.invalid(
                    f"{at}.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}"
                )
        elif is_device:
            yield Cause.required(f"{at}.limits", "Limit must be set for non overcommitable resources")
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if "/" in name and quantity.parse(amount).denominator != 1:
                yield Cause.invalid(f"{at}.{field}[{name}]", amount, "must be an integer")


def _job(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec", {})
    for name in (
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    ):
        if spec.get(name, 0) < 0:
            yield _negative(f"spec.{name}", spec[name])
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        yield Cause.unsupported("spec.completionMode", mode, ("Indexed", "NonIndexed"))
    elif mode == "Indexed" and "completions" not in spec:
        yield Cause.required("spec.completions", "when completion mode is Indexed")
    yield from _pod_spec(
        spec.get("template", {}).get("spec", {}), "spec.template.spec", ("OnFailure", "Never")
    )


def _pytorch_job(obj: Object) -> Iterator[Cause]:
    if "spec" not in obj:
        return
    at = "spec.pytorchReplicaSpecs"
    if "pytorchReplicaSpecs" not in obj["spec"]:
        yield Cause.required(at)
    for role, replicas in obj["spec"].get("pytorchReplicaSpecs", {}).items():
        pod = replicas.get("template", {}).get("spec", {})
        if "template" in replicas and "containers" not in pod and "spec" in replicas["template"]:
            yield Cause.required(f"{at}.{role}.template.spec.containers")
        for container in (*pod.get("containers", ()), *pod.get("initContainers", ())):
            if "name" not in container:
                yield Cause.required(f"{at}.{role}.template.spec.containers.name")


def _service(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec", {})
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield Cause.required("spec.ports")
    for index, port in enumerate(spec.get("ports", ())):
        number = port.get("port", 0)
        if not isinstance(number, int) or not 0 < number < 65536:
            yield Cause.invalid(f"spec.ports[{index}].port", number, "must be between 1 and 65535, inclusive")


def _claim(obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec", {})
    if not spec.get("accessModes"):
        yield Cause.required("spec.accessModes", "at least 1 access mode is required")
    for index, mode in enumerate(spec.get("accessModes", ())):
        modes = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
        if mode not in modes:
            yield Cause.unsupported(f"spec.accessModes[{index}]", mode, modes)
    if "storage" not in spec.get("resources", {}).get("requests", {}):
        yield Cause.required("spec.resources[storage]")
    elif quantity.parse(spec["resources"]["requests"]["storage"]) <= 0:
        yield Cause.invalid(
            "spec.resources[storage]", spec["resources"]["requests"]["storage"], "must be greater than zero"
        )


def _config(obj: Object) -> Iterator[Cause]:
    for field in ("data", "binaryData"):
        for name in obj.get(field, {}):
            if not _CONFIG_KEY.fullmatch(name):
                yield Cause.invalid(
                    f"{field}[{name}]",
                    name,
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                )


def _pod_change(new: Object, old: Object) -> Iterator[Cause]:
    def fixed(spec: Object) -> dict[str, Any]:
        kept = {name: value for name, value in spec.items() if name not in POD_MAY_CHANGE}
        for field in ("containers", "initContainers"):
            if field in kept:
                kept[field] = [
                    {name: value for name, value in each.items() if name != "image"} for each in kept[field]
                ]
        return kept

    if fixed(new["spec"]) != fixed(old["spec"]):
        yield Cause.forbidden("spec", POD_FORBIDS)


def _job_change(new: Object, old: Object) -> Iterator[Cause]:
    for name in ("selector", "completionMode"):
        if new["spec"].get(name) != old["spec"].get(name):
            yield Cause.invalid(f"spec.{name}", new["spec"].get(name), IMMUTABLE)
    if new["spec"].get("template") != old["spec"].get("template"):
        yield Cause.invalid("spec.template", "...", IMMUTABLE)
    completions = new["spec"].get("completions")
    if completions != old["spec"].get("completions") and new["spec"].get("completionMode") != "Indexed":
        yield Cause.invalid("spec.completions", completions, IMMUTABLE)


def _claim_change(new: Object, old: Object) -> Iterator[Cause]:
    def fixed(spec: Object) -> dict[str, Any]:
        kept = {name: value for name, value in spec.items() if name != "resources"}
        if not old["spec"].get("volumeName"):
            kept.pop("volumeName", None)
        return kept

    if fixed(new["spec"]) != fixed(old["spec"]):
        yield Cause.forbidden(
            "spec", "spec is immutable after creation except resources.requests for bound claims"
        )


def _config_change(new: Object, old: Object) -> Iterator[Cause]:
    if old.get("immutable"):
        for field in ("data", "binaryData", "immutable"):
            if new.get(field) != old.get(field):
                yield Cause.forbidden(field, "field is immutable when `immutable` is set")
    if new.get("type") != old.get("type"):
        yield Cause.invalid("type", new.get("type"), IMMUTABLE)


def _negative(field: str, value: object) -> Cause:
    return Cause.invalid(field, value, "must be greater than or equal to 0")


CHECKS: Mapping[str, Callable[[Object], Iterator[Cause]]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "pytorchjobs.kubeflow.org": _pytorch_job,
    "services": _service,
    "persistentvolumeclaims": _claim,
    "configmaps": _config,
    "secrets": _config,
}
"""By a kind's key: what must hold for every object."""
CHANGE_CHECKS: Mapping[str, Callable[[Object, Object], Iterator[Cause]]] = {
    "pods": _pod_change,
    "jobs.batch": _job_change,
    "persistentvolumeclaims": _claim_change,
    "configmaps": _config_change,
    "secrets": _config_change,
}
"""By a kind's key: what must hold between the new object and the old."""
