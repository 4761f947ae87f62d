"""Which nodes a pod's nodeSelector and required node affinity allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from k8s.models import Node
from k8s.scheduling.objects import Requirement, SchedulingSpec, Term

NAME_FIELD = "metadata.name"
"""The one field that `matchFields` knows."""


def mismatch(wish: SchedulingSpec, node: Node) -> str:
    """Return what a node lacks that the pod demands, in words; empty when it has all of it."""
    labels = node.metadata.labels or {}
    for key, value in (wish.node_selector or {}).items():
        if labels.get(key) != value:
            return f"label {key}={value}"
    terms = required_terms(wish)
    if terms is None or any(_holds(term, node) for term in terms):
        return ""
    return " or ".join(dict.fromkeys(term_words(term) for term in terms)) or "nothing: no term is given"


def demands(wish: SchedulingSpec) -> str:
    """Return what the pod demands of a node's labels, in words; empty when nothing."""
    parts = [f"{key}={value}" for key, value in (wish.node_selector or {}).items()]
    if terms := required_terms(wish):
        parts.append(" or ".join(dict.fromkeys(term_words(term) for term in terms)))
    return " and ".join(parts)


def required_terms(wish: SchedulingSpec) -> Sequence[Term] | None:
    """Return the terms of which one must hold; None when there is no such demand."""
    affinity = wish.affinity.node_affinity if wish.affinity is not None else None
    if affinity is None or affinity.required is None:
        return None
    return affinity.required.node_selector_terms or ()


def _holds(term: Term, node: Node) -> bool:
    """Tell whether all claims of a term hold; a term without any holds for no node.

    Source: Kubernetes `component-helpers/scheduling/corev1/nodeaffinity`.
    """
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    labels = node.metadata.labels or {}
    named = {NAME_FIELD: node.metadata.name}
    return all(holds(each, labels) for each in expressions) and all(
        each.operator in ("In", "NotIn") and holds(each, named) for each in fields
    )


def holds(claim: Requirement, labels: Mapping[str, str]) -> bool:
    """Tell whether one claim about labels holds; one that the server would not accept never does."""
    check = _OPERATORS.get(claim.operator)
    return check is not None and check(labels.get(claim.key), claim.values or [])


def _number(text: str | None) -> int | None:
    """Return a whole number as the API reads it: a sign, then digits."""
    digits = (
        (text or "").removeprefix("-") if (text or "").startswith("-") else (text or "").removeprefix("+")
    )
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19:
        return None
    return int(text or "")


def _is_beyond(value: str | None, values: list[str], sign: int) -> bool:
    here, bound = _number(value), _number(values[0]) if len(values) == 1 else None
    return here is not None and bound is not None and (here - bound) * sign > 0


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: bool(values) and (value is None or value not in values),
    "Exists": lambda value, values: value is not None and not values,
    "DoesNotExist": lambda value, values: value is None and not values,
    "Gt": lambda value, values: _is_beyond(value, values, 1),
    "Lt": lambda value, values: _is_beyond(value, values, -1),
}

_SIGNS = {"In": "in", "NotIn": "not in", "Gt": ">", "Lt": "<"}


def term_words(term: Term) -> str:
    """Return a term as people read it: `zone in (a, b) and gpu exists`."""
    claims = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(_claim_words(each) for each in claims)


def _claim_words(claim: Requirement) -> str:
    values = claim.values or []
    match claim.operator:
        case "In" if len(values) == 1:
            return f"{claim.key}={values[0]}"
        case "Exists":
            return f"label {claim.key}"
        case "DoesNotExist":
            return f"no label {claim.key}"
        case "Gt" | "Lt":
            return f"{claim.key} {_SIGNS[claim.operator]} {', '.join(values)}"
        case _:
            return f"{claim.key} {_SIGNS.get(claim.operator, claim.operator)} ({', '.join(values)})"
