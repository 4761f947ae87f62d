"""Traps of status, instances and GPUs into which other tools fall, one test each.

Each object is one that an operator or a kubelet really leaves behind.
"""

from __future__ import annotations

from typing import Any

import pytest

from k8s.snapshot import Job, NodeRow, Share
from k8s.status import Status
from tests.k8s.kinds.operator_objects import objects
from tests.support.objects import GPU, Object, batch_job, joined, node, pod_of, pytorch_job

ALIYUN = "aliyun.com/gpu"
ENDED = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-20T18:36:10Z"}


def only(job: Object, *pods: Object, nodes: tuple[Object, ...] = (node("n1"), node("n2"))) -> Job:
    _, jobs = joined(list(nodes), list(pods), [job])
    assert list(jobs) == [job["metadata"]["name"]]
    return jobs[job["metadata"]["name"]]


def nodes_with(*pods: Object, nodes: tuple[Object, ...]) -> dict[str, NodeRow]:
    """Return the nodes by name when these pods are there."""
    return joined(list(nodes), list(pods), [])[0]


def saying(job: Object, *conditions: tuple[str, str], **status: Any) -> Object:
    """Set the conditions that a job's operator reports, in this order."""
    claims = [
        {"type": kind, "status": truth, "lastTransitionTime": "2026-11-20T18:36:10Z"}
        for kind, truth in conditions
    ]
    return job | {"status": {"conditions": claims, **status}}


def train_job(name: str, nodes: int = 2) -> Object:
    """Return a TrainJob of so many nodes with eight GPUs each."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default", "uid": f"job-{name}", "resourceVersion": "1"},
        "spec": {"trainer": {"numNodes": nodes, "resourcesPerNode": {"limits": {GPU: 8}}}},
    }


def job_set(name: str, pods: int = 2) -> Object:
    """Return a JobSet with one group `node` of so many pods."""
    template = {"spec": {"containers": [{"name": "node", "resources": {"limits": {GPU: 8}}}]}}
    group = {"name": "node", "replicas": 1, "template": {"spec": {"parallelism": pods, "template": template}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "uid": f"job-{name}", "resourceVersion": "1"},
        "spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [group]},
    }


def pod_in_set(owner: Object, index: int, attempt: int = 0, **more: Any) -> Object:
    """Return the pod of a JobSet's group at an index, made at an attempt."""
    pod = pod_of(owner, f"node-0-{index}-{attempt}", **more)
    meta = pod["metadata"]
    meta["creationTimestamp"] = f"2026-11-20T18:0{attempt}:00Z"
    meta["labels"] = {
        "jobset.sigs.k8s.io/jobset-name": owner["metadata"]["name"],
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return pod


def test_the_last_condition_in_the_list_does_not_decide() -> None:
    cases: list[tuple[list[tuple[str, str]], Status]] = [
        ([("Created", "True"), ("Running", "True"), ("Restarting", "False")], Status.RUNNING),
        ([("Succeeded", "True"), ("Restarting", "False")], Status.SUCCEEDED),
        ([("Failed", "True"), ("Running", "False"), ("Restarting", "False")], Status.FAILED),
        ([("Succeeded", "True"), ("Failed", "False")], Status.SUCCEEDED),
        ([("Failed", "False"), ("Running", "True")], Status.RUNNING),
        ([("Restarting", "True"), ("Created", "True")], Status.RUNNING),
        ([], Status.RUNNING),
    ]
    for conditions, status in cases:
        bert = pytorch_job("bert")
        assert only(saying(bert, *conditions), pod_of(bert, "master-0", on="n1")).status is status


def test_running_by_the_operators_word_is_not_running_while_workers_find_no_room() -> None:
    bert = pytorch_job("bert", workers=3, gpus=8)
    job = only(
        saying(bert, ("Running", "True")),
        pod_of(bert, "master-0", on="n1"),
        pod_of(bert, "worker-0", on="n2"),
        pod_of(bert, "worker-1", phase="Pending"),
    )
    assert job.status is Status.PENDING
    assert job.reason == "half-allocated: 2 of 3 pods hold 16 GPUs; worker-1 not scheduled"
    assert (job.gpus_requested, job.gpus_allocated) == (24, 16)


def test_a_resumed_trainjob_of_which_only_suspended_is_false_runs_when_its_pods_do() -> None:
    bert = saying(train_job("bert"), ("Suspended", "False"))
    job = only(bert, pod_in_set(bert, 0, on="n1"), pod_in_set(bert, 1, on="n2"))
    assert (job.status, job.reason, job.gpus_allocated) == (Status.RUNNING, "", 16)


def test_a_trainjob_without_conditions_takes_its_status_from_its_pods() -> None:
    bert = train_job("bert")
    running = only(bert | {"status": {}}, pod_in_set(bert, 0, on="n1"), pod_in_set(bert, 1, on="n2"))
    late = only(
        bert | {"status": {}}, pod_in_set(bert, 0, on="n1"), pod_in_set(bert, 1, on="n2", phase="Pending")
    )
    assert [running.status, late.status] == [Status.RUNNING, Status.RUNNING]
    assert late.reason == "1 of 2 pods; node-1 bound, its node has not started it"


def test_a_trainjob_without_an_operator_response_shows_that_as_its_reason() -> None:
    job = only(train_job("bert"))
    assert (job.status, job.reason) == (Status.PENDING, "no pods yet: its operator has not answered")
    assert (job.gpus_requested, job.gpus_allocated) == (16, 0)


def test_the_later_attempt_counts_for_a_duplicate_jobset_index() -> None:
    bert = job_set("bert") | {"status": {"restarts": 1}}
    pods = [
        pod_in_set(bert, 0, phase="Failed", uid="old-0"),
        pod_in_set(bert, 1, phase="Failed", uid="old-1"),
        pod_in_set(bert, 0, attempt=1, on="n1", uid="new-0"),
        pod_in_set(bert, 1, attempt=1, on="n2", uid="new-1"),
    ]
    for order in (pods, pods[::-1]):
        job = only(bert, *order)
        assert [each.pod_uid for each in job.instances] == ["new-0", "new-1"]
        assert (job.status, job.gpus_allocated) == (Status.RUNNING, 16)


def test_a_jobset_between_two_attempts_is_restarting_with_the_attempt_number() -> None:
    job = only(job_set("bert") | {"status": {"restarts": 2, "conditions": []}})
    assert (job.status, job.reason) == (Status.RESTARTING, "2 of 3: no pods yet")


def test_a_chief_that_has_ended_leaves_workers_that_still_hold_gpus_in_the_reason() -> None:
    bert = pytorch_job("bert", workers=3)
    job = only(
        saying(bert, ("Succeeded", "True")),
        pod_of(bert, "master-0", on="n1", phase="Succeeded"),
        pod_of(bert, "worker-0", on="n1"),
        pod_of(bert, "worker-1", on="n2"),
    )
    assert (job.status, job.reason) == (Status.SUCCEEDED, "2 pods still there, with 16 GPUs")
    assert job.gpus_allocated == 16


def test_a_crash_looping_container_is_never_shown_as_healthy() -> None:
    bert = pytorch_job("bert")
    last = {"terminated": ENDED}
    states: list[Object] = [{"terminated": ENDED}, {"waiting": {"reason": "CrashLoopBackOff"}}]
    for state in states:
        statuses = [{"name": "pytorch", "state": state, "lastState": last, "restartCount": 5}]
        job = only(bert, pod_of(bert, "master-0", on="n1", containerStatuses=statuses))
        assert job.status is Status.RESTARTING
        assert job.reason.startswith("master-0 OOMKilled")
    up = [{"name": "pytorch", "state": {"running": {}}, "lastState": last, "restartCount": 5}]
    job = only(bert, pod_of(bert, "master-0", on="n1", containerStatuses=up))
    assert job.reason == "master-0 restarted 5 times, last OOMKilled at 18:36:10"


@pytest.mark.parametrize("truth", ["Unknown", "False"])
def test_pods_of_a_node_that_went_quiet_do_not_run(truth: str) -> None:
    away = node("n2")
    away["status"]["conditions"] = [{"type": "Ready", "status": truth}]
    bert = pytorch_job("bert", workers=2)
    pods = [pod_of(bert, "master-0", on="n1"), pod_of(bert, "worker-0", on="n2")]
    job = only(bert, *pods, nodes=(node("n1"), away))
    assert job.status is Status.UNKNOWN
    assert job.reason.startswith("1 of 2 pods; worker-0: its node n2 ")
    assert (job.gpus_allocated, job.instances_running) == (16, 1)


def test_gpus_of_any_maker_are_requested_allocated_and_offered() -> None:
    cases: list[str] = [ALIYUN, "amd.com/gpu", "huawei.com/Ascend910", "habana.ai/gaudi"]
    for resource in cases:
        bert = pytorch_job("bert", gpus=0)
        limits = {resource: "4"}
        roles = bert["spec"]["pytorchReplicaSpecs"]["Master"]
        roles["template"] = {"spec": {"containers": [{"name": "pytorch", "resources": {"limits": limits}}]}}
        pod = pod_of(bert, "master-0", on="n1")
        pod["spec"]["containers"][0]["resources"] = {"limits": limits}
        offers = node("n1", gpus=0)
        offers["status"]["allocatable"] = offers["status"]["capacity"] = {resource: "8"}
        nodes, jobs = joined([offers], [pod], [bert])
        assert (jobs["bert"].gpus_requested, jobs["bert"].gpus_allocated) == (4, 4)
        assert dict(nodes["n1"].resources) == {resource: Share(8, 4, 0)}


def test_a_gpu_that_only_an_init_container_needs_is_held_for_the_pods_whole_life() -> None:
    bert = pytorch_job("bert", gpus=0)
    pod = pod_of(bert, "master-0", on="n1", gpus=0)
    pod["spec"]["initContainers"] = [{"name": "warm-up", "resources": {"limits": {GPU: "2"}}}]
    job = only(bert, pod)
    assert (job.gpus_requested, job.gpus_allocated) == (0, 2)


def test_gpus_listed_only_in_requests_are_counted() -> None:
    pod = pod_of(pytorch_job("bert"), "master-0", on="n1")
    pod["spec"]["containers"][0]["resources"] = {"requests": {GPU: "3"}}
    assert nodes_with(pod, nodes=(node("n1"),))["n1"].gpus_allocated == 3


def test_the_rank_that_failed_first_is_named_with_the_time() -> None:
    bert = pytorch_job("bert", workers=3, gpus=1)

    def failed(place: str, code: int, second: int) -> Object:
        state = {"terminated": {"exitCode": code, "finishedAt": f"2026-11-20T14:02:{second}Z"}}
        statuses = [{"name": "pytorch", "state": state}]
        return pod_of(bert, place, phase="Failed", gpus=1, containerStatuses=statuses)

    job = only(
        saying(bert, ("Failed", "True")),
        failed("master-0", 143, 15),
        failed("worker-0", 1, 11),
        failed("worker-1", 1, 13),
    )
    assert (job.status, job.reason) == (Status.FAILED, "rank 1 exit 1 first, 14:02:11")


@pytest.mark.parametrize("situation", ["mpijob-v2beta1-running", "mpijob-v1-running"])
def test_an_mpi_launcher_is_found_in_recorded_v1_and_v2beta1_jobs(situation: str) -> None:
    found = objects(situation)
    pods = [each for each in found if each["kind"] == "Pod"]
    jobs = [each for each in found if each["kind"] in ("MPIJob", "Job")]
    _, rows = joined([node("n1"), node("n2")], pods, jobs)
    assert list(rows) == [jobs[0]["metadata"]["name"]]
    job = rows[jobs[0]["metadata"]["name"]]
    chief = next(each for each in job.instances if each.is_chief)
    assert (chief.role, chief.status) == ("launcher", Status.RUNNING)
    assert (job.status, job.reason) == (Status.RUNNING, "")
    assert len(job.instances) == len(pods)


def test_independent_pods_are_never_shown_as_half_allocated() -> None:
    sweep = batch_job("sweep", pods=3)
    pods = [
        pod_of(sweep, "aaa", on="n1"),
        pod_of(sweep, "bbb", on="n1"),
        pod_of(sweep, "ccc", phase="Pending"),
    ]
    job = only(sweep, *pods)
    assert (job.status, job.gpus_allocated) == (Status.RUNNING, 16)
    assert job.reason.startswith("2 of 3 pods, 1 is enough; pod-")
    assert job.reason.endswith(": not scheduled")
    numbered = batch_job("sweep", pods=3, indexed=True)
    pods = [
        pod_of(numbered, "0", on="n1"),
        pod_of(numbered, "1", on="n1"),
        pod_of(numbered, "2", phase="Pending"),
    ]
    assert only(numbered, *pods).status is Status.PENDING


def test_a_replica_set_with_one_unschedulable_replica_is_running() -> None:
    pods = [pod_of(batch_job("web"), "aaa", on="n1"), pod_of(batch_job("web"), "bbb", phase="Pending")]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0] |= {"kind": "ReplicaSet", "apiVersion": "apps/v1", "uid": "rs"}
        pod["metadata"]["labels"] = {}
    _, jobs = joined([node("n1")], pods, [])
    assert (jobs["web"].status, jobs["web"].gpus_allocated) == (Status.RUNNING, 8)
    assert jobs["web"].reason.startswith("1 of 2 pods, 1 is enough; ")
