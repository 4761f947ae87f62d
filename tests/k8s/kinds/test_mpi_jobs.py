"""MPIJobs of Kubeflow's mpi-operator, of its training-operator, and of Arena."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.kinds.job_spec import JobSpec
from k8s.kinds.kubeflow.mpi_job import MPIJob
from k8s.kinds.kubeflow.mpi_job_v1 import MPIJobV1
from k8s.kinds.kubeflow.mpi_job_v1alpha1 import MPIJobV1Alpha1
from tests import FIXTURES
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects
from tests.support.objects import join

NEW, MIDDLE, ARENA = MPIJob(), MPIJobV1(), MPIJobV1Alpha1()


def test_queue_priority_and_retries_are_read_from_the_run_policy() -> None:
    job = jobs_in("mpijob-v2beta1-running")[0]
    assert (job.queue, job.priority, job.restarts_allowed, job.is_suspended) == ("research", "high", 2, False)
    assert (job.outcome, job.min_instances, job.has_status) == (None, None, True)
    assert job.started is not None and job.finished is None


def test_mpi_replicas_have_no_ranks_of_their_own() -> None:
    for situation in ("mpijob-v2beta1-running", "mpijob-v1-running", "mpijob-v1alpha1-running"):
        for replica in jobs_in(situation)[0].replicas:
            assert (replica.ranks, replica.ranks_proof) == ((), "none")


def test_an_mpi_job_with_only_a_launcher_has_one_replica() -> None:
    obj = objects("mpijob-v2beta1-launcher-works")[0]
    del obj["spec"]["mpiReplicaSpecs"]["Worker"]
    assert [replica.instance for replica in NEW.replicas(obj)] == ["launcher-0"]
    assert NEW.replicas({"metadata": {"name": "x"}}) == ()


def test_a_worker_index_is_read_from_its_label_if_its_name_has_none() -> None:
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/replica-index": "3",
    }
    assert NEW.instance_of(a_pod("renamed", labels)) == ("worker", 3)
    assert NEW.instance_of(a_pod("renamed", {**labels, "training.kubeflow.org/replica-index": "x"})) is None


@pytest.mark.parametrize(
    ("owner", "is_new"),
    [
        ({"kind": "MPIJob", "apiVersion": "kubeflow.org/v1", "name": "bert"}, False),
        ({"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "name": "bert"}, True),
        ({"kind": "Job", "apiVersion": "batch/v1", "name": "bert-launcher"}, True),
    ],
)
def test_pods_of_older_mpi_operators_are_found_by_owner(owner: dict[str, str], is_new: bool) -> None:
    labels = {"group-name": "kubeflow.org", "mpi-job-name": "bert", "mpi-job-role": "worker"}
    pod = a_pod("bert-worker-2", labels, **owner)
    assert (NEW.job_of(pod), MIDDLE.job_of(pod)) == (("bert", "") if is_new else ("", "bert"))
    assert (NEW if is_new else MIDDLE).instance_of(pod) == ("worker", 2)


@pytest.mark.parametrize("name", ["arena-mpi", "arena-mpi-topology"])
def test_requested_gpus_of_an_mpi_job_match_the_arena_annotation(name: str) -> None:
    obj = json.loads((FIXTURES / "objects" / f"{name}.json").read_bytes())
    job = ARENA.parse(obj)
    _, rows = join([], [], [job])
    assert rows[0].gpus_requested == int(obj["metadata"]["annotations"]["requestGPUsOfJobOwner"]) == 4
    assert (job.user, job.restarts_allowed, len(job.replicas)) == ("admin", 0, 5)
    assert not job.has_status


@pytest.mark.parametrize(
    ("asked", "workers", "gpus"),
    [
        ({"gpus": 16}, 2, 16),
        ({"gpus": 4}, 1, 4),
        ({"gpus": 8, "gpusPerNode": 2}, 4, 8),
        ({"processingUnits": 4, "processingUnitsPerNode": 2}, 2, 4),
        ({"processingUnits": 4, "processingUnitsPerNode": 2, "processingResourceType": "cpu"}, 2, 0),
        ({}, 1, 4),
        ({"gpus": 0, "replicas": 3}, 3, 12),
    ],
)
def test_total_gpus_are_divided_as_the_operator_does(asked: dict[str, Any], workers: int, gpus: int) -> None:
    obj = objects("mpijob-v1alpha1-running")[0]
    del obj["spec"]["replicas"]
    obj["spec"] |= asked
    _, rows = join([], [], [ARENA.parse(obj)])
    assert (len(rows[0].instances) - 1, rows[0].gpus_requested) == (workers, gpus)


def test_the_launcher_requests_its_own_resources_instead_of_those_of_a_worker() -> None:
    obj = objects("mpijob-v1alpha1-running")[0]
    obj["spec"]["launcherResources"] = {"limits": {"nvidia.com/gpu": 1}}
    _, rows = join([], [], [ARENA.parse(obj)])
    assert [each.gpus for each in rows[0].instances] == [1, 4, 4]


KIND = MPIJobV1()
SPEC = JobSpec(name="bench", image="i:1", command=("mpirun", "x"), workers=2)


def test_a_v1_manifest_has_no_v2beta1_fields() -> None:
    body = KIND.manifest(SPEC)["spec"]
    assert set(body) == {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"}


def test_a_v1_mpi_job_has_no_kueue_queue_label() -> None:
    manifest = KIND.manifest(JobSpec(name="a", image="i", command=("x",), queue="team-a"))
    assert "kueue.x-k8s.io/queue-name" not in manifest["metadata"]["labels"]
    assert "v2beta1" in KIND.lacks["queue"]
