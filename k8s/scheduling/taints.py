"""Which taints keep a pod away from a node."""

from __future__ import annotations

from collections.abc import Sequence

from k8s.models import Node, Taint
from k8s.scheduling.objects import Toleration

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What cordoning a node amounts to; a pod that tolerates it is let in."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_OF_CONDITIONS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
)


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Tell whether any of the tolerations covers a taint.

    Source: Kubernetes, "Taints and Tolerations"; `Toleration.ToleratesTaint`: an empty effect means
    every effect, an empty key with Exists every key, an empty operator is Equal.
    """
    return any(_covers(each, taint) for each in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    # Without a key only Exists means anything.
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


def untolerated(tolerations: Sequence[Toleration], node: Node) -> list[Taint]:
    """Return the taints that keep a pod away, without those that only repeat the node's condition."""
    return [
        taint
        for taint in node.spec.taints or ()
        if taint.effect in _KEEPS_AWAY
        and taint.key not in _OF_CONDITIONS
        and not tolerates(tolerations, taint)
    ]


def words(taint: Taint) -> str:
    """Return a taint as kubectl writes it: `dedicated=team:NoSchedule`."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
