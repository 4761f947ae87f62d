"""Plans for Deployments."""

from __future__ import annotations

from typing import Any

from k8s.sandbox.controllers.batch import HASH, decide_deployment
from k8s.sandbox.controllers.operators import KINDS
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan
from tests.k8s.sandbox.live.running import Manifest

LABELS = {"app": "board"}


def deployment(replicas: int = 1, image: str = "a", **spec: Any) -> Manifest:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}
    meta = {"name": "board", "namespace": "default", "uid": "u", "generation": 3}
    return {"metadata": meta, "spec": {"replicas": replicas, "template": template, **spec}}


def decide(obj: Manifest, pods: list[Manifest]) -> Plan:
    return decide_deployment(ObservedJob(KINDS[-1], obj, pods))


def pods_of(obj: Manifest, phase: str = "Running") -> list[Manifest]:
    """Return the pods that a new Deployment gets, in a phase."""
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    return [{**pod, "status": {"phase": phase, "conditions": [ready]}} for pod in decide(obj, []).create]


def test_a_new_deployment_gets_its_pods_and_the_same_ones_the_second_time() -> None:
    plan = decide(deployment(2), [])
    names = [pod["metadata"]["name"] for pod in plan.create]
    assert len(set(names)) == 2
    assert names == [pod["metadata"]["name"] for pod in decide(deployment(2), []).create]
    assert all(pod["metadata"]["labels"].keys() == {"app", HASH} for pod in plan.create)
    assert plan.create[0]["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    (condition,) = plan.status.pop("conditions")
    assert (condition["type"], condition["status"]) == ("Available", "False")
    assert plan.status == {"unavailableReplicas": 2, "observedGeneration": 3}


def test_a_deployment_whose_pods_are_ready_needs_nothing() -> None:
    plan = decide(deployment(2), pods_of(deployment(2)))
    assert (plan.create, plan.delete) == ([], [])
    (condition,) = plan.status.pop("conditions")
    assert (condition["type"], condition["status"]) == ("Available", "True")
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
    assert plan.status == {**counts, "observedGeneration": 3}


def test_ended_and_outdated_pods_are_replaced_under_other_names() -> None:
    for pod, wanted in (
        (*pods_of(deployment(), "Failed"), deployment()),
        (*pods_of(deployment()), deployment(image="b")),
    ):
        plan = decide(wanted, [pod])
        assert plan.delete == [pod]
        (made,) = plan.create
        assert made["metadata"]["name"] != pod["metadata"]["name"]


def test_fewer_replicas_delete_pods() -> None:
    assert len(decide(deployment(1), pods_of(deployment(3))).delete) == 2
