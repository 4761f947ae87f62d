"""Plans for Deployments, and required pod affinity."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.sandbox.controllers.deployments import HASH, decide
from k8s.sandbox.controllers.placement import nodes_beside
from tests.k8s.sandbox.live.running import Manifest

LABELS = {"app": "board"}


def deployment(replicas: int = 1, image: str = "a", **spec: Any) -> Manifest:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}
    meta = {"name": "board", "namespace": "default", "uid": "u", "generation": 3}
    return {"metadata": meta, "spec": {"replicas": replicas, "template": template, **spec}}


def pods_of(obj: Manifest, phase: str = "Running", is_ready: bool = True) -> list[Manifest]:
    """Return the pods that a new Deployment gets, in a phase."""
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    return [{**pod, "status": {"phase": phase, "conditions": [ready]}} for pod in decide(obj, []).create]


def conditions_of(status: Manifest) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def test_a_new_deployment_gets_its_pods_and_asking_twice_names_the_same() -> None:
    plan = decide(deployment(2), [])
    names = [pod["metadata"]["name"] for pod in plan.create]
    assert len(set(names)) == 2
    assert names == [pod["metadata"]["name"] for pod in decide(deployment(2), []).create]
    assert all(pod["metadata"]["labels"].keys() == {"app", HASH} for pod in plan.create)
    assert plan.create[0]["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    assert plan.status["unavailableReplicas"] == 2
    assert conditions_of(plan.status) == {"Available": "False", "Progressing": "True"}


def test_a_deployment_whose_pods_are_ready_needs_nothing() -> None:
    plan = decide(deployment(2), pods_of(deployment(2)))
    assert (plan.create, plan.delete) == ([], [])
    assert (plan.status["replicas"], plan.status["updatedReplicas"], plan.status["availableReplicas"]) == (
        2,
        2,
        2,
    )
    assert "unavailableReplicas" not in plan.status
    assert plan.status["observedGeneration"] == 3
    assert conditions_of(plan.status)["Available"] == "True"


def test_a_pod_that_ended_is_replaced_under_another_name() -> None:
    (pod,) = pods_of(deployment(), "Failed", is_ready=False)
    plan = decide(deployment(), [pod])
    assert plan.delete == [pod]
    assert [each["metadata"]["name"] for each in plan.create] != [pod["metadata"]["name"]]


def test_old_pods_stay_until_the_new_ones_are_ready_unless_they_shall_go_first() -> None:
    old, changed = pods_of(deployment()), deployment(image="b")
    plan = decide(changed, old)
    assert (len(plan.create), plan.delete) == (1, [])
    starting = pods_of(changed, "Pending", is_ready=False)
    assert (decide(changed, [*old, *starting]).create, decide(changed, [*old, *starting]).delete) == ([], [])
    assert decide(changed, [*old, *pods_of(changed)]).delete == old
    first = deployment(image="b", strategy={"type": "Recreate"})
    plan = decide(first, old)
    assert (plan.create, plan.delete) == ([], old)
    leaving = [{**old[0], "metadata": {**old[0]["metadata"], "deletionTimestamp": "now"}}]
    assert decide(first, leaving).create == []
    assert len(decide(first, []).create) == 1


def test_fewer_replicas_delete_pods_and_a_paused_one_makes_none() -> None:
    assert len(decide(deployment(1), pods_of(deployment(3))).delete) == 2
    assert decide(deployment(2, paused=True), []).create == []


def pod(labels: dict[str, str], phase: str = "Running", namespace: str = "default") -> Manifest:
    meta = {"name": "p", "namespace": namespace, "labels": labels}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase}}


def beside(selector: Manifest | None, labels: dict[str, str] | None = None, **term: Any) -> Manifest:
    wanted = {"labelSelector": selector, "topologyKey": "host", **term}
    found = pod(labels or {})
    found["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}
    return found


MASTER = {"matchExpressions": [{"key": "role", "operator": "In", "values": ["master"]}]}
NODES = {"a": {"host": "a", "zone": "z"}, "b": {"host": "b", "zone": "z"}, "c": {"host": "c"}}


@pytest.mark.parametrize(
    ("asking", "there", "nodes"),
    [
        (pod({}), {}, None),
        (beside(MASTER), {"a": [pod({"role": "master"})]}, {"a"}),
        (beside({"matchLabels": {"role": "master"}}), {"a": [pod({"role": "master"})]}, {"a"}),
        (beside(MASTER, topologyKey="zone"), {"a": [pod({"role": "master"})]}, {"a", "b"}),
        (beside(MASTER), {"a": [pod({"role": "worker"})]}, set()),
        (beside(MASTER), {"a": [pod({"role": "master"}, "Succeeded")]}, set()),
        (beside(MASTER), {"a": [pod({"role": "master"}, namespace="other")]}, set()),
        (beside(MASTER, namespaces=["other"]), {"a": [pod({"role": "master"}, namespace="other")]}, {"a"}),
        (beside(None), {"a": [pod({"role": "master"})]}, set()),
        (beside({}), {"a": [pod({})]}, {"a"}),
        (beside(MASTER), {"": [pod({"role": "master"})]}, set()),
        (beside(MASTER, {"role": "master"}), {}, {"a", "b", "c"}),
        (beside(MASTER, {"role": "master"}), {"c": [pod({"role": "master"})]}, {"c"}),
    ],
)
def test_a_pod_may_be_where_those_are_that_it_asks_for(
    asking: Manifest, there: dict[str, list[Manifest]], nodes: set[str] | None
) -> None:
    assert nodes_beside(asking, there, NODES) == (None if nodes is None else frozenset(nodes))
