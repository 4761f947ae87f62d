"""The sandbox's scheduler and `why` count alike: where one finds nodes, the other does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s import models
from k8s.diagnosis.causes.unschedulable import capacity
from k8s.diagnosis.objects import FullPod
from k8s.sandbox.controllers.placement import node_capacity, pending_pod, place
from k8s.scheduling import requests
from tests.support.evidence import evidence_of, instance, labelled
from tests.support.objects import GPU, Object

_format_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["500m", "1", "2", "3"]),
        GPU: st.integers(0, 4).map(str),
        "memory": st.sampled_from(["64Mi", "1Gi"]),
    },
)
_resources = st.fixed_dictionaries({}, optional={"requests": _format_amounts, "limits": _format_amounts})


def _containers(**more: Any) -> st.SearchStrategy[list[Object]]:
    return st.lists(
        st.fixed_dictionaries({"name": st.just("c"), "resources": _resources}, optional=more), max_size=3
    )


_specs = st.fixed_dictionaries(
    {"containers": _containers().filter(bool)},
    optional={
        "initContainers": _containers(restartPolicy=st.just("Always")),
        "overhead": _format_amounts,
        "nodeSelector": st.just({"zone": "a"}),
        "tolerations": st.just([{"key": "team", "operator": "Exists"}]),
    },
)
_taints = st.sampled_from([[], [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]])


@st.composite
def _nodes(draw: st.DrawFn) -> list[tuple[Object, Object | None]]:
    """Return nodes, each with the spec of a pod that runs there, or none."""
    found = []
    for index in range(draw(st.integers(1, 3))):
        labels = draw(st.sampled_from([{}, {"zone": "a"}]))
        spec: dict[str, Any] = {"taints": draw(_taints), "unschedulable": draw(st.booleans())}
        node = labelled(f"n{index}", draw(st.integers(0, 6)), labels, **spec)
        node["status"]["allocatable"]["cpu"] = str(draw(st.integers(1, 8)))
        found.append((node, draw(st.none() | _specs)))
    return found


@given(_specs, st.integers(1, 4), _nodes())
def test_why_finds_a_shortage_exactly_where_the_sandbox_cannot_place_a_job_of_equal_pods(
    spec: Object, number: int, nodes: list[tuple[Object, Object | None]]
) -> None:
    pods = [_pod(f"worker-{index}", spec) for index in range(number)]
    there = [node_capacity(node, [_pod("other", own)] if own else []) for node, own in nodes]
    placed, _ = place([pending_pod(pod) for pod in pods], there)
    evidence = evidence_of(
        *(instance(f"worker-{index}") for index in range(number)),
        pods=[models.convert(pod, FullPod) for pod in pods],
        nodes=[node for node, _ in nodes],
        requested_by_node={
            str(node["metadata"]["name"]): requests.of_pod(models.convert(_pod("other", own), FullPod).spec)
            for node, own in nodes
            if own
        },
    )
    assert (capacity(evidence) is None) == (len(placed) == number)


def _pod(name: str, spec: Object) -> Object:
    return {"metadata": {"name": f"bert-{name}"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "gpus", "fits"),
    [
        ({"initContainers": [{"resources": {"requests": {GPU: "3"}}}]}, 3, True),
        ({"initContainers": [{"restartPolicy": "Always", "resources": {"requests": {GPU: "1"}}}]}, 3, True),
        ({"initContainers": [{"restartPolicy": "Always", "resources": {"requests": {GPU: "2"}}}]}, 3, False),
        ({"overhead": {GPU: "1"}}, 3, True),
        ({"overhead": {GPU: "2"}}, 3, False),
        ({"overhead": {GPU: "2"}}, 4, True),
    ],
)
def test_the_sandbox_counts_init_sidecars_and_overhead(spec: Object, gpus: int, fits: bool) -> None:
    pod = _pod("a", {"containers": [{"resources": {"limits": {GPU: "2"}}}], **spec})
    placed, why = place([pending_pod(pod)], [node_capacity(labelled("n", gpus), ())])
    assert bool(placed) is fits
    assert why == ("" if fits else f"0/1 nodes are available: 1 Insufficient {GPU}.")
