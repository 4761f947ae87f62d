"""Placement of a job's pods: nodes, scheduler, host namespaces, user id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from k8s import job_spec as job_specs
from k8s.kinds.base import Manifest
from k8s.kinds.parse import ParsedPart, count_of, text_of

if TYPE_CHECKING:
    from k8s.job_spec import JobSpec, PodToleration

_HOSTNAME = "kubernetes.io/hostname"
_SWITCHES = {"hostNetwork": "host_network", "hostIPC": "host_ipc", "hostPID": "host_pid"}
_DNS_OF_HOST_NETWORK = "ClusterFirstWithHostNet"


def add_placement(pod: Manifest, spec: JobSpec) -> None:
    """Add the placement of `spec` to a pod."""
    found: Manifest = {
        "priorityClassName": spec.priority_class,
        "schedulerName": spec.scheduler,
        "nodeSelector": dict(spec.node_selector),
        "affinity": _excluding_nodes(spec.excluded_nodes) if spec.excluded_nodes else None,
        "tolerations": [_toleration(each) for each in spec.tolerations],
        "hostNetwork": spec.host_network,
        "dnsPolicy": _DNS_OF_HOST_NETWORK if spec.host_network else "",
        "hostIPC": spec.host_ipc,
        "hostPID": spec.host_pid,
        "securityContext": None if spec.run_as_user is None else {"runAsUser": spec.run_as_user},
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
    }
    pod.update({key: value for key, value in found.items() if value})


def pop_placement(pod: Manifest) -> ParsedPart:
    """Remove from a pod the placement that a spec can express."""
    selector = pod.pop("nodeSelector", None) or {}
    fields: dict[str, Any] = {
        "priority_class": text_of(pod.pop("priorityClassName", "")),
        "scheduler": text_of(pod.pop("schedulerName", "")),
        "node_selector": {str(key): str(value) for key, value in selector.items()},
        "excluded_nodes": (),
        "tolerations": _pop_tolerations(pod),
        "run_as_user": None,
        "pull_secrets": tuple(text_of(each.get("name")) for each in pod.pop("imagePullSecrets", None) or ()),
    }
    for key, name in _SWITCHES.items():
        fields[name] = pod.pop(key, False) is True
    if fields["host_network"] and pod.get("dnsPolicy") == _DNS_OF_HOST_NETWORK:
        del pod["dnsPolicy"]
    user = count_of((pod.get("securityContext") or {}).get("runAsUser"))
    if user is not None:
        fields["run_as_user"] = user
        del pod["securityContext"]["runAsUser"]
    if (names := _excluded_nodes(pod.get("affinity"))) is not None:
        fields["excluded_nodes"] = names
        del pod["affinity"]
    return ParsedPart(fields, [])


def _excluding_nodes(nodes: tuple[str, ...]) -> Manifest:
    term = {"matchExpressions": [{"key": _HOSTNAME, "operator": "NotIn", "values": list(nodes)}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}


def _excluded_nodes(affinity: Any) -> tuple[str, ...] | None:
    # None if the affinity says anything else.
    try:
        terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        nodes = tuple(terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"])
    except (KeyError, IndexError, TypeError):
        return None
    return nodes if affinity == _excluding_nodes(nodes) else None


def _toleration(each: PodToleration) -> Manifest:
    found = {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
    return {key: value for key, value in found.items() if value}


def _pop_tolerations(pod: Manifest) -> tuple[PodToleration, ...]:
    # Others stay, such as those with `tolerationSeconds`.
    found: list[PodToleration] = []
    left: list[Manifest] = []
    for each in pod.pop("tolerations", None) or ():
        fields = {key: each.get(key) or "" for key in ("key", "value", "effect")}
        toleration = job_specs.PodToleration(**fields, operator=each.get("operator") or "Equal")
        is_whole = _toleration(toleration) == {"operator": "Equal", **each}
        if is_whole:
            found.append(toleration)
        else:
            left.append(each)
    if left:
        pod["tolerations"] = left
    return tuple(found)
