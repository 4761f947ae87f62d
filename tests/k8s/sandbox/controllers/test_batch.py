"""Plans for Jobs, TrainJobs and Deployments: pods by index and parallelism, retries, suspension, the end."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from k8s.kinds.batch_job import INDEX, BatchJob
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.models.resources import TRAINING_RUNTIMES
from k8s.sandbox.controllers import batch, trainer
from k8s.sandbox.controllers.operators import KINDS
from k8s.sandbox.controllers.reconcile import GANG, ObservedJob, Plan
from k8s.sandbox.controllers.trainer import TORCH_DISTRIBUTED, merged
from tests.k8s.sandbox.controllers.test_replicas import UID, ago, as_pod, condition_statuses, stored
from tests.k8s.sandbox.live.running import Manifest, batch_job


def decide(job: Manifest, pods: list[Manifest]) -> Plan:
    return batch.decide(ObservedJob(BatchJob(), job, pods))


def numbered(number: int, phase: str, code: int | None = None, **rest: Any) -> Manifest:
    return as_pod(f"sweep-{number}", phase, code, annotations={batch.NUMBER: str(number)}, **rest)


def indexed(index: int, phase: str, name: str = "") -> Manifest:
    return as_pod(name or f"sweep-{index}-x", phase, annotations={INDEX: str(index)})


def test_an_indexed_job_starts_the_numbers_that_are_missing() -> None:
    job = stored(batch_job("sweep", "true", completions=4, parallelism=2, completionMode="Indexed"))
    pods = [indexed(0, "Succeeded"), indexed(1, "Running")]
    plan = decide(job, pods)
    assert [each["metadata"]["annotations"][INDEX] for each in plan.create] == ["2"]
    made = plan.create[0]
    assert made["metadata"]["name"].startswith("sweep-2-")
    assert made["spec"]["hostname"] == "sweep-2"
    assert (plan.status["succeeded"], plan.status["completedIndexes"]) == (1, "0")


def test_repeated_decisions_create_the_same_pod_names() -> None:
    job = stored(batch_job("sweep", "true", completions=2, parallelism=2))
    names = [[each["metadata"]["name"] for each in decide(job, []).create] for _ in range(2)]
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


def test_a_failed_pod_is_replaced_after_a_while() -> None:
    job = stored(batch_job("sweep", "true"))
    fresh = decide(job, [numbered(0, "Failed", 1)])
    assert fresh.create == []
    assert 8 < (fresh.requeue_after_s or 0) <= 10.1
    old = numbered(0, "Failed", 1)
    old["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = ago(11)
    assert len(decide(job, [old]).create) == 1


@pytest.mark.parametrize(
    ("spec", "phases", "condition", "reason"),
    [
        ({}, ["Succeeded"], "Complete", "CompletionsReached"),
        ({"completions": 2, "parallelism": 2}, ["Succeeded", "Succeeded"], "Complete", "CompletionsReached"),
        ({"backoffLimit": 0}, ["Failed"], "Failed", "BackoffLimitExceeded"),
        ({"backoffLimit": 1}, ["Failed", "Failed", "Running"], "Failed", "BackoffLimitExceeded"),
    ],
)
def test_a_job_ends(spec: Manifest, phases: list[str], condition: str, reason: str) -> None:
    pods = [numbered(index, phase, 1) for index, phase in enumerate(phases)]
    plan = decide(stored(batch_job("sweep", "true", **spec)), pods)
    last = plan.status["conditions"][-1]
    assert (last["type"], last["status"], last["reason"]) == (condition, "True", reason)
    assert all(each["status"]["phase"] == "Running" for each in plan.delete)
    assert "active" not in plan.status


def test_succeeded_indexes_stay_counted_after_their_pods_are_gone() -> None:
    job = batch_job("sweep", "true", completions=3, parallelism=1, completionMode="Indexed")
    first = decide(stored(job), [indexed(0, "Succeeded"), indexed(1, "Succeeded")])
    assert first.status["completedIndexes"] == "0-1"
    second = decide(stored(job, first.status), [])
    assert second.status["succeeded"] == 2
    assert [each["metadata"]["annotations"][INDEX] for each in second.create] == ["2"]


@pytest.mark.parametrize(
    ("spec", "phases", "created"),
    [
        ({}, [], 1),
        ({"parallelism": 0}, [], 0),
        ({"parallelism": 3}, [], 3),
        ({"parallelism": 3}, ["Running"], 2),
        ({"parallelism": 3}, ["Succeeded", "Running"], 0),
        ({"parallelism": 2, "completions": 5}, [], 2),
        ({"parallelism": 4, "completions": 2}, [], 2),
        ({"parallelism": 2, "completions": 5}, ["Succeeded", "Running"], 1),
        ({"parallelism": 2, "completions": 2}, ["Succeeded", "Running"], 0),
        ({"parallelism": 3, "completions": 4}, ["Succeeded", "Succeeded", "Succeeded"], 1),
        ({"parallelism": 2, "completions": 0}, [], 0),
    ],
)
def test_a_job_has_as_many_pods_as_may_run_and_are_still_needed(
    spec: Manifest, phases: list[str], created: int
) -> None:
    pods = [numbered(index, phase) for index, phase in enumerate(phases)]
    plan = decide(stored(batch_job("sweep", "true", **spec)), pods)
    assert (len(plan.create), plan.delete) == (created, [])
    gangs = {each["metadata"]["annotations"][GANG] for each in plan.create}
    assert gangs <= {str(created + phases.count("Running"))}


def test_pods_beyond_the_parallelism_are_removed() -> None:
    pods = [numbered(index, "Running") for index in range(3)]
    plan = decide(stored(batch_job("sweep", "true", parallelism=1, completions=9)), pods)
    assert [each["metadata"]["name"] for each in plan.delete] == ["sweep-1", "sweep-2"]
    assert plan.create == []


def test_a_job_that_needs_one_success_is_complete_when_its_other_pods_have_ended() -> None:
    job = stored(batch_job("sweep", "true", parallelism=2))
    pods = [numbered(0, "Succeeded"), numbered(1, "Running")]
    assert "conditions" not in decide(job, pods).status
    pods[1]["status"]["phase"] = "Failed"
    plan = decide(job, pods)
    assert condition_statuses(plan) == {"Complete": "True"}
    assert (plan.status["succeeded"], plan.status["failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("deleted", "suspend", "started_s", "failed"),
    [(False, False, None, 1), (True, False, 90, 1), (True, True, 90, 0), (True, False, 10, 0)],
)
def test_a_pod_that_a_suspension_ended_has_not_failed(
    deleted: bool, suspend: bool, started_s: int | None, failed: int
) -> None:
    status = {} if started_s is None else {"startTime": ago(started_s)}
    _held_pod_has_failed(status, failed, deleted=deleted, suspend=suspend)


def test_a_pod_of_a_job_that_is_still_suspended_has_not_failed() -> None:
    status = {"conditions": [{"type": "Suspended", "status": "True"}]}
    _held_pod_has_failed(status, 0, deleted=True, suspend=False)


def _held_pod_has_failed(status: Manifest, failed: int, *, deleted: bool, suspend: bool) -> None:
    """See how many of a Job's pods, of which one ended a minute after it was made, count as failed."""
    job = stored(batch_job("held", "true", suspend=suspend, backoffLimit=0, completions=1, parallelism=1))
    pod = numbered(0, "Failed", 143, creationTimestamp=ago(60))
    if deleted:
        pod["metadata"]["deletionTimestamp"] = ago(0)
    plan = decide({**job, "status": status}, [pod])
    assert plan.status.get("failed", 0) == failed
    assert any(each["type"] == "Failed" for each in plan.status.get("conditions", ())) is bool(failed)


BOARD_LABELS = {"app": "board"}


def deployment(replicas: int = 1, image: str = "a", **spec: Any) -> Manifest:
    template = {"metadata": {"labels": BOARD_LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}
    meta = {"name": "board", "namespace": "default", "uid": "u", "generation": 3}
    return {"metadata": meta, "spec": {"replicas": replicas, "template": template, **spec}}


def decide_for(obj: Manifest, pods: list[Manifest]) -> Plan:
    return batch.decide_deployment(ObservedJob(KINDS[-1], obj, pods))


def pods_of(obj: Manifest, phase: str = "Running") -> list[Manifest]:
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    made = decide_for(obj, []).create
    for pod in made:
        pod["metadata"]["uid"] = pod["metadata"]["name"]
    return [{**pod, "status": {"phase": phase, "conditions": [ready]}} for pod in made]


def test_a_new_deployment_gets_its_pods_and_the_same_ones_the_second_time() -> None:
    plan = decide_for(deployment(2), [])
    names = [pod["metadata"]["name"] for pod in plan.create]
    assert len(set(names)) == 2
    assert names == [pod["metadata"]["name"] for pod in decide_for(deployment(2), []).create]
    assert all(pod["metadata"]["labels"].keys() == {"app", batch.HASH} for pod in plan.create)
    assert plan.create[0]["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    (condition,) = plan.status.pop("conditions")
    assert (condition["type"], condition["status"]) == ("Available", "False")
    assert plan.status == {"unavailableReplicas": 2, "observedGeneration": 3}


def test_a_deployment_whose_pods_are_ready_needs_nothing() -> None:
    plan = decide_for(deployment(2), pods_of(deployment(2)))
    assert (plan.create, plan.delete) == ([], [])
    (condition,) = plan.status.pop("conditions")
    assert (condition["type"], condition["status"]) == ("Available", "True")
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 2)
    assert plan.status == {**counts, "observedGeneration": 3}


def test_ended_and_outdated_pods_are_replaced() -> None:
    (ended,) = pods_of(deployment(), "Failed")
    plan = decide_for(deployment(), [ended])
    assert (plan.delete, plan.create) == ([ended], [])
    (outdated,) = pods_of(deployment())
    plan = decide_for(deployment(image="b"), [outdated])
    assert (plan.delete, len(plan.create)) == ([outdated], 1)
    assert plan.create[0]["metadata"]["name"] != outdated["metadata"]["name"]


def test_fewer_replicas_delete_pods() -> None:
    assert len(decide_for(deployment(1), pods_of(deployment(3))).delete) == 2


CLUSTER, NEAR = TRAINING_RUNTIMES


def train_job(status: Manifest | None = None, **spec: Any) -> Manifest:
    meta = {"name": "bert", "namespace": "default", "uid": UID, "creationTimestamp": ago(100)}
    spec.setdefault("runtimeRef", {"name": "torch-distributed"})
    return {"metadata": meta, "spec": spec, "status": status or {}}


def decide_train_job(job: Manifest, *pods: Manifest, known: Any = None) -> Plan:
    runtimes = known or {CLUSTER: [deepcopy(TORCH_DISTRIBUTED)]}
    return trainer.decide(ObservedJob(TrainJob(), job, pods, known=runtimes))


def pod_spec(plan: Plan) -> Manifest:
    found: Manifest = plan.create[0]["spec"]
    return found


def env_of(plan: Plan) -> dict[str, Any]:
    variables = pod_spec(plan)["containers"][0]["env"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in variables}


def conditions(plan: Plan) -> dict[str, str]:
    return {each["type"]: f"{each['status']} {each['reason']}" for each in plan.status["conditions"]}


def test_a_train_jobs_nodes_run_its_command_and_know_where_they_meet() -> None:
    asked = {"command": ["torchrun"], "args": ["train.py"], "image": "mine"}
    plan = decide_train_job(train_job(trainer={"numNodes": 2, "numProcPerNode": 4, **asked}))
    assert [pod["metadata"]["name"] for pod in plan.create] == ["bert-node-0-0", "bert-node-0-1"]
    container = pod_spec(plan)["containers"][0]
    assert asked.items() <= container.items()
    index = "batch.kubernetes.io/job-completion-index"
    assert env_of(plan) == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "bert-node-0-0.bert",
        "PET_MASTER_PORT": "29500",
        "PET_NODE_RANK": {"fieldRef": {"fieldPath": f"metadata.labels['{index}']"}},
    }
    meta = plan.create[1]["metadata"]
    assert meta["labels"] == {
        "jobset.sigs.k8s.io/jobset-name": "bert",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/job-index": "0",
        index: "1",
    }
    assert meta["ownerReferences"][0]["kind"] == "TrainJob"


@pytest.mark.parametrize(
    ("limits", "processes"),
    [({}, "auto"), ({"cpu": "2500m"}, "2"), ({"cpu": "500m"}, "1"), ({"cpu": "8", "nvidia.com/gpu": 4}, "4")],
)
def test_a_node_runs_one_process_per_gpu_or_else_per_cpu_core(limits: Manifest, processes: str) -> None:
    plan = decide_train_job(train_job(trainer={"resourcesPerNode": {"limits": limits} if limits else None}))
    assert env_of(plan)["PET_NPROC_PER_NODE"] == processes


def test_a_variable_of_the_job_counts_more_than_the_runtimes() -> None:
    own = [{"name": "PET_NNODES", "value": "9"}, {"name": "LR", "value": "1"}]
    assert env_of(decide_train_job(train_job(trainer={"env": own})))["PET_NNODES"] == "9"


def test_patches_of_the_runtime_reach_the_pods() -> None:
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "workspace"}}]}
    mounts = {"containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}
    pods = {"template": {"spec": {**volumes, **mounts}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": pods}}]}}}
    patches = [{"manager": "me", "trainingRuntimeSpec": patch}]
    spec = pod_spec(decide_train_job(train_job(trainer={"command": ["train"]}, runtimePatches=patches)))
    assert spec["volumes"] == volumes["volumes"]
    (container,) = spec["containers"]
    assert container["command"] == ["train"]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]


def test_lists_are_merged_by_name_and_replaced_where_nothing_is_named() -> None:
    found = merged([{"name": "a", "x": 1}], [{"name": "a", "y": 2}, {"name": "b"}])
    assert found == [{"name": "a", "x": 1, "y": 2}, {"name": "b"}]
    assert merged(["x"], ["y"]) == ["y"]
    assert merged({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}}) == {"a": 1, "b": {"c": 1, "d": 2}}


@pytest.mark.parametrize(
    ("asked", "policy", "namespace", "is_found"),
    [
        ({"name": "mine", "kind": "TrainingRuntime"}, {"torch": {}}, "default", True),
        ({"name": "mine", "kind": "TrainingRuntime"}, {"torch": {}}, "other", False),
        ({"name": "mine"}, {"torch": {}}, "default", False),
        ({"name": "mine", "kind": "TrainingRuntime"}, {}, "default", True),
        ({"name": "mine", "kind": "TrainingRuntime"}, {"mpi": {}}, "default", False),
    ],
)
def test_a_training_runtime_is_found_by_kind_and_namespace(
    asked: Manifest, policy: Manifest, namespace: str, is_found: bool
) -> None:
    runtime = deepcopy(TORCH_DISTRIBUTED)
    runtime["metadata"] = {"name": "mine", "namespace": namespace}
    runtime["spec"]["mlPolicy"] = policy
    plan = decide_train_job(train_job(runtimeRef=asked), known={NEAR: [runtime]})
    assert bool(plan.create) is is_found
    assert conditions(plan) == ({} if is_found else {"Failed": "True TrainingRuntimeNotSupported"})


def node(index: int, phase: str) -> Manifest:
    made = decide_train_job(train_job(trainer={"numNodes": index + 1})).create[index]
    return {**made, "metadata": {**made["metadata"], "uid": f"u{index}"}, "status": {"phase": phase}}


def test_a_train_job_ends_with_its_nodes() -> None:
    job = train_job(trainer={"numNodes": 2})
    assert conditions(decide_train_job(job, node(0, "Succeeded"), node(1, "Running"))) == {}
    done = decide_train_job(job, node(0, "Succeeded"), node(1, "Succeeded"))
    assert conditions(done) == {"Complete": "True AllJobsCompleted"}
    assert decide_train_job(train_job(done.status)).create == []
    failed = decide_train_job(job, node(0, "Running"), node(1, "Failed"))
    assert conditions(failed) == {"Failed": "True FailedJobs"}
    assert "bert-node-0-1" in failed.status["conditions"][0]["message"]
    assert [pod["metadata"]["name"] for pod in failed.delete] == ["bert-node-0-0"]


def test_a_failed_node_is_replaced_within_the_limit_of_its_runtime() -> None:
    runtime = deepcopy(TORCH_DISTRIBUTED)
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 1
    again = decide_train_job(train_job(), node(0, "Failed"), known={CLUSTER: [runtime]})
    assert (again.replaced, conditions(again)) == (["u0"], {})


def test_suspension_and_deadline_of_a_train_job() -> None:
    held = decide_train_job(train_job(suspend=True, activeDeadlineSeconds=50), node(0, "Running"))
    assert conditions(held) == {"Suspended": "True Suspended"}
    assert (len(held.delete), held.create) == (1, [])
    resumed = decide_train_job(train_job(held.status, activeDeadlineSeconds=50))
    assert conditions(resumed) == {"Suspended": "False Resumed"}
    assert len(resumed.create) == 1
    late = decide_train_job(train_job(activeDeadlineSeconds=50), node(0, "Running"))
    assert conditions(late) == {"Failed": "True DeadlineExceeded"}
    assert len(late.delete) == 1


def test_a_suspended_train_job_is_never_late() -> None:
    held = {"type": "Suspended", "status": "True", "reason": "-", "lastTransitionTime": ago(90)}
    plan = decide_train_job(train_job({"conditions": [held]}, suspend=True, activeDeadlineSeconds=50))
    assert "Failed" not in conditions(plan)
