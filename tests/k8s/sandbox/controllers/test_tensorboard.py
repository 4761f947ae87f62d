"""The TensorBoard that a job of TensorStack asks for, without any cluster."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.kinds.t9k.pytorch_job import T9K_PYTORCH_JOBS, T9kPyTorchJob
from k8s.models.resources import DEPLOYMENTS, SERVICES
from k8s.sandbox.controllers import tensorstack
from k8s.sandbox.controllers.reconcile import ObservedJob
from k8s.sandbox.controllers.tensorboard import objects_for
from tests.k8s.sandbox.controllers.test_tensorstack import job


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"logDir": {"pvc": [{"name": "v", "subPath": ["./log"]}]}}, ["--logdir", "/t9k/logs/v/log"]),
        ({"logDir": {"pvc": [{"name": "v"}]}}, ["--logdir", "/t9k/logs/v"]),
        ({"trainingLogFilesets": ["t9k://pvc/v/runs/a"]}, ["--logdir", "/t9k/logs/v/runs/a"]),
        (
            {"logDir": {"pvc": [{"name": "v", "subPath": ["a", "b"]}, {"name": "w"}]}},
            ["--logdir_spec", "v/a:/t9k/logs/v/a,v/b:/t9k/logs/v/b,w:/t9k/logs/w"],
        ),
    ],
)
def test_its_folders_are_those_of_the_claims(asked: dict[str, Any], words: list[str]) -> None:
    (_, deployment), (_, service) = objects_for(job(tensorboardSpec=asked), T9K_PYTORCH_JOBS)
    pod_spec = deployment["spec"]["template"]["spec"]
    (container,) = pod_spec["containers"]
    assert container["command"] == ["tensorboard", *words, "--host", "0.0.0.0"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    claims = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod_spec["volumes"]}
    assert mounted == {volume: f"/t9k/logs/{claim}" for volume, claim in claims.items()}
    assert service["metadata"]["labels"] == {"role": "tensorboard", "release": "bert"}
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("asked", [None, {}, {"logDir": {"pvc": []}}, {"image": "tensorflow/tensorflow"}])
def test_a_job_that_names_no_folder_has_none(asked: dict[str, Any] | None) -> None:
    assert objects_for(job(tensorboardSpec=asked), T9K_PYTORCH_JOBS) == []


def test_a_job_tells_how_its_tensorboard_is_and_ends_it_when_it_asks_no_more() -> None:
    asking = job(tensorboardSpec={"trainingLogFilesets": ["t9k://pvc/v/runs"]})
    made = tensorstack.decide(ObservedJob(T9kPyTorchJob(), asking, ()))
    assert [resource for resource, _ in made.objects] == [DEPLOYMENTS, SERVICES]
    assert made.status["tensorboard"]["ready"] is False
    children = {resource: [{**obj, "status": {"availableReplicas": 1}}] for resource, obj in made.objects}
    there = tensorstack.decide(ObservedJob(T9kPyTorchJob(), asking, (), children=children))
    assert (there.objects, there.status["tensorboard"]["ready"]) == ([], True)
    no_more = {**job(), "status": there.status}
    gone = tensorstack.decide(ObservedJob(T9kPyTorchJob(), no_more, (), children=children))
    assert [resource for resource, _ in gone.removals] == [DEPLOYMENTS, SERVICES]
    assert "tensorboard" not in gone.status
