"""Validation of field values, as a real server does it wherever users notice.

Each check yields the wrong fields with the server's own messages. The c10d rendezvous is refused too, where
the torch of the pods cannot be given a file in place of its open store: see `node.torch_loopback`.
Source: `pkg/apis/core/validation` and `pkg/apis/batch/validation`, Kubernetes 1.31.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from k8s.models import quantity
from k8s.sandbox.api.admission.schemas import LABEL_RULE, NOT_NEGATIVE, check, is_label
from k8s.sandbox.api.api_errors import StatusCause

Object = dict[str, Any]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
# Size of all values of a ConfigMap or Secret. Source: `MaxSecretSize` in core/v1.
MAX_CONFIG_BYTES = 2**20
IMMUTABLE = "field is immutable"
POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
POD_FORBIDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


REFUSED = (
    "the sandbox refuses the c10d rendezvous: before torch 2.5 it unpickles what any user of this machine "
    "can write into its store; update torch, or leave it out for static rendezvous, or: "
    "gpuconsole sandbox start --allow-open-rendezvous"
)
_FIELD = "rdzvBackend"
# T9k's rdzvBackend becomes a static rendezvous in the sandbox; its extra options are torchrun arguments.
_STATIC, _OPTIONS = "torchrunConfig", "extraOptions"
_VARIABLE = "PET_RDZV_BACKEND"
_WORDS = re.compile(r"--rdzv[-_]backend[=\s]\s*['\"]?c10d\b")


def newly_open(obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[StatusCause]:
    """Return the fields that request the c10d rendezvous; none if `old` requested it already."""
    if old is not None and any(open_rendezvous(old.get("spec"), "spec")):
        return []
    return list(open_rendezvous(obj.get("spec"), "spec"))


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
    """Return the wrong fields of an object, or of the change from `old` to it."""
    causes = [*_metadata(key, obj["metadata"]), *check(key, obj).causes]
    if (rule := RULES.get(key)) is not None:
        causes += rule(obj)
    if old is not None and (check_change := CHANGE_RULES.get(key)) is not None:
        causes += check_change(obj, old)
    return causes


def _metadata(key: str, meta: Object) -> Iterator[StatusCause]:
    name = meta.get("name", "")
    if not name:
        yield StatusCause.required("metadata.name", "name or generateName is required")
    elif key == "namespaces" and not is_label(name):
        yield StatusCause.invalid("metadata.name", name, LABEL_RULE)
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield StatusCause.invalid("metadata.name", name, SUBDOMAIN_RULE)
    yield from _labels("metadata.labels", meta.get("labels", {}))


def _labels(field: str, labels: Mapping[str, str]) -> Iterator[StatusCause]:
    for key, value in labels.items():
        if not _qualified(key):
            yield StatusCause.invalid(
                field, key, "name part must consist of alphanumeric characters, '-', '_' or '.'"
            )
        if not _LABEL_VALUE.fullmatch(value):
            yield StatusCause.invalid(
                field, value, "a valid label must be an empty string or consist of alphanumeric characters"
            )


def _qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_QUALIFIED.fullmatch(name)) and (not slash or bool(_SUBDOMAIN.fullmatch(prefix)))


def _pod(obj: Object) -> Iterator[StatusCause]:
    yield from _pod_spec(obj["spec"], "spec")


def _pod_spec(spec: Object, at: str) -> Iterator[StatusCause]:
    volumes = [volume.get("name") for volume in spec.get("volumes", ())]
    names: list[str] = []
    for field in ("containers", "initContainers"):
        containers = spec.get(field, ())
        names += [container.get("name") for container in containers]
        first = len(names) - len(containers)
        yield from _duplicates(names, f"{at}.{field}[{{}}].name", first)
        for index, container in enumerate(containers):
            yield from _container(container, f"{at}.{field}[{index}]", volumes)


def _container(container: Object, at: str, volumes: Sequence[str]) -> Iterator[StatusCause]:
    for index, mount in enumerate(container.get("volumeMounts", ())):
        if mount.get("name") and mount["name"] not in volumes:
            yield StatusCause.not_found(f"{at}.volumeMounts[{index}].name", mount["name"])
    yield from _resources(container["resources"], f"{at}.resources")


def _duplicates(names: Sequence[str], at: str, first: int = 0) -> Iterator[StatusCause]:
    """Report the names from index `first` on that occur earlier too; `at` has a place for the index."""
    for index, name in enumerate(names[first:]):
        if name and name in names[: first + index]:
            yield StatusCause.duplicate(at.format(index), name)


def _resources(resources: Object, at: str) -> Iterator[StatusCause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if quantity.parse(amount) < 0:
                yield StatusCause.invalid(f"{at}.{field}[{name}]", amount, NOT_NEGATIVE)
            elif "/" in name and quantity.parse(amount).denominator != 1:
                yield StatusCause.invalid(f"{at}.{field}[{name}]", amount, "must be an integer")
    for name, amount in requests.items():
        is_device = "/" in name and not name.startswith("kubernetes.io/")
        request, limit = quantity.parse(amount), quantity.parse(limits.get(name, 0))
        if name not in limits:
            if is_device:
                yield StatusCause.required(
                    f"{at}.limits", "Limit must be set for non overcommitable resources"
                )
        elif request > limit or (is_device and request != limit):
            rule = "equal to" if is_device else "less than or equal to"
            yield StatusCause.invalid(
                f"{at}.requests", amount, f"must be {rule} {name} limit of {limits[name]}"
            )


def _job(obj: Object) -> Iterator[StatusCause]:
    spec = obj["spec"]
    if spec["completionMode"] == "Indexed" and "completions" not in spec:
        yield StatusCause.required("spec.completions", "when completion mode is Indexed")
    pod_spec, at = spec["template"]["spec"], "spec.template.spec"
    if pod_spec.get("restartPolicy", "Always") in ("", "Always"):
        yield StatusCause.required(f"{at}.restartPolicy", 'valid values: "OnFailure", "Never"')
    yield from _pod_spec(pod_spec, at)


def _deployment(obj: Object) -> Iterator[StatusCause]:
    pod_spec, at = obj["spec"]["template"]["spec"], "spec.template.spec"
    if pod_spec.get("restartPolicy", "Always") != "Always":
        yield StatusCause.unsupported(f"{at}.restartPolicy", pod_spec["restartPolicy"], ["Always"])
    yield from _pod_spec(pod_spec, at)


def _claim(obj: Object) -> Iterator[StatusCause]:
    if not obj["spec"].get("accessModes"):
        yield StatusCause.required("spec.accessModes", "at least 1 access mode is required")
    storage = obj["spec"]["resources"].get("requests", {}).get("storage")
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


def _pod_change(new: Object, old: Object) -> Iterator[StatusCause]:
    def fixed(spec: Object) -> dict[str, Any]:
        fields = {name: value for name, value in spec.items() if name not in POD_MAY_CHANGE}
        for field in ("containers", "initContainers"):
            if field in fields:
                fields[field] = [
                    {name: value for name, value in each.items() if name != "image"} for each in fields[field]
                ]
        return fields

    if fixed(new["spec"]) != fixed(old["spec"]):
        yield StatusCause.forbidden("spec", POD_FORBIDS)


def _job_change(new: Object, old: Object) -> Iterator[StatusCause]:
    for name in ("selector", "completionMode"):
        if new["spec"].get(name) != old["spec"].get(name):
            yield StatusCause.invalid(f"spec.{name}", new["spec"].get(name), IMMUTABLE)
    if new["spec"].get("template") != old["spec"].get("template"):
        yield StatusCause.invalid("spec.template", "...", IMMUTABLE)
    completions = new["spec"].get("completions")
    if completions != old["spec"].get("completions") and new["spec"].get("completionMode") != "Indexed":
        yield StatusCause.invalid("spec.completions", completions, IMMUTABLE)


# Rules for every object, by key of its kind.
RULES: Mapping[str, Callable[[Object], Iterator[StatusCause]]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "deployments.apps": _deployment,
    "persistentvolumeclaims": _claim,
    "configmaps": _config,
    "secrets": _config,
}
# Rules for a change from the old object (second) to the new one, by key of the kind.
CHANGE_RULES: Mapping[str, Callable[[Object, Object], Iterator[StatusCause]]] = {
    "pods": _pod_change,
    "jobs.batch": _job_change,
}
