"""Requests of a pod, free resources of a node, and the nodes that all its constraints leave."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from k8s import models
from k8s.gpus.gpu_set import best_sets, free_gpus, link_fit
from k8s.gpus.links import MACHINES
from k8s.models import Taint
from k8s.reasons import requests
from k8s.reasons.phrases import amount, clock, count, cut, names, span
from k8s.reasons.predicates import NodeCapacity, format_selector, matches, mismatch, tolerates, untolerated
from k8s.reasons.requests import NodeSelectorRequirement, SchedulingSpec, Toleration
from k8s.snapshot import Holder, NodeRow, Share
from tests.support.evidence import NOW, held, labelled, nodes_of
from tests.support.objects import GPU, node

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


def wanted(**spec: Any) -> dict[str, str]:
    found: SchedulingSpec = models.convert(spec, SchedulingSpec)
    return {name: str(number) for name, number in requests.of_pod(found).items() if name != "pods"}


def container(name: str = "main", restart: str = "", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources, **({"restartPolicy": restart} if restart else {})}


def test_a_resource_missing_from_a_node_is_insufficient() -> None:
    assert requests.insufficient({"cpu": 2, GPU: 1, "pods": 1}, {"cpu": 2, "pods": 110}) == [GPU]


def test_a_limit_counts_where_nothing_is_requested() -> None:
    assert wanted(containers=[container(requests={"cpu": "500m"}, limits={"cpu": "2", GPU: 8})]) == {
        "cpu": "1/2",
        GPU: "8",
    }


def test_the_larger_of_init_containers_and_containers_counts() -> None:
    running = [container("a", requests={"cpu": "1"}), container("b", requests={"cpu": "2", "memory": "1Gi"})]
    assert wanted(containers=running, initContainers=[container("i", requests={"cpu": "5"})]) == {
        "cpu": "5",
        "memory": str(2**30),
    }


def test_a_sidecar_counts_with_the_containers_and_with_init_containers_after_it() -> None:
    init = [
        container("early", requests={"cpu": "3"}),
        container("side", "Always", requests={"cpu": "1"}),
        container("late", requests={"cpu": "4"}),
    ]
    assert wanted(containers=[container(requests={"cpu": "2"})], initContainers=init) == {"cpu": "5"}
    assert wanted(containers=[container(requests={"cpu": "6"})], initContainers=init) == {"cpu": "7"}


def test_pod_level_requests_replace_the_sum_and_overhead_is_added() -> None:
    running = [container(requests={"cpu": "1", GPU: 2})]
    found = wanted(containers=running, resources={"requests": {"cpu": "3"}}, overhead={"cpu": "250m"})
    assert found == {"cpu": "13/4", GPU: "2"}


def test_a_pod_counts_as_one_pod_and_its_malformed_requests_as_zero() -> None:
    spec: SchedulingSpec = models.convert(
        {"containers": [container(requests={"cpu": "many"})]}, SchedulingSpec
    )
    assert requests.of_pod(spec) == {"pods": 1}


def test_free_capacity_is_allocatable_minus_requested_with_gpus_from_the_console() -> None:
    (found,) = nodes_of(node("a", 8))
    capacity = NodeCapacity.of(found, {"cpu": 60, GPU: 1}, held("a", 8, gpt=5))
    assert capacity.free == {"cpu": 4, GPU: 3, "pods": 110}
    assert NodeCapacity.of(found, None).free == {"cpu": 64, GPU: 8, "pods": 110}


@pytest.mark.parametrize(
    ("resource", "number", "words"),
    [
        (GPU, Fraction(8), "8 nvidia.com/gpu"),
        ("cpu", Fraction(3, 2), "1.5 cpu"),
        ("cpu", Fraction(1, 3), "0.333 cpu"),
        ("memory", Fraction(64 * 2**30), "64Gi memory"),
        ("memory", Fraction(3 * 2**29), "1.5Gi memory"),
        ("requests.memory", Fraction(2**20), "1Mi requests.memory"),
        ("ephemeral-storage", Fraction(500), "500 ephemeral-storage"),
    ],
)
def test_amounts_are_formatted_in_manifest_units(resource: str, number: Fraction, words: str) -> None:
    assert amount(resource, number) == words


def test_many_names_are_counted_and_messages_are_cut() -> None:
    assert names([]) == ""
    assert names(["a"]) == "a"
    assert names(["a", "b", "a"]) == "a and b"
    assert names("abcd") == "a, b, c and d"
    assert names("abcdef") == "a, b, c and 3 more"
    assert count(1, "pod") == "1 pod" and count(0, "pod") == "0 pods"
    assert cut(" one\n two. ") == "one two"
    assert len(cut("x" * 5000)) == 400
    assert cut(None) == ""


def test_durations_use_their_largest_unit_and_a_missing_time_is_empty() -> None:
    assert [span(each) for each in (-5, 1, 119, 120, 7199, 7200, 200000)] == [
        "0 s", "1 s", "119 s", "2 min", "119 min", "2 h", "2 d",
    ]  # fmt: skip
    assert clock(NOW) == "12:00:00"
    assert clock(NOW.replace(tzinfo=None)) == "12:00:00"
    assert clock(None) == ""


V100, H100, PCIE = (MACHINES[name].matrix() for name in ("dgx-1v", "dgx-h100", "pcie"))


def row(*holders: tuple[int, tuple[int, ...]], unhealthy: int = 0) -> NodeRow:
    """Return a node with eight GPUs, of which pods hold so many, and which if that is told."""
    held = tuple(
        Holder("default", f"p{at}", "bert", gpus, {GPU: gpus}, devices=devices)
        for at, (gpus, devices) in enumerate(holders)
    )
    share = Share(8, sum(gpus for gpus, _ in holders), unhealthy)
    return NodeRow("a", "", (), "Ready", False, "", {GPU: share}, held, None)


@pytest.mark.parametrize(
    ("node", "free"),
    [
        (row(), tuple(range(8))),
        (row((2, (0, 3)), (1, (7,))), (1, 2, 4, 5, 6)),
        (row((2, ())), None),
        (row((2, (0,))), None),
        (row(unhealthy=1), None),
        (replace(row((1, (0,))), resources={GPU: Share(8, 3, 0)}), None),
        (replace(row(), mode="share"), None),
    ],
)
def test_free_gpus_are_named_if_all_held_ones_are(node: NodeRow, free: tuple[int, ...] | None) -> None:
    assert free_gpus(node, V100) == free


def test_link_fit_uses_the_best_set_of_the_known_free_gpus() -> None:
    fit = link_fit(row((4, (0, 1, 2, 3))), V100, 4)
    assert fit is not None
    assert (fit.best.gpus, fit.is_nvlink, fit.is_pcie) == ((4, 5, 6, 7), True, False)
    fit = link_fit(row((4, (1, 3, 5, 7))), V100, 4)
    assert fit is not None
    assert (fit.best.gpus, fit.is_nvlink, fit.is_pcie) == ((0, 2, 4, 6), False, True)


def test_link_fit_guarantees_only_the_worst_set_when_the_free_gpus_are_unknown() -> None:
    fit = link_fit(row((4, ())), V100, 4)
    assert fit is not None
    assert (fit.worst.link, fit.best.link, fit.is_nvlink, fit.is_pcie) == ("SYS", "NV1", False, False)
    fit = link_fit(row((4, ())), H100, 4)
    assert fit is not None and fit.is_nvlink
    fit = link_fit(row((4, ())), PCIE, 4)
    assert fit is not None and fit.is_pcie


def test_a_single_gpu_has_no_link_and_more_than_are_free_do_not_fit() -> None:
    fit = link_fit(row((4, ())), V100, 1)
    assert fit is not None
    assert (fit.best.link, fit.is_nvlink, fit.is_pcie) == ("", False, False)
    assert link_fit(row((4, ())), V100, 5) is None
    assert link_fit(replace(row(), status="Ready, cordoned"), V100, 2) is None
    assert link_fit(replace(row(), mode="mig"), V100, 2) is None
    assert best_sets(replace(row(), mode="mig"), V100) == []


def test_best_sets_are_computed_for_the_free_gpus() -> None:
    assert [each.gpus for each in best_sets(row((4, (0, 1, 2, 3))), V100)] == [(4, 7), (4, 5, 6, 7)]
    assert [len(each.gpus) for each in best_sets(row((2, ())), V100)] == [2, 4, 8]
