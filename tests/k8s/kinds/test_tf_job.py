"""TFJobs of Kubeflow's training-operator, and of the tf-operator before it."""

from __future__ import annotations

import pytest

from k8s.kinds import CREATABLE
from k8s.kinds.kubeflow.tf_job import TFJob
from k8s.status import Status
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects

KIND = TFJob()


def test_tfjob_replicas_are_parsed_by_role_and_the_chief_replica_is_chief() -> None:
    job = jobs_in("tfjob-running")[0]
    assert [replica.name for replica in job.replicas] == [
        "dist-mnist-chief-0",
        "dist-mnist-ps-0",
        "dist-mnist-worker-0",
        "dist-mnist-worker-1",
    ]
    assert [replica.instance for replica in job.replicas if replica.is_chief] == ["chief-0"]
    assert {replica.ranks_proof for replica in job.replicas} == {"none"}
    assert [replica.restart_policy for replica in job.replicas][:2] == ["OnFailure", "Never"]
    assert job.restarts_allowed == 3


@pytest.mark.parametrize(
    ("roles", "chief"),
    [
        (("Master", "Worker"), "master-0"),
        (("PS", "Worker"), "worker-0"),
        (("Evaluator", "worker"), "worker-0"),
        (("ps",), None),
    ],
)
def test_the_chief_is_the_master_or_else_the_first_worker(roles: tuple[str, ...], chief: str | None) -> None:
    obj = objects("tfjob-running")[0]
    obj["spec"]["tfReplicaSpecs"] = {role: {"replicas": 2} for role in roles}
    assert [each.instance for each in KIND.replicas(obj) if each.is_chief] == ([chief] if chief else [])


def test_an_empty_role_has_one_pod_and_a_missing_spec_has_none() -> None:
    assert [
        each.name
        for each in KIND.replicas({"metadata": {"name": "x"}, "spec": {"tfReplicaSpecs": {"Worker": None}}})
    ] == ["x-worker-0"]
    assert KIND.replicas({"metadata": {"name": "x"}}) == ()


def test_the_outcome_of_a_tfjob_comes_from_its_conditions() -> None:
    obj = objects("tfjob-running")[0]
    obj["status"]["conditions"].append({"type": "Succeeded", "status": "True", "message": "done"})
    assert (KIND.parse(obj).outcome, KIND.parse(obj).outcome_reason) == (Status.SUCCEEDED, "done")


def test_pods_of_the_older_tf_operator_are_recognised() -> None:
    labels = {"tf-job-name": "mnist", "tf-replica-type": "ps", "tf-replica-index": "1"}
    pod = a_pod("mnist-ps-1", labels)
    assert (KIND.job_of(pod), KIND.instance_of(pod)) == ("mnist", ("ps", 1))
    assert KIND.instance_of(a_pod("mnist-ps-x", {"tf-job-name": "mnist"})) is None


def test_a_tfjob_cannot_be_created() -> None:
    assert KIND.title not in {kind.title for kind in CREATABLE}
