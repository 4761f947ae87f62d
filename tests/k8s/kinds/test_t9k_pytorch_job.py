"""TensorStack's PyTorchTrainingJob and both forms of its MPIJob."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.kinds.t9k import T9kMPIJob, T9kPyTorchJob
from k8s.status import Status
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects

TORCH, MPI = T9kPyTorchJob(), T9kMPIJob()
API = "batch.tensorstack.dev/v1beta1"


def test_scheduler_restarts_and_elastic_size_are_read() -> None:
    job = jobs_in("t9k-pytorch-running")[0]
    assert (job.queue, job.priority) == ("default", "50")
    assert (job.restarts, job.restarts_allowed, job.min_instances) == (1, 5, 1)
    assert (job.outcome, job.is_suspended, job.progress) == (None, False, "")
    assert job.started is not None


def test_the_log_dir_is_found_below_the_mount_of_the_tensorboard_claim() -> None:
    obj = objects("t9k-pytorch-running")[0]
    assert TORCH.parse(obj).log_dir == "/t9k/mnt/log"
    obj["spec"]["tensorboardSpec"] = {"trainingLogFilesets": ["t9k://pvc/mnist/runs/a"]}
    assert TORCH.parse(obj).log_dir == "/t9k/mnt/runs/a"
    obj["spec"]["tensorboardSpec"] = {"trainingLogFilesets": ["t9k://pvc/elsewhere/runs"]}
    assert TORCH.parse(obj).log_dir == ""


@pytest.mark.parametrize(
    ("torchrun", "ranks", "proof"),
    [
        ({"enabled": True, "procPerNode": "gpu"}, [(0, 1, 2, 3), (4, 5, 6, 7)], "assumed"),
        ({"enabled": True, "procPerNode": "2"}, [(0, 1), (2, 3)], "assumed"),
        ({"enabled": True, "procPerNode": "auto"}, [(), ()], "none"),
        ({"enabled": False, "procPerNode": "2"}, [(0,), (1,)], "assumed"),
        (None, [(0,), (1,)], "assumed"),
    ],
)
def test_ranks_follow_the_processes_per_node_of_torchrun(
    torchrun: dict[str, Any] | None, ranks: list[tuple[int, ...]], proof: str
) -> None:
    obj = objects("t9k-pytorch-running")[0]
    obj["spec"]["torchrunConfig"] = torchrun
    assert [each.ranks for each in TORCH.replicas(obj)] == ranks
    assert {each.ranks_proof for each in TORCH.replicas(obj)} == {proof}


def test_the_first_pod_of_the_first_role_is_the_master() -> None:
    obj = objects("t9k-pytorch-running")[0]
    template = obj["spec"]["replicaSpecs"][0]["template"]
    roles = [{"type": "ps", "replicas": 1}, {"type": "worker", "replicas": 2, "template": template}]
    obj["spec"] |= {"elastic": None, "torchrunConfig": None, "replicaSpecs": roles}
    found = TORCH.replicas(obj)
    assert [(each.instance, each.ranks, each.is_chief) for each in found] == [
        ("ps-0", (0,), True),
        ("worker-0", (1,), False),
        ("worker-1", (2,), False),
    ]


@pytest.mark.parametrize("switch", ["enabled", "enable"])
def test_a_paused_job_is_distinguished_from_a_job_in_debug_mode(switch: str) -> None:
    obj = objects("t9k-pytorch-running")[0]
    obj["spec"]["runMode"] = {"pause": {switch: True}}
    assert (TORCH.parse(obj).is_suspended, TORCH.parse(obj).progress) == (True, "")
    obj["spec"]["runMode"] = {"debug": {switch: True}}
    assert not TORCH.parse(obj).is_suspended
    assert TORCH.parse(obj).progress == "debug mode: its pods wait for you"


def test_a_succeeded_t9k_mpi_job_refers_to_the_launcher_log() -> None:
    obj = objects("t9k-mpi-worker-form")[0]
    job = MPI.parse({**obj, "status": {"phase": "Succeeded"}})
    assert (job.outcome, job.outcome_reason) == (Status.SUCCEEDED, "it ended: the launcher's log tells how")
    assert jobs_in("t9k-mpi-replica-form")[0].is_suspended


@pytest.mark.parametrize(
    ("name", "instance"),
    [
        ("mnist-5b373-node-0", ("node", 0)),
        ("mnist-5b373-param-server-12", ("param-server", 12)),
        ("mnist-launcher", ("launcher", 0)),
        ("mnist-worker-3", ("worker", 3)),
        ("mnist-chief-0", ("chief", 0)),
        ("mnist", None),
        ("mnist-7", None),
        ("other-5b373-node-0", None),
    ],
)
def test_role_and_number_are_at_the_end_of_a_pods_name(name: str, instance: tuple[str, int] | None) -> None:
    pod = a_pod(name, {"tensorstack.dev/owner-name": "mnist"})
    assert TORCH.instance_of(pod) == instance


@pytest.mark.parametrize(
    ("kind", "api_version", "jobs"),
    [
        ("Notebook", "tensorstack.dev/v1beta1", ("", "")),
        ("PyTorchTrainingJob", API, ("mnist", "")),
        ("MPIJob", API, ("", "mnist")),
        ("MPIJob", "kubeflow.org/v1", ("", "")),
    ],
)
def test_pods_are_claimed_only_by_the_kind_of_their_owner(
    kind: str, api_version: str, jobs: tuple[str, str]
) -> None:
    labels = {"tensorstack.dev/owner-name": "mnist"}
    pod = a_pod("mnist-0", labels, kind=kind, apiVersion=api_version, name="mnist")
    assert (TORCH.job_of(pod), MPI.job_of(pod)) == jobs
