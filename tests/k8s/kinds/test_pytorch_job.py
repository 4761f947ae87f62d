"""PyTorchJob, TFJob and TensorStack's kinds: what operators add to their pods, and say about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k8s.kinds import CREATABLE
from k8s.kinds.job_spec import JobSpec
from k8s.kinds.kubeflow.kubeflow_job import TFJob
from k8s.kinds.kubeflow.pytorch_job import PyTorchJob
from k8s.kinds.parse import JobReader
from k8s.kinds.t9k import T9kMPIJob, T9kPyTorchJob
from k8s.status import Status
from tests import FIXTURES
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects
from tests.support.objects import RECORDED, join, pytorch_job

KIND = PyTorchJob()


def env_of(job: dict[str, Any], number: int) -> dict[str, str]:
    return dict(KIND.replicas(job)[number].env)


def test_replica_variables_equal_those_of_the_operator() -> None:
    job = pytorch_job("bert", workers=3, gpus=8)
    assert env_of(job, 0) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "bert-master-0",
        "MASTER_PORT": "23456",
        "PET_MASTER_ADDR": "bert-master-0",
        "PET_MASTER_PORT": "23456",
        "WORLD_SIZE": "24",
        "RANK": "0",
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "8",
        "PET_NNODES": "3",
    }
    assert (env_of(job, 2)["RANK"], env_of(job, 2)["PET_NODE_RANK"]) == ("2", "2")


def test_replica_names_and_labels_equal_those_of_the_operator() -> None:
    master, worker, _ = KIND.replicas(pytorch_job("bert", workers=3))
    assert (master.name, worker.name) == ("bert-master-0", "bert-worker-0")
    assert dict(master.labels) == {
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert "training.kubeflow.org/job-role" not in dict(worker.labels)


@pytest.mark.parametrize(
    ("per_node", "world", "ranks", "proof"),
    [
        ("auto", "2", (), "none"),
        ("gpu", "2", (), "none"),
        (None, "2", (), "none"),
        ("4", "8", (4, 5, 6, 7), "declared"),
    ],
)
def test_only_a_number_of_processes_makes_ranks(
    per_node: str | None, world: str, ranks: tuple[int, ...], proof: str
) -> None:
    job = pytorch_job("bert", workers=2)
    job["spec"]["nprocPerNode"] = per_node
    worker = KIND.replicas(job)[1]
    assert (worker.ranks, worker.ranks_proof) == (ranks, proof)
    assert dict(worker.env)["WORLD_SIZE"] == world
    assert dict(worker.env)["PET_NPROC_PER_NODE"] == (per_node or "auto")


def test_the_masters_port_is_the_one_that_its_container_names() -> None:
    job = pytorch_job("bert")
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["ports"] = [
        {"name": "metrics", "containerPort": 9000},
        {"name": "pytorchjob-port", "containerPort": 29500},
    ]
    assert env_of(job, 0)["MASTER_PORT"] == "29500"


def test_without_a_master_no_replica_has_a_rank_variable() -> None:
    job = pytorch_job("bert", workers=3)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    first, second = KIND.replicas(job)
    assert not {"RANK", "MASTER_ADDR", "WORLD_SIZE"} & set(dict(first.env))
    assert dict(first.env)["PET_NNODES"] == "2"
    assert (first.is_chief, second.is_chief) == (True, False)
    assert first.ranks_proof == "assumed"


def test_an_elastic_job_has_rendezvous_variables_and_assumed_ranks() -> None:
    job = pytorch_job("bert", workers=4, gpus=2)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    job["spec"]["elasticPolicy"] = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "c10d",
        "rdzvId": "bert-1",
        "maxRestarts": 5,
    }
    replica = KIND.replicas(job)[1]
    env = dict(replica.env)
    assert env["PET_NNODES"] == "1:3"
    assert env["PET_RDZV_BACKEND"] == "c10d"
    assert env["PET_RDZV_ENDPOINT"] == "bert-worker-0:23456"
    assert (env["PET_RDZV_ID"], env["PET_MAX_RESTARTS"]) == ("bert-1", "5")
    assert replica.ranks_proof == "assumed"


@pytest.mark.parametrize(("retries", "policy"), [(0, "Never"), (3, "OnFailure")])
def test_the_restart_policy_is_never_without_retries(retries: int, policy: str) -> None:
    spec = JobSpec(name="a", image="b", command=("c",), workers=2, retries=retries)
    manifest = KIND.manifest(spec)
    assert [replica.restart_policy for replica in KIND.replicas(manifest)] == [policy] * 2
    assert manifest["spec"]["runPolicy"]["backoffLimit"] == retries


def test_one_worker_is_the_master_alone() -> None:
    manifest = KIND.manifest(JobSpec(name="a", image="b", command=("c",)))
    assert list(manifest["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def test_the_outcomes_of_recorded_jobs_are_parsed() -> None:
    _, jobs, unreadable = JobReader(KIND).read_list((RECORDED / "pytorchjobs.json").read_bytes())
    assert (len(jobs), unreadable) == (8, 0)
    assert {job.ref.name: job.outcome for job in jobs if job.outcome} == {
        "done": Status.SUCCEEDED,
        "fails": Status.FAILED,
    }
    assert all((job.finished is not None) == (job.outcome is not None) for job in jobs)
    assert all(job.started is not None for job in jobs)


def test_a_recorded_failure_has_the_operator_message_as_its_reason() -> None:
    _, jobs, _ = JobReader(KIND).read_list((RECORDED / "pytorchjobs.json").read_bytes())
    job = next(job for job in jobs if job.ref.name == "fails")
    assert job.outcome_reason == "PyTorchJob fails is failed because 1 Master replica(s) failed."


def test_a_job_that_arena_made_is_read_with_its_user() -> None:
    job = JobReader(KIND).read((FIXTURES / "objects" / "arena-pytorch-dist.json").read_bytes())
    names = [replica.name for replica in job.replicas]
    assert names == ["pytorch-dist-master-0", "pytorch-dist-worker-0", "pytorch-dist-worker-1"]
    assert job.user == "admin"


def test_policy_fields_directly_in_the_spec_are_read() -> None:
    job = pytorch_job("bert")
    job["spec"] |= {"suspend": True, "backoffLimit": 4, "schedulingPolicy": {"queue": "old"}}
    read = KIND.parse(job)
    assert (read.is_suspended, read.restarts_allowed, read.queue) == (True, 4, "old")


def test_only_an_elastic_job_can_run_with_fewer_than_all_pods() -> None:
    job = pytorch_job("bert", workers=4)
    job["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}}
    assert KIND.parse(job).min_instances is None
    job["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 4}
    assert KIND.parse(job).min_instances == 2


def test_queue_and_priority_are_read_from_the_policy_or_kueue_labels() -> None:
    job = pytorch_job("bert")
    job["spec"]["runPolicy"] = {"schedulingPolicy": {"queue": "gang", "priorityClass": "urgent"}}
    read = KIND.parse(job)
    assert (read.queue, read.priority) == ("gang", "urgent")
    kueue = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/priority-class": "batch"}
    read = KIND.parse(pytorch_job("bert", labels=kueue))
    assert (read.queue, read.priority) == ("team-a", "batch")


def test_a_job_suspended_by_the_kube_queue_annotation_is_queued() -> None:
    job = pytorch_job("bert", annotations={"scheduling.x-k8s.io/suspend": "true"})
    assert (KIND.parse(job).is_suspended, KIND.parse(job).queue) == (True, "kube-queue")
    job["metadata"]["annotations"]["scheduling.x-k8s.io/suspend"] = "false"
    assert (KIND.parse(job).is_suspended, KIND.parse(job).queue) == (False, "")


@pytest.mark.parametrize("name", ["arena-pytorch-dist", "arena-pytorch-dist-git"])
def test_requested_gpus_match_the_arena_annotation(name: str) -> None:
    obj = json.loads((FIXTURES / "objects" / f"{name}.json").read_bytes())
    _, jobs = join([], [], [KIND.parse(obj)])
    assert jobs[0].gpus_requested == int(obj["metadata"]["annotations"]["requestGPUsOfJobOwner"])


def test_a_job_without_operator_status_is_detected() -> None:
    job = pytorch_job("bert")
    assert not KIND.parse(job).has_status
    assert KIND.parse({**job, "status": {"conditions": []}}).has_status


def test_only_pods_of_the_two_pytorch_operators_are_recognised() -> None:
    old = {"pytorch-job-name": "bert", "pytorch-replica-type": "worker", "pytorch-replica-index": "3"}
    new = {
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "3",
    }
    for labels in (old, new):
        pod = a_pod("x", labels)
        assert (KIND.job_of(pod), KIND.instance_of(pod)) == ("bert", ("worker", 3))
    assert KIND.job_of(a_pod("x", {**new, "training.kubeflow.org/operator-name": "tfjob-controller"})) == ""


TF_JOB = TFJob()


def test_tfjob_replicas_are_parsed_by_role_and_the_chief_replica_is_chief() -> None:
    job = jobs_in("tfjob-running")[0]
    names = [replica.name for replica in job.replicas]
    assert names == ["dist-mnist-chief-0", "dist-mnist-ps-0", "dist-mnist-worker-0", "dist-mnist-worker-1"]
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
    assert [each.instance for each in TF_JOB.replicas(obj) if each.is_chief] == ([chief] if chief else [])


def test_an_empty_role_has_one_pod_and_a_missing_spec_has_none() -> None:
    assert [
        each.name
        for each in TF_JOB.replicas({"metadata": {"name": "x"}, "spec": {"tfReplicaSpecs": {"Worker": None}}})
    ] == ["x-worker-0"]
    assert TF_JOB.replicas({"metadata": {"name": "x"}}) == ()


def test_pods_of_the_older_tf_operator_are_recognised() -> None:
    labels = {"tf-job-name": "mnist", "tf-replica-type": "ps", "tf-replica-index": "1"}
    pod = a_pod("mnist-ps-1", labels)
    assert (TF_JOB.job_of(pod), TF_JOB.instance_of(pod)) == ("mnist", ("ps", 1))
    assert TF_JOB.instance_of(a_pod("mnist-ps-x", {"tf-job-name": "mnist"})) is None


def test_a_tfjob_cannot_be_created() -> None:
    assert TF_JOB.title not in {kind.title for kind in CREATABLE}


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
    places = [(each.instance, each.ranks, each.is_chief) for each in found]
    assert places == [("ps-0", (0,), True), ("worker-0", (1,), False), ("worker-1", (2,), False)]


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
