"""TrainJobs, JobSets and Kubernetes' own Jobs: their manifests, and what their conditions tell."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from k8s.kinds.batch_job import INDEX, BatchJob
from k8s.kinds.job_set import JobSet
from k8s.kinds.job_spec import EnvSource, JobSpec
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.kinds.ray import RayCluster, RayJob
from k8s.kinds.volcano_job import VolcanoJob
from k8s.models import Pod, Reader
from tests.k8s.kinds.operator_objects import a_pod, jobs_in, objects
from tests.support.objects import Object, batch_job

TRAIN, SET = TrainJob(), JobSet()
SUSPENDED = {"type": "Suspended", "lastTransitionTime": "2026-11-20T12:00:00Z"}


def train_job(**status: Any) -> dict[str, Any]:
    return {**objects("trainjob-restarted")[0], "status": status}


def test_a_train_job_starts_at_resume_or_creation_and_not_while_suspended() -> None:
    resumed = TRAIN.parse(train_job(conditions=[{**SUSPENDED, "status": "False"}]))
    assert resumed.started is not None and resumed.started.hour == 12
    plain = TRAIN.parse(train_job(jobsStatus=[]))
    assert plain.started == plain.meta.creation_timestamp
    assert TRAIN.parse(train_job()).started is None
    asleep = train_job(conditions=[{**SUSPENDED, "status": "True"}])
    asleep["spec"]["suspend"] = True
    assert (TRAIN.parse(asleep).started, TRAIN.parse(asleep).is_suspended) == (None, True)


def test_the_queue_and_replicas_of_a_train_job_are_parsed() -> None:
    job = jobs_in("trainjob-restarted")[0]
    assert job.queue == "team-a"
    assert [each.instance for each in job.replicas] == ["node-0", "node-1", "dataset-initializer-0"]
    assert [each.ranks[:2] for each in job.replicas] == [(0, 1), (8, 9), ()]
    assert [each.ranks_proof for each in job.replicas] == ["assumed", "assumed", "none"]


def test_without_numbers_a_train_job_has_one_node_and_no_ranks() -> None:
    (node,) = TRAIN.replicas({"metadata": {"name": "a"}, "spec": {"runtimeRef": {"name": "torch"}}})
    assert (node.instance, node.ranks, node.ranks_proof) == ("node-0", (), "none")


def test_the_number_of_ranks_of_a_train_job_is_bounded() -> None:
    trainer = {"numNodes": 4096, "numProcPerNode": 999_999}
    found = TRAIN.replicas({"metadata": {"name": "a"}, "spec": {"trainer": trainer}})
    assert sum(len(each.ranks) for each in found) <= 2**16
    assert {each.ranks_proof for each in found} == {"none"}


@pytest.mark.parametrize(
    ("trainer_status", "words"),
    [
        ({"progressPercentage": 61, "estimatedRemainingSeconds": 1450}, "61 %, 24 min left"),
        ({"progressPercentage": 0}, "0 %"),
        ({"estimatedRemainingSeconds": 59}, "59 s left"),
        ({"estimatedRemainingSeconds": 3600}, "1 h 0 min left"),
        ({"estimatedRemainingSeconds": 7320}, "2 h 2 min left"),
        ({"metrics": [{"name": "loss", "value": "0.31"}]}, "loss 0.31"),
        ({"lastUpdatedTime": "2026-11-20T11:00:00Z"}, ""),
        (None, ""),
    ],
)
def test_the_progress_of_a_train_job_comes_from_its_trainer_status(trainer_status: Any, words: str) -> None:
    assert TRAIN.parse(train_job(trainerStatus=trainer_status)).progress == words


def test_progress_shows_at_most_two_metrics() -> None:
    assert jobs_in("trainjob-restarted")[0].progress == "61 %, 24 min left, loss 0.31, eval_accuracy 0.77"


def test_restarts_and_allowed_restarts_of_a_jobset_are_parsed() -> None:
    job = jobs_in("jobset-coordinated")[0]
    assert (job.restarts, job.restarts_allowed, job.priority) == (2, 3, "low")
    obj = objects("jobset-coordinated")[0]
    del obj["spec"]["failurePolicy"]
    assert SET.parse(obj).restarts_allowed == 0


def test_the_chief_of_a_jobset_without_a_coordinator_is_not_an_initializer() -> None:
    obj = objects("trainjob-restarted")[1]
    assert [each.instance for each in SET.replicas(obj) if each.is_chief] == ["node-0"]
    obj["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "dataset-initializer", "status": "Ready"}]
    assert [each.instance for each in SET.replicas(obj) if each.is_chief] == ["dataset-initializer-0"]


def test_a_jobset_pod_without_a_completion_index_has_no_instance() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "a", "jobset.sigs.k8s.io/replicatedjob-name": "w"}
    assert SET.instance_of(a_pod("a-w-0-1-xxxxx", labels)) is None
    labels["batch.kubernetes.io/job-completion-index"] = "1"
    assert SET.instance_of(a_pod("a-w-0-1-xxxxx", labels)) == ("w", 1)


KIND = VolcanoJob()


def test_gang_queue_and_retries_of_a_volcano_job_are_parsed() -> None:
    job = jobs_in("volcano-running")[0]
    assert (job.queue, job.priority, job.min_instances) == ("research", "high", 2)
    assert (job.restarts, job.restarts_allowed) == (1, 5)
    assert {each.type: each.status for each in job.conditions} == {"Pending": "False", "Running": "True"}
    assert job.started is not None and job.started.minute == 2


def test_volcano_pods_have_ranks_only_with_the_pytorch_plugin() -> None:
    obj = objects("volcano-running")[0]
    found = [(each.ranks, each.ranks_proof) for each in KIND.replicas(obj)]
    assert found == [((rank,), "assumed") for rank in range(3)]
    del obj["spec"]["plugins"]
    assert {each.ranks_proof for each in KIND.replicas(obj)} == {"none"}


def test_volcano_defaults_apply_to_tasks_without_a_name_or_replicas() -> None:
    tasks = [{"replicas": 1, "template": {}}, {"name": "idle", "template": {}}]
    found = KIND.replicas({"metadata": {"name": "a"}, "spec": {"tasks": tasks}})
    assert [each.name for each in found] == ["a-default0-0"]
    job = KIND.parse({"metadata": {"name": "a"}, "spec": {"tasks": tasks}})
    assert (job.min_instances, job.restarts_allowed, job.has_status) == (None, 3, False)


def test_a_pod_only_scheduled_by_volcano_belongs_to_no_volcano_job() -> None:
    labels = {"volcano.sh/task-spec": "worker", "volcano.sh/queue-name": "research"}
    assert KIND.job_of(a_pod("bert-worker-0", labels)) == ""


JOB, CLUSTER = RayJob(), RayCluster()


def test_retries_and_program_status_of_a_ray_job_are_parsed() -> None:
    job = jobs_in("rayjob-running")[0]
    assert (job.restarts, job.restarts_allowed, job.progress) == (1, 2, "program running")
    assert (job.queue, job.min_instances, job.is_suspended) == ("team-a", None, False)
    assert job.started is not None


def test_without_a_submitter_the_head_is_the_chief() -> None:
    obj = objects("rayjob-running")[0]
    obj["spec"]["submissionMode"] = "HTTPMode"
    assert [each.instance for each in JOB.replicas(obj) if each.is_chief] == ["head-0"]
    assert JOB.parse(obj).log_file == "/tmp/ray/session_latest/logs/job-driver-tune-x2k9q.log"
    obj["spec"]["submissionMode"] = "SidecarMode"
    assert (JOB.container, JOB.parse(obj).log_file) == ("ray-job-submitter", "")
    assert all(each.role != "submitter" for each in JOB.replicas(obj))


def test_a_ray_job_on_a_shared_cluster_has_only_a_submitter() -> None:
    obj = objects("rayjob-running")[0]
    del obj["spec"]["rayClusterSpec"]
    obj["spec"]["clusterSelector"] = {"ray.io/cluster": "shared"}
    assert [each.instance for each in JOB.replicas(obj)] == ["submitter-0"]


def test_an_autoscaled_ray_cluster_needs_only_its_minimum_pods() -> None:
    job = jobs_in("raycluster-autoscaled")[0]
    assert (len(job.replicas), job.min_instances) == (4, 2)
    assert (job.priority, job.queue, job.outcome) == ("low", "research", None)
    cluster = objects("raycluster-autoscaled")[0]
    cluster["spec"]["suspend"] = True
    assert CLUSTER.parse(cluster).is_suspended
    obj = objects("rayjob-running")[0]
    obj["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    assert JOB.parse(obj).min_instances == 1 + 1 + 2 + 1  # submitter, head, one replica on two hosts, and one


def test_a_cleanup_pod_is_not_counted_as_a_worker() -> None:
    labels = {"ray.io/cluster": "shared", "ray.io/node-type": "redis-cleanup"}
    assert CLUSTER.instance_of(a_pod("shared-redis-cleanup-x", labels)) == ("redis-cleanup", 0)
    assert CLUSTER.instance_of(a_pod("x", {})) is None


TRAIN_JOB = TrainJob()
SPEC = JobSpec(name="llama", image="i:1", command=("torchrun", "train.py"), workers=2, gpus=8, processes=8)


def patched(manifest: Object) -> list[Object]:
    """Return the patched replicated jobs, one for each group of pods."""
    (patch,) = manifest["spec"]["runtimePatches"]
    return list(patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"])


def test_the_trainer_section_has_the_command_nodes_and_resources() -> None:
    body = TRAIN_JOB.manifest(SPEC)["spec"]
    assert body["runtimeRef"]["name"] == "torch-distributed"
    assert (body["trainer"]["numNodes"], body["trainer"]["numProcPerNode"]) == (2, 8)
    assert body["trainer"]["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "8"}
    assert body["trainer"]["command"] == ["torchrun", "train.py"]


def test_slots_select_the_mpi_runtime_and_patch_the_launcher() -> None:
    manifest = TRAIN_JOB.manifest(replace(SPEC, slots=4))
    assert manifest["spec"]["runtimeRef"]["name"] == "deepspeed-distributed"
    assert manifest["spec"]["trainer"]["numProcPerNode"] == 4
    assert [each["name"] for each in patched(manifest)] == ["launcher", "node"]


def test_a_working_directory_is_entered_by_the_command() -> None:
    manifest = TRAIN_JOB.manifest(replace(SPEC, working_dir="/workspace"))
    command = manifest["spec"]["trainer"]["command"]
    assert command[:2] == ["sh", "-c"] and command[3:] == ["/workspace", "torchrun", "train.py"]


@pytest.mark.parametrize(
    ("name", "kind", "reference"),
    [
        ("torchtune-llama3", "ClusterTrainingRuntime", "torchtune-llama3"),
        ("trainingruntime/mine", "TrainingRuntime", "mine"),
        ("", "ClusterTrainingRuntime", "torch-distributed"),
    ],
)
@pytest.mark.parametrize("slots", [None, 4])
def test_a_runtime_is_named_and_needed(name: str, kind: str, reference: str, slots: int | None) -> None:
    spec = replace(SPEC, runtime=name, slots=slots, processes=1 if slots else 8)
    manifest = TRAIN_JOB.manifest(spec)
    if slots and not name:
        reference = "deepspeed-distributed"
    expected = {"apiGroup": "trainer.kubeflow.org", "kind": kind, "name": reference}
    assert manifest["spec"]["runtimeRef"] == expected
    ((resource, needed, field),) = TRAIN_JOB.needs(manifest)
    assert (resource.kind, needed, field) == (kind, reference, "runtime")


def test_an_explicit_mpi_runtime_creates_an_mpi_train_job() -> None:
    manifest = TRAIN_JOB.manifest(replace(SPEC, runtime="deepspeed-distributed", processes=2))
    assert [each["name"] for each in patched(manifest)] == ["launcher", "node"]


def test_whole_secrets_cannot_be_named_and_single_keys_can() -> None:
    key, whole = EnvSource(True, "wandb", "k", "WANDB"), EnvSource(True, "all")
    manifest = TRAIN_JOB.manifest(replace(SPEC, env_from=(key, whole)))
    assert "envFrom" not in json.dumps(manifest) and "secretKeyRef" in json.dumps(manifest)
    assert TRAIN_JOB.unsupported(replace(SPEC, env_from=(key,))) == {}
    assert list(TRAIN_JOB.unsupported(replace(SPEC, env_from=(key, whole)))) == ["env_from"]


def test_code_sync_is_unsupported_for_train_jobs() -> None:
    spec = replace(SPEC, sync_mode="git", sync_source="https://host.example/a.git")
    assert TRAIN_JOB.manifest(spec) == TRAIN_JOB.manifest(SPEC)
    assert list(TRAIN_JOB.unsupported(spec)) == ["sync_mode", "sync_source"]


BATCH = BatchJob()
FAILED = {"type": "Failed", "status": "True"}


@pytest.mark.parametrize(
    ("parallelism", "completions", "pods"),
    [(3, 3, 3), (2, 10, 2), (10, 2, 2), (4, None, 4), (None, None, 1), (None, 5, 1), (0, 3, 0), (-1, 3, 0)],
)
def test_replicas_are_parallel_pods(parallelism: int | None, completions: int | None, pods: int) -> None:
    job = batch_job("sweep", parallelism=parallelism, completions=completions)
    assert len(BATCH.replicas(job)) == pods


def test_a_pod_of_an_indexed_job_has_its_completion_index() -> None:
    replica = BATCH.replicas(batch_job("sweep", pods=3, indexed=True))[2]
    assert dict(replica.env) == {"JOB_COMPLETION_INDEX": "2"}
    assert dict(replica.labels)[INDEX] == "2"
    assert BATCH.replicas(batch_job("sweep", pods=3))[2].env == ()


@pytest.mark.parametrize(
    ("parallelism", "completed", "failed", "indexes"),
    [
        (3, None, None, [0, 1, 2]),
        (2, "0-3,5", "4", [6, 7]),
        (2, "0-8", "", [8, 9]),
        (3, "0-9", None, [7, 8, 9]),
        (2, "1", None, [0, 2]),
        (2, "nonsense,3-,-4,99999999999,0-999999999", None, [8, 9]),
    ],
)
def test_replicas_of_an_indexed_job_are_its_next_unfinished_indexes(
    parallelism: int, completed: str | None, failed: str | None, indexes: list[int]
) -> None:
    job = batch_job("sweep", indexed=True, parallelism=parallelism, completions=10)
    job["status"] = {"completedIndexes": completed, "failedIndexes": failed}
    found = BATCH.replicas(job)
    assert [replica.index for replica in found] == indexes
    assert [replica.is_chief for replica in found] == [True] + [False] * (parallelism - 1)


def test_failed_indexes_are_part_of_the_outcome_reason() -> None:
    job = batch_job("sweep", indexed=True)
    failed = FAILED | {"message": "Job has failed indexes"}
    job["status"] = {"failedIndexes": "1,3-5", "conditions": [failed]}
    assert BATCH.parse(job).outcome_reason == "Job has failed indexes; failed indexes: 1,3-5"


@pytest.mark.parametrize(
    ("limit", "failures", "restarts", "allowed"),
    [(6, 2, 2, 6), (0, 1, 0, 0), (None, 3, 3, None), (2**31 - 1, 3, 3, None), (6, None, 0, 6)],
)
def test_failed_pods_count_as_restarts_unless_backoff_limit_is_zero(
    limit: int | None, failures: int | None, restarts: int, allowed: int | None
) -> None:
    job = batch_job("sweep", backoffLimit=limit)
    job["status"] = {"failed": failures}
    assert (BATCH.parse(job).restarts, BATCH.parse(job).restarts_allowed) == (restarts, allowed)


def test_a_suspended_job_is_parsed_with_the_progress_of_succeeded_pods() -> None:
    job = batch_job("sweep", pods=10, suspend=True)
    job["status"] = {"succeeded": 4}
    assert (BATCH.parse(job).is_suspended, BATCH.parse(job).progress) == (True, "4 of 10 done")


def test_pods_of_a_volcano_job_are_not_claimed_by_batch_jobs() -> None:
    for api_version, name in (("batch/v1", "vgg"), ("batch.volcano.sh/v1alpha1", "")):
        assert BATCH.job_of(a_pod("vgg-0", {}, kind="Job", apiVersion=api_version, name="vgg")) == name


def test_the_completion_index_is_read_from_labels_or_annotations() -> None:
    for where in ("labels", "annotations"):
        body = {"metadata": {"name": "x", where: {INDEX: "4"}}}
        assert BATCH.instance_of(Reader[Pod](Pod).read(json.dumps(body).encode())) == ("pod", 4)
    assert BATCH.instance_of(Reader[Pod](Pod).read(b'{"metadata": {"name": "x"}}')) is None


def test_a_multi_pod_job_has_a_headless_service_that_publishes_unready_addresses() -> None:
    spec = JobSpec(name="bert", namespace="lab", image="i", command=("x",), workers=2)
    ((_, service),) = BatchJob().owned_objects(spec)
    assert service["metadata"] == {"name": "bert", "namespace": "lab"}
    assert service["spec"]["selector"] == {"job-name": "bert"}
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert BatchJob().manifest(spec)["spec"]["template"]["spec"]["subdomain"] == "bert"
