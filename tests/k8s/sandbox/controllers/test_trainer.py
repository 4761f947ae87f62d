"""Plans for TrainJobs and their JobSets."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from k8s.kinds.job_set import JOB_SETS, JobSet
from k8s.kinds.kubeflow.train_job import TrainJob
from k8s.models.resources import JOBS, SERVICES, TRAINING_RUNTIMES
from k8s.sandbox.controllers import jobset, trainer
from k8s.sandbox.controllers.reconcile import ObservedJob, Plan
from k8s.sandbox.controllers.trainer import TORCH_DISTRIBUTED, merged
from tests.k8s.sandbox.controllers.test_replicas import UID, ago
from tests.k8s.sandbox.live.running import Manifest

CLUSTER, NEAR = TRAINING_RUNTIMES


def train_job(status: Manifest | None = None, **spec: Any) -> Manifest:
    meta = {"name": "bert", "namespace": "default", "uid": UID, "creationTimestamp": ago(100)}
    spec.setdefault("runtimeRef", {"name": "torch-distributed"})
    return {"metadata": meta, "spec": spec, "status": status or {}}


def decide(job: Manifest, *job_sets: Manifest, known: Any = None) -> Plan:
    runtimes = known or {CLUSTER: [deepcopy(TORCH_DISTRIBUTED)]}
    return trainer.decide(ObservedJob(TrainJob(), job, (), children={JOB_SETS: job_sets}, known=runtimes))


def pod_spec(plan: Plan) -> Manifest:
    """Return the pods' spec in the JobSet that a plan makes."""
    ((resource, made),) = plan.objects
    assert resource == JOB_SETS
    (group,) = made["spec"]["replicatedJobs"]
    found: Manifest = group["template"]["spec"]["template"]["spec"]
    return found


def env_of(plan: Plan) -> dict[str, Any]:
    variables = pod_spec(plan)["containers"][0]["env"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in variables}


def conditions(plan: Plan) -> dict[str, str]:
    return {each["type"]: f"{each['status']} {each['reason']}" for each in plan.status["conditions"]}


def test_a_train_jobs_nodes_run_its_command_and_know_where_they_meet() -> None:
    asked = {"command": ["torchrun"], "args": ["train.py"], "image": "mine"}
    plan = decide(train_job(trainer={"numNodes": 2, "numProcPerNode": 4, **asked}))
    ((_, made),) = plan.objects
    group = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (group["parallelism"], group["completions"]) == (2, 2)
    container = pod_spec(plan)["containers"][0]
    assert asked.items() <= container.items()
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert env_of(plan) == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "bert-node-0-0.bert",
        "PET_MASTER_PORT": "29500",
        "PET_NODE_RANK": {"fieldRef": {"fieldPath": index}},
    }
    assert made["metadata"]["name"] == "bert"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"


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
    assert bool(plan.objects) is is_found
    assert conditions(plan) == ({} if is_found else {"Failed": "True TrainingRuntimeNotSupported"})


def test_a_train_job_takes_its_status_from_its_job_set() -> None:
    counts = [{"name": "node", "active": 1}]
    meta = {"metadata": {"name": "bert"}}
    running = {**meta, "spec": {"suspend": True}, "status": {"replicatedJobsStatus": counts}}
    plan = decide(train_job(), running)
    assert plan.status == {"conditions": [], "jobsStatus": counts}
    assert plan.patches == [(JOB_SETS, "bert", {"spec": {"suspend": False}})]
    done = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
    plan = decide(train_job(), {**meta, "spec": {}, "status": {"conditions": [done]}})
    assert conditions(plan) == {"Complete": "True AllJobsCompleted"}
    assert decide(train_job(plan.status)).objects == []


def test_suspension_and_deadline_of_a_train_job() -> None:
    held = decide(train_job(suspend=True, activeDeadlineSeconds=50))
    assert conditions(held) == {"Suspended": "True Suspended"}
    assert held.objects[0][1]["spec"]["suspend"] is True
    job_set = {"metadata": {"name": "bert"}, "spec": {"suspend": True}}
    resumed = decide(train_job(held.status, activeDeadlineSeconds=50), job_set)
    assert conditions(resumed) == {"Suspended": "False Resumed"}
    late = decide(train_job(activeDeadlineSeconds=50), job_set)
    assert conditions(late) == {"Failed": "True DeadlineExceeded"}
    assert late.removals == [(JOB_SETS, job_set)]


def job_set(*groups: Manifest, status: Manifest | None = None, **spec: Any) -> Manifest:
    meta = {"name": "set", "namespace": "default", "uid": UID}
    return {"metadata": meta, "spec": {"replicatedJobs": list(groups), **spec}, "status": status or {}}


def group(name: str, replicas: int = 1, **more: Any) -> Manifest:
    pods = {"template": {"spec": {"containers": [{"name": "c"}]}}}
    return {"name": name, "replicas": replicas, "template": {"spec": pods}, **more}


def look(obj: Manifest, *jobs: Manifest) -> Plan:
    return jobset.decide(ObservedJob(JobSet(), obj, (), children={JOBS: jobs}))


def jobs_of(plan: Plan) -> list[Manifest]:
    return [obj for resource, obj in plan.objects if resource == JOBS]


def ended(job: Manifest, condition: str) -> Manifest:
    return {**job, "status": {"conditions": [{"type": condition, "status": "True"}]}}


def test_a_job_set_makes_its_jobs_and_their_service() -> None:
    plan = look(job_set(group("a", 2), group("b")))
    assert [job["metadata"]["name"] for job in jobs_of(plan)] == ["set-a-0", "set-a-1", "set-b-0"]
    assert [obj["metadata"]["name"] for resource, obj in plan.objects if resource == SERVICES] == ["set"]
    job = jobs_of(plan)[1]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "a"
    assert labels["jobset.sigs.k8s.io/job-index"] == "1"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert {"completionMode": "Indexed", "completions": 1, "suspend": False}.items() <= job["spec"].items()


@pytest.mark.parametrize(
    ("policy", "ends", "end"),
    [
        ({}, ["Complete", ""], ""),
        ({}, ["Complete", "Complete"], "Completed"),
        ({}, ["Failed", "Complete"], "Failed"),
        ({"operator": "Any"}, ["", "Complete"], "Completed"),
        ({"operator": "All", "targetReplicatedJobs": ["a"]}, ["Complete", ""], "Completed"),
        ({"operator": "All", "targetReplicatedJobs": ["b"]}, ["Complete", ""], ""),
    ],
)
def test_a_job_set_ends_by_its_success_policy(policy: Manifest, ends: list[str], end: str) -> None:
    obj = job_set(group("a"), group("b"), **({"successPolicy": policy} if policy else {}))
    jobs = [ended(job, word) if word else job for job, word in zip(jobs_of(look(obj)), ends, strict=True)]
    plan = look(obj, *jobs)
    assert plan.status.get("terminalState", "") == end
    left = [job for job, word in zip(jobs, ends, strict=True) if not word]
    assert plan.removals == ([(JOBS, job) for job in left] if end else [])
    assert not jobs_of(plan)


def test_a_job_set_that_may_restart_recreates_all_its_jobs() -> None:
    obj = job_set(group("a", 2), failurePolicy={"maxRestarts": 1})
    jobs = jobs_of(look(obj))
    plan = look(obj, ended(jobs[0], "Failed"), jobs[1])
    assert plan.status["restarts"] == 1
    assert len(plan.removals) == 2
    assert not jobs_of(plan), "their names are taken until they are gone"
    again = jobs_of(look({**obj, "status": plan.status}))
    assert {job["metadata"]["labels"][jobset.ATTEMPT] for job in again} == {"1"}


def test_a_replicated_job_waits_for_its_dependency() -> None:
    for status, after in (("Complete", "Complete"), ("Ready", "Complete")):
        obj = job_set(group("a"), group("b", dependsOn=[{"name": "a", "status": status}]))
        (first,) = jobs_of(look(obj))
        assert jobs_of(look(obj, first)) == []
        (second,) = jobs_of(look(obj, ended(first, after)))
        assert second["metadata"]["name"] == "set-b-0"
    ready = {**first, "status": {"ready": 1}}
    assert len(jobs_of(look(obj, ready))) == 1


def test_the_jobs_of_a_job_set_are_suspended_and_resumed_with_it() -> None:
    (job,) = jobs_of(look(job_set(group("a"))))
    plan = look(job_set(group("a"), suspend=True), job)
    assert plan.patches == [(JOBS, "set-a-0", {"spec": {"suspend": True}})]
    assert conditions(plan) == {"Suspended": "True SuspendedJobs"}
    held = {**job, "spec": {**job["spec"], "suspend": True}}
    resumed = look(job_set(group("a"), status=plan.status), held)
    assert resumed.patches == [(JOBS, "set-a-0", {"spec": {"suspend": False}})]
    assert plan.status["replicatedJobsStatus"][0]["name"] == "a"


def test_a_finished_job_is_not_suspended_and_a_terminating_job_is_not_recreated() -> None:
    obj = job_set(group("a"), group("b"))
    first, second = jobs_of(look(obj))
    held = job_set(group("a"), group("b"), suspend=True)
    patches = look(held, ended(first, "Complete"), second).patches
    assert patches == [(JOBS, "set-b-0", {"spec": {"suspend": True}})]
    leaving = {**first, "metadata": {**first["metadata"], "deletionTimestamp": ago(0)}}
    assert jobs_of(look(obj, leaving, second)) == []


@pytest.mark.parametrize(
    ("wanted", "ready", "come"), [("Complete", 2, False), ("Ready", 1, False), ("Ready", 2, True)]
)
def test_a_replicated_job_is_ready_when_all_its_pods_are(wanted: str, ready: int, come: bool) -> None:
    obj = job_set(group("a"), group("b", dependsOn=[{"name": "a", "status": wanted}]))
    obj["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 2
    (first,) = jobs_of(look(obj))
    assert bool(jobs_of(look(obj, {**first, "status": {"ready": ready}}))) is come


def test_a_suspended_train_job_is_never_late() -> None:
    held = {"type": "Suspended", "status": "True", "reason": "-", "lastTransitionTime": ago(90)}
    plan = decide(train_job({"conditions": [held]}, suspend=True, activeDeadlineSeconds=50))
    assert "Failed" not in conditions(plan)
