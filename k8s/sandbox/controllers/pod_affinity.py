"""Which nodes a pod may be on by its required pod affinity: beside pods that are there already. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k8s.models import convert
from k8s.sandbox.controller_runtime import Manifest
from k8s.sandbox.controllers.reconcile import phase_of
from k8s.scheduling.predicates import matches
from k8s.scheduling.scheduling_spec import NodeSelectorRequirement

MISMATCH = "node(s) didn't match pod affinity rules"
"""As kube-scheduler says it."""


def nodes_beside(
    pod: Manifest,
    pods_by_node: Mapping[str, Sequence[Manifest]],
    labels_by_node: Mapping[str, Mapping[str, str]],
) -> frozenset[str] | None:
    """Return the nodes on which a pod would be beside those that it asks for; None when it asks for none.

    Pods that have ended do not count; and a pod that asks for its like may be the first of them.
    Source: kube-scheduler, `plugins/interpodaffinity/filtering.go`.
    """
    affinity = (pod["spec"].get("affinity") or {}).get("podAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    if not terms:
        return None
    found = frozenset(labels_by_node)
    for term in terms:
        key = str(term.get("topologyKey"))
        with_key = {name: labels[key] for name, labels in labels_by_node.items() if key in labels}
        taken = {
            with_key[node]
            for node, pods in pods_by_node.items()
            if node in with_key and any(_is_meant(each, term, pod) for each in _live(pods))
        }
        is_first = not taken and _is_meant(pod, term, pod)
        found &= {name for name, place in with_key.items() if is_first or place in taken}
    return found


def _live(pods: Iterable[Manifest]) -> Iterable[Manifest]:
    return (pod for pod in pods if phase_of(pod) not in ("Succeeded", "Failed"))


def _is_meant(other: Manifest, term: Mapping[str, Any], pod: Manifest) -> bool:
    """Tell whether a term of `pod` is about another one."""
    namespaces = term.get("namespaces") or [pod["metadata"]["namespace"]]
    selector = term.get("labelSelector")
    if selector is None or other["metadata"]["namespace"] not in namespaces:
        return False
    labels = other["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    expressions = convert(selector.get("matchExpressions") or [], list[NodeSelectorRequirement])
    return all(matches(each, labels) for each in expressions)
