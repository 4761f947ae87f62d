"""Nodes that taints, selectors, affinity and requests leave to a pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s import models
from k8s.models import Taint
from k8s.reasons.predicates import format_selector, matches, mismatch, tolerates, untolerated
from k8s.reasons.requests import NodeSelectorRequirement, SchedulingSpec, Toleration
from tests.support.evidence import labelled, nodes_of

LABELS = {"gpu": "h100", "zone": "a", "count": "8"}


def spec_of(**spec: Any) -> SchedulingSpec:
    found: SchedulingSpec = models.convert(spec, SchedulingSpec)
    return found


def required(*terms: dict[str, Any]) -> SchedulingSpec:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return spec_of(affinity={"nodeAffinity": affinity})


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("operator", "values", "on_h100", "on_nothing"),
    [
        ("In", ["h100", "a100"], True, False),
        ("In", ["a100"], False, False),
        ("In", [], False, False),
        ("NotIn", ["a100"], True, True),
        ("NotIn", ["h100"], False, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
        ("Gt", ["4"], False, False),
        ("Between", ["1"], False, False),
    ],
)
def test_operators_match_kubernetes(
    operator: str, values: list[str], on_h100: bool, on_nothing: bool
) -> None:
    requirement = NodeSelectorRequirement("gpu", operator, values)
    assert matches(requirement, LABELS) is on_h100
    assert matches(requirement, {}) is on_nothing


@pytest.mark.parametrize(
    ("operator", "bound", "is_so"),
    [("Gt", "7", True), ("Gt", "8", False), ("Lt", "9", True), ("Lt", "8", False), ("Gt", "-1", True),
     ("Gt", "many", False), ("Lt", "8.5", False), ("Gt", "+7", True), ("Gt", "", False)],
)  # fmt: skip
def test_numbers_are_compared_as_numbers(operator: str, bound: str, is_so: bool) -> None:
    assert matches(NodeSelectorRequirement("count", operator, [bound]), LABELS) is is_so


def _reference(requirement: NodeSelectorRequirement, labels: dict[str, str]) -> bool:
    """Say it again in the words of the API's reference."""
    values = requirement.values or []
    has, value = requirement.key in labels, labels.get(requirement.key, "")
    if requirement.operator == "In":
        return has and any(value == each for each in values)
    if requirement.operator == "NotIn":
        return bool(values) and not (has and any(value == each for each in values))
    if requirement.operator in ("Exists", "DoesNotExist"):
        return not values and has == (requirement.operator == "Exists")
    try:
        here, (bound,) = int(value), map(int, values)
    except ValueError:
        return False
    return has and (here > bound if requirement.operator == "Gt" else here < bound)


_words = st.sampled_from(["a", "b", "1", "2", "-3", "10"])
_requirements = st.builds(
    NodeSelectorRequirement,
    key=st.sampled_from(["zone", "count"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    values=st.none() | st.lists(_words, max_size=3),
)
_labels = st.dictionaries(st.sampled_from(["zone", "count"]), _words)
_terms = st.lists(st.lists(_requirements, max_size=3), max_size=3)


@given(_requirements, _labels)
def test_requirements_match_a_reference(requirement: NodeSelectorRequirement, labels: dict[str, str]) -> None:
    assert matches(requirement, labels) is _reference(requirement, labels)


@given(_terms, _labels)
def test_one_matching_term_is_enough(
    terms: list[list[NodeSelectorRequirement]], labels: dict[str, str]
) -> None:
    (node,) = nodes_of(labelled("n", labels=labels))
    asked = required(
        *(
            {"matchExpressions": [requirement(e.key, e.operator, *(e.values or ())) for e in term]}
            for term in terms
        )
    )
    expected = any(term and all(_reference(each, labels) for each in term) for term in terms)
    assert (mismatch(asked, node) == "") is expected


def test_fields_are_matched_by_the_nodes_name_alone() -> None:
    here, there = nodes_of(labelled("here"), labelled("there"))
    asked = required({"matchFields": [requirement("metadata.name", "In", "here")]})
    assert mismatch(asked, here) == ""
    assert mismatch(asked, there) == "metadata.name=here"
    other = required({"matchFields": [requirement("metadata.uid", "In", "x")]})
    assert mismatch(other, here)


def test_a_node_selector_and_an_affinity_must_both_match_and_are_formatted_as_text() -> None:
    asked = required(
        {"matchExpressions": [requirement("zone", "In", "a", "b"), requirement("gpu", "Exists")]}, {}
    )
    both = spec_of(nodeSelector={"disk": "ssd"}, affinity=models.convert({}, dict))
    (node,) = nodes_of(labelled("n", labels=LABELS))
    assert mismatch(asked, node) == ""
    assert mismatch(both, node) == "label disk=ssd"
    assert format_selector(both) == "disk=ssd"
    assert format_selector(required({"matchExpressions": [requirement("count", "Gt", "8")]})) == "count > 8"
    assert (
        format_selector(required({"matchExpressions": [requirement("gpu", "DoesNotExist")]}))
        == "no label gpu"
    )
    assert format_selector(spec_of()) == ""


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration("dedicated", "Equal", "team", "NoSchedule"), True),
        (Toleration("dedicated", "", "team", ""), True),
        (Toleration("dedicated", "Exists", "", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "", "team", ""), False),
        (Toleration("dedicated", "Equal", "others", "NoSchedule"), False),
        (Toleration("dedicated", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
        (Toleration("dedicated", "Maybe", "team", ""), False),
    ],
)
def test_tolerations_cover_taints_as_in_kubernetes(toleration: Toleration, is_tolerated: bool) -> None:
    taint = Taint("dedicated", "team", "NoSchedule")
    assert tolerates([toleration], taint) is is_tolerated
    assert str(taint) == "dedicated=team:NoSchedule"


def test_taints_that_only_prefer_or_repeat_a_condition_are_left_out() -> None:
    found = [
        {"key": "busy", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "mine", "effect": "NoExecute"},
    ]
    (node,) = nodes_of(labelled("n", taints=found))
    assert [each.key for each in untolerated([], node)] == ["mine"]
