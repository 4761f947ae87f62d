"""Plans for TrainJobs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.models.resources import TRAINING_RUNTIMES
from k8s.sandbox.controllers import trainer
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan
from k8s.sandbox.controllers.trainer import TORCH_DISTRIBUTED, merged
from tests.k8s.sandbox.controllers.test_replicas import UID, ago
from tests.k8s.sandbox.live.running import Manifest

CLUSTER, NEAR = TRAINING_RUNTIMES


def train_job(status: Manifest | None = None, **spec: Any) -> Manifest:
    meta = {"name": "bert", "namespace": "default", "uid": UID, "creationTimestamp": ago(100)}
    spec.setdefault("runtimeRef", {"name": "torch-distributed"})
    return {"metadata": meta, "spec": spec, "status": status or {}}


def decide(job: Manifest, *pods: Manifest, known: Any = None) -> Plan:
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
    plan = decide(train_job(trainer={"numNodes": 2, "numProcPerNode": 4, **asked}))
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
    plan = decide(train_job(trainer={"resourcesPerNode": {"limits": limits} if limits else None}))
    assert env_of(plan)["PET_NPROC_PER_NODE"] == processes


def test_a_variable_of_the_job_counts_more_than_the_runtimes() -> None:
    own = [{"name": "PET_NNODES", "value": "9"}, {"name": "LR", "value": "1"}]
    assert env_of(decide(train_job(trainer={"env": own})))["PET_NNODES"] == "9"


def test_patches_of_the_runtime_reach_the_pods() -> None:
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "workspace"}}]}
    mounts = {"containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}
    pods = {"template": {"spec": {**volumes, **mounts}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": pods}}]}}}
    patches = [{"manager": "me", "trainingRuntimeSpec": patch}]
    spec = pod_spec(decide(train_job(trainer={"command": ["train"]}, runtimePatches=patches)))
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
    plan = decide(train_job(runtimeRef=asked), known={NEAR: [runtime]})
    assert bool(plan.create) is is_found
    assert conditions(plan) == ({} if is_found else {"Failed": "True TrainingRuntimeNotSupported"})


def node(index: int, phase: str) -> Manifest:
    made = decide(train_job(trainer={"numNodes": index + 1})).create[index]
    return {**made, "metadata": {**made["metadata"], "uid": f"u{index}"}, "status": {"phase": phase}}


def test_a_train_job_ends_with_its_nodes() -> None:
    job = train_job(trainer={"numNodes": 2})
    assert conditions(decide(job, node(0, "Succeeded"), node(1, "Running"))) == {}
    done = decide(job, node(0, "Succeeded"), node(1, "Succeeded"))
    assert conditions(done) == {"Complete": "True AllJobsCompleted"}
    assert decide(train_job(done.status)).create == []
    failed = decide(job, node(0, "Running"), node(1, "Failed"))
    assert conditions(failed) == {"Failed": "True FailedJobs"}
    assert "bert-node-0-1" in failed.status["conditions"][0]["message"]
    assert [pod["metadata"]["name"] for pod in failed.delete] == ["bert-node-0-0"]


def test_a_failed_node_is_replaced_within_the_limit_of_its_runtime() -> None:
    runtime = deepcopy(TORCH_DISTRIBUTED)
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 1
    again = decide(train_job(), node(0, "Failed"), known={CLUSTER: [runtime]})
    assert (again.replaced, conditions(again)) == (["u0"], {})


def test_suspension_and_deadline_of_a_train_job() -> None:
    held = decide(train_job(suspend=True, activeDeadlineSeconds=50), node(0, "Running"))
    assert conditions(held) == {"Suspended": "True Suspended"}
    assert (len(held.delete), held.create) == (1, [])
    resumed = decide(train_job(held.status, activeDeadlineSeconds=50))
    assert conditions(resumed) == {"Suspended": "False Resumed"}
    assert len(resumed.create) == 1
    late = decide(train_job(activeDeadlineSeconds=50), node(0, "Running"))
    assert conditions(late) == {"Failed": "True DeadlineExceeded"}
    assert len(late.delete) == 1


def test_a_suspended_train_job_is_never_late() -> None:
    held = {"type": "Suspended", "status": "True", "reason": "-", "lastTransitionTime": ago(90)}
    plan = decide(train_job({"conditions": [held]}, suspend=True, activeDeadlineSeconds=50))
    assert "Failed" not in conditions(plan)
