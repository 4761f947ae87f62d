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
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")

SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SERVICE_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
HOOKS = ("postStart", "preStop")
OUR_CONTROLLER = "kubernetes.io/job-controller"
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
    elif key == "services" and not _SERVICE_NAME.fullmatch(name):
        yield StatusCause.invalid("metadata.name", name, SERVICE_RULE)
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield StatusCause.invalid("metadata.name", name, SUBDOMAIN_RULE)
    yield from _labels("metadata.labels", meta.get("labels", {}))
    for each in meta.get("annotations", {}):
        if not _qualified(each.lower()):
            yield StatusCause.invalid(
                "metadata.annotations", each, "name part must consist of alphanumeric characters"
            )


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
    for index, volume in enumerate(spec.get("volumes", ())):
        for field in ("configMap", "secret"):
            for number, item in enumerate((volume.get(field) or {}).get("items") or ()):
                yield from _inner_path(
                    item.get("path"), f"{at}.volumes[{index}].{field}.items[{number}].path"
                )
    yield from _duplicates(volumes, f"{at}.volumes[{{}}].name")
    names: list[str] = []
    for field in ("containers", "initContainers"):
        containers = spec.get(field, ())
        names += [container.get("name") for container in containers]
        first = len(names) - len(containers)
        yield from _duplicates(names, f"{at}.{field}[{{}}].name", first)
        for index, container in enumerate(containers):
            yield from _container(container, f"{at}.{field}[{index}]", volumes)
            yield from _restart_policy(container, field, f"{at}.{field}[{index}]")


def _container(container: Object, at: str, volumes: Sequence[str]) -> Iterator[StatusCause]:
    for index, variable in enumerate(container.get("env", ())):
        if variable.get("value") and variable.get("valueFrom"):
            yield StatusCause.invalid(
                f"{at}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty"
            )
    mounts = container.get("volumeMounts", ())
    for index, mount in enumerate(mounts):
        if mount.get("name") and mount["name"] not in volumes:
            yield StatusCause.not_found(f"{at}.volumeMounts[{index}].name", mount["name"])
        for field in ("subPath", "subPathExpr"):
            # A real server leaves out the index, too.
            yield from _inner_path(mount.get(field, ""), f"{at}.volumeMounts.{field}")
        path = mount.get("mountPath")
        if path and path in [each.get("mountPath") for each in mounts[:index]]:
            yield StatusCause.invalid(f"{at}.volumeMounts[{index}].mountPath", path, "must be unique")
    yield from _resources(container["resources"], f"{at}.resources")
    probes = {name: container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    hooks = container.get("lifecycle") or {}
    for name, handler in {**probes, **{f"lifecycle.{hook}": hooks.get(hook) for hook in HOOKS}}.items():
        if handler is not None:
            yield from _handler(handler, f"{at}.{name}")


def _inner_path(path: object, at: str) -> Iterator[StatusCause]:
    if isinstance(path, str) and path.startswith("/"):
        yield StatusCause.invalid(at, path, "must be a relative path")
    elif isinstance(path, str) and ".." in path.split("/"):
        yield StatusCause.invalid(at, path, "must not contain '..'")


def _handler(handler: Object, at: str) -> Iterator[StatusCause]:
    given = [name for name in HANDLERS if name in handler]
    if not given:
        yield StatusCause.required(at, "must specify a handler type")
    for name in given[1:]:
        yield StatusCause.forbidden(f"{at}.{name}", "may not specify more than 1 handler type")
    if "exec" in handler and not handler["exec"].get("command"):
        yield StatusCause.required(f"{at}.exec.command")


def _restart_policy(container: Object, field: str, at: str) -> Iterator[StatusCause]:
    policy = container.get("restartPolicy")
    if policy and field == "containers":
        yield StatusCause.forbidden(f"{at}.restartPolicy", "may not be set for non-init containers")
    elif policy and policy != "Always":
        yield StatusCause.unsupported(f"{at}.restartPolicy", policy, ["Always"])


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
    if spec.get("managedBy", OUR_CONTROLLER) != OUR_CONTROLLER:
        # Run by us all the same, the job would have two masters.
        yield StatusCause.unsupported("spec.managedBy", spec["managedBy"], [OUR_CONTROLLER])
    pod_spec, at = spec["template"]["spec"], "spec.template.spec"
    if pod_spec.get("restartPolicy", "Always") in ("", "Always"):
        yield StatusCause.required(f"{at}.restartPolicy", 'valid values: "OnFailure", "Never"')
    yield from _pod_spec(pod_spec, at)


def _deployment(obj: Object) -> Iterator[StatusCause]:
    spec = obj["spec"]
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    if not selector.items() <= labels.items():
        yield StatusCause.invalid(
            "spec.template.metadata.labels", labels, "`selector` does not match template `labels`"
        )
    pod_spec, at = template.get("spec") or {}, "spec.template.spec"
    if pod_spec.get("restartPolicy", "Always") != "Always":
        yield StatusCause.unsupported(f"{at}.restartPolicy", pod_spec["restartPolicy"], ["Always"])
    yield from _pod_spec(pod_spec, at)


def _deployment_change(new: Object, old: Object) -> Iterator[StatusCause]:
    if new["spec"].get("selector") != old["spec"].get("selector"):
        yield StatusCause.invalid("spec.selector", new["spec"].get("selector"), IMMUTABLE)


def _service(obj: Object) -> Iterator[StatusCause]:
    spec = obj["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield StatusCause.required("spec.ports")


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
    for field in ("data", "binaryData"):
        for name in obj.get(field, {}):
            if not _CONFIG_KEY.fullmatch(name):
                yield StatusCause.invalid(
                    f"{field}[{name}]",
                    name,
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                )


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


def _claim_change(new: Object, old: Object) -> Iterator[StatusCause]:
    def fixed(spec: Object) -> dict[str, Any]:
        fields = {name: value for name, value in spec.items() if name != "resources"}
        if not old["spec"].get("volumeName"):
            fields.pop("volumeName", None)
        return fields

    if fixed(new["spec"]) != fixed(old["spec"]):
        yield StatusCause.forbidden(
            "spec", "spec is immutable after creation except resources.requests for bound claims"
        )


def _config_change(new: Object, old: Object) -> Iterator[StatusCause]:
    if old.get("immutable"):
        for field in ("data", "binaryData", "immutable"):
            if new.get(field) != old.get(field):
                yield StatusCause.forbidden(field, "field is immutable when `immutable` is set")
    if new.get("type") != old.get("type"):
        yield StatusCause.invalid("type", new.get("type"), IMMUTABLE)


# Rules for every object, by key of its kind.
RULES: Mapping[str, Callable[[Object], Iterator[StatusCause]]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "deployments.apps": _deployment,
    "services": _service,
    "persistentvolumeclaims": _claim,
    "configmaps": _config,
    "secrets": _config,
}
# Rules for a change from the old object (second) to the new one, by key of the kind.
CHANGE_RULES: Mapping[str, Callable[[Object, Object], Iterator[StatusCause]]] = {
    "pods": _pod_change,
    "jobs.batch": _job_change,
    "deployments.apps": _deployment_change,
    "persistentvolumeclaims": _claim_change,
    "configmaps": _config_change,
    "secrets": _config_change,
}
