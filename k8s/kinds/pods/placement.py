"""Where and as what the pods of a job run: nodes, scheduler, the node's namespaces, the user."""

from __future__ import annotations

from typing import Any

from k8s.job_spec import JobSpec, PodToleration
from k8s.kinds.base import Manifest
from k8s.kinds.parse import count_of, text_of
from k8s.kinds.pods.understood import Understood

_HOSTNAME = "kubernetes.io/hostname"
_SWITCHES = {"hostNetwork": "host_network", "hostIPC": "host_ipc", "hostPID": "host_pid"}
_DNS_OF_HOST_NETWORK = "ClusterFirstWithHostNet"


def add_placement(pod: Manifest, spec: JobSpec) -> None:
    """Write into a pod where it may run, and as what."""
    found: Manifest = {
        "priorityClassName": spec.priority_class,
        "schedulerName": spec.scheduler,
        "nodeSelector": dict(spec.node_selector),
        "affinity": _keeping_off(spec.excluded_nodes) if spec.excluded_nodes else None,
        "tolerations": [_toleration(each) for each in spec.tolerations],
        "hostNetwork": spec.host_network,
        "dnsPolicy": _DNS_OF_HOST_NETWORK if spec.host_network else "",
        "hostIPC": spec.host_ipc,
        "hostPID": spec.host_pid,
        "securityContext": None if spec.run_as_user is None else {"runAsUser": spec.run_as_user},
        "imagePullSecrets": [{"name": name} for name in spec.pull_secrets],
    }
    pod.update({key: value for key, value in found.items() if value})


def take_placement(pod: Manifest) -> Understood:
    """Take out of a pod what a spec can say of where it may run; the rest stays."""
    selector = pod.pop("nodeSelector", None) or {}
    fields: dict[str, Any] = {
        "priority_class": text_of(pod.pop("priorityClassName", "")),
        "scheduler": text_of(pod.pop("schedulerName", "")),
        "node_selector": {str(key): str(value) for key, value in selector.items()},
        "excluded_nodes": (),
        "tolerations": _take_tolerations(pod),
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
    if (names := _nodes_kept_off(pod.get("affinity"))) is not None:
        fields["excluded_nodes"] = names
        del pod["affinity"]
    return Understood(fields, [])


def _keeping_off(nodes: tuple[str, ...]) -> Manifest:
    term = {"matchExpressions": [{"key": _HOSTNAME, "operator": "NotIn", "values": list(nodes)}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}


def _nodes_kept_off(affinity: Any) -> tuple[str, ...] | None:
    """Return the nodes that an affinity excludes; None where it says anything else."""
    try:
        terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        nodes = tuple(terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"])
    except (KeyError, IndexError, TypeError):
        return None
    return nodes if affinity == _keeping_off(nodes) else None


def _toleration(each: PodToleration) -> Manifest:
    found = {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
    return {key: value for key, value in found.items() if value}


def _take_tolerations(pod: Manifest) -> tuple[PodToleration, ...]:
    """Take the tolerations that a spec can say; others, as those with a time, stay."""
    found: list[PodToleration] = []
    left: list[Manifest] = []
    for each in pod.pop("tolerations", None) or ():
        said = {key: each.get(key) or "" for key in ("key", "value", "effect")}
        toleration = PodToleration(**said, operator=each.get("operator") or "Equal")
        is_whole = _toleration(toleration) == {"operator": "Equal", **each}
        if is_whole:
            found.append(toleration)
        else:
            left.append(each)
    if left:
        pod["tolerations"] = left
    return tuple(found)
