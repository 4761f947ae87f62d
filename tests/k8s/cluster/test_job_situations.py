"""Jobs that restart in place, run elsewhere, or are groups of pods, and the rows that they become."""

from __future__ import annotations

from typing import Any

from tests.k8s.cluster.situations import Case, check, lone, recorded
from tests.support.objects import GPU, Object, batch_job, join, node, pod_of, pytorch_job, read_jobs


def restarting(pod: Object, code: int, times: int, *values: int) -> Object:
    """Give the container of a pod a rule for some exit codes, and let it have exited."""
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": list(values)}}
    pod["spec"]["restartPolicy"] = "Never"
    pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    name = pod["spec"]["containers"][0]["name"]
    ended = {"terminated": {"exitCode": code, "reason": "Error"}}
    pod["status"]["containerStatuses"] = [{"name": name, "state": ended, "restartCount": times}]
    return pod


def set_of(name: str, pods: int, **status: Any) -> list[Object]:
    """Return a JobSet that restarts in place, and its running pods, each restarted as often."""
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "w", "resources": {"limits": {GPU: 1}}}]}
    }
    group = {"name": "w", "replicas": 1, "template": {"spec": {"parallelism": pods, "template": template}}}
    owner: Object = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [group],
        },
        "status": status,
    }
    found = [owner]
    for index in range(pods):
        pod = lone(f"{name}-w-0-{index}", "n1", {GPU: 1})
        pod["metadata"]["labels"] = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": "w",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        pod["metadata"]["ownerReferences"] = [
            {
                "kind": "JobSet",
                "apiVersion": owner["apiVersion"],
                "name": name,
                "uid": name,
                "controller": True,
            }
        ]
        found.append(restarting(pod, 42, status.get("currentInPlaceRestartAttempt", 0), 42))
    return found


def test_a_container_that_restarts_in_place_does_not_end_its_job() -> None:
    gemma = batch_job("gemma", pods=2, indexed=True, backoffLimit=4)
    up = pod_of(gemma, "1", on="n1", gpus=1)

    def first(code: int, times: int) -> Object:
        return restarting(pod_of(gemma, "0", on="n1", gpus=1), code, times, 42, 43)

    check([
        Case("a recorded pod between two runs",
             [node("gpu-node-0", gpus=2), *recorded("pod-restart-rule")],
             ["gpu-node-0: 1 of 2, rule-restart 1",
              "rule-restart: Restarting 1 of 1 (pod-0 exit 42, restarted once)"]),
        Case("a pod of a Job that a rule restarts",
             [node("n1"), gemma, first(43, 3), up],
             ["n1: 2 of 8, gemma 2",
              "gemma: Restarting 2 of 2 (1 of 2 pods; pod-0 exit 43, restarted 3 times)"]),
        Case("one for whose exit there is no rule",
             [node("n1"), gemma, first(1, 3), up],
             ["n1: 2 of 8, gemma 2", "gemma: Restarting 2 of 2 (1 of 2 pods; pod-0 exit 1)"]),
        Case("the attempts of a JobSet are not added to the restarts of its pods",
             [node("n1"), *set_of("llama", 3, currentInPlaceRestartAttempt=2, restarts=1)],
             ["n1: 3 of 8, llama 3", "llama: Restarting 3 of 3 (2 of 5: w-0 exit 42, restarted twice)"]),
    ])  # fmt: skip


def elsewhere(kind: str, **status: Any) -> Object:
    """Return a job of two GPUs that MultiKueue runs on another cluster."""
    job = batch_job("opus", pods=2) if kind == "Job" else pytorch_job("opus", workers=2, gpus=1)
    manager = {"managedBy": "kueue.x-k8s.io/multikueue"}
    job["spec"] |= manager if kind == "Job" else {"runPolicy": manager}
    return job | {"status": status}


def test_a_job_on_another_cluster_runs_and_holds_nothing_here() -> None:
    since = "2026-11-20T18:36:10Z"
    runs, reason = (
        {"type": "Running", "status": "True"},
        "runs on another cluster; its pods are not in this one",
    )
    waiting = "opus: Pending 0 of 2 (waits for a place on another cluster)"
    done = {"type": "Complete", "status": "True"}
    check([
        Case("a Job", [elsewhere("Job", active=2, startTime=since)], [f"opus: Running 0 of 2 ({reason})"]),
        Case("a Job that has no place yet", [elsewhere("Job")], [waiting]),
        Case("a Job that has ended", [elsewhere("Job", conditions=[done])], ["opus: Succeeded 0 of 2"]),
        Case("a PyTorchJob",
             [elsewhere("PyTorchJob", conditions=[runs], startTime=since)],
             [f"opus: Running 0 of 2 ({reason})"]),
        Case("a PyTorchJob that has no place yet", [elsewhere("PyTorchJob")], [waiting]),
        Case("a job that its own controller manages",
             [batch_job("opus", pods=2, managedBy="kubernetes.io/job-controller")],
             ["opus: Pending 0 of 2 (no pods yet)"]),
    ])  # fmt: skip
    job = join([], [], read_jobs(elsewhere("Job", active=2, startTime=since)))[1][0]
    assert (job.gpus_waiting, job.started is not None) == (0, True)
    assert {(each.status, each.reason) for each in job.instances} == {("Unknown", "in another cluster")}


def test_replica_types_are_read_in_any_case() -> None:
    job, pods = pytorch_job("t5", workers=2, gpus=2), []
    specs = job["spec"]["pytorchReplicaSpecs"]
    for place in ("master-0", "worker-0"):
        pods.append(pod_of(job, place, on="n1", gpus=2))
    job["spec"]["pytorchReplicaSpecs"] = {"master": specs["Master"], "WORKER": specs["Worker"]}
    launcher = {"replicas": 1, "template": {"spec": {"containers": [{"name": "l"}]}}}
    mpi: Object = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "ring", "namespace": "default", "uid": "ring"},
        "spec": {"mpiReplicaSpecs": {"launcher": launcher, "worker": specs["Worker"] | {"replicas": 3}}},
    }
    check([
        Case("a PyTorchJob", [node("n1"), job, *pods], ["n1: 4 of 8, t5 4", "t5: Running 4 of 4"]),
        Case("an MPIJob", [mpi], ["ring: Pending 0 of 6 (no pods yet: its operator has not answered)"]),
    ])  # fmt: skip


def grouped(name: str, group: str, total: str, *, gpus: int = 4, on: str = "n1", **status: Any) -> Object:
    """Return a plain pod of a group of Kueue."""
    pod = lone(name, on, {GPU: gpus})
    pod["metadata"]["labels"] = {
        "kueue.x-k8s.io/pod-group-name": group,
        "kueue.x-k8s.io/queue-name": "research",
    }
    pod["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": total}
    pod["status"] |= status
    return pod


def fraction(name: str, group: str, **annotations: str) -> Object:
    """Return a pod that shares a GPU by KAI."""
    pod = lone(name, "n1")
    pod["metadata"]["annotations"] = {key.replace("_", "-"): text for key, text in annotations.items()}
    pod["metadata"]["labels"] = {"runai-gpu-group": group}
    return pod


def reservation(group: str) -> Object:
    pod = lone(f"gpu-reservation-{group}", "n1", {GPU: 1})
    pod["metadata"] |= {"namespace": "kai-resource-reservation", "labels": {"runai-gpu-group": group}}
    return pod


def test_plain_pods_of_a_group_and_fractions_of_a_gpu_are_jobs_and_reservations_are_not() -> None:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    ended: Object = {"phase": "Succeeded"}
    check([
        Case("a group whose last pod is still to come",
             [node("n1"), grouped("a", "sora", "3"), grouped("b", "sora", "3")],
             ["n1: 8 of 8, sora 8", "sora: Running 8 of 12 (2 of 3 pods; 1 not created yet)"]),
        Case("a group that waits for Kueue",
             [node("n1"),
              *(grouped(each, "sora", "2", on="", phase="Pending", conditions=[gate]) for each in "ab")],
             ["n1: 0 of 8", "sora: Pending 0 of 8 (pod-0: SchedulingGated)"]),
        Case("a group that has ended",
             [node("n1"), grouped("a", "sora", "2", **ended), grouped("b", "sora", "2", **ended)],
             ["n1: 0 of 8", "sora: Succeeded 0 of 8"]),
        Case("one of which a pod failed",
             [node("n1"), grouped("a", "sora", "2", **ended), grouped("b", "sora", "2", phase="Failed")],
             ["n1: 0 of 8", "sora: Failed 0 of 8 (pod-1 failed)"]),
        Case("a group without a size, and another pod",
             [node("n1"), grouped("a", "sora", "many"), lone("probe", "n1", {GPU: 1})],
             ["n1: 5 of 8, sora 4, probe 1", "probe: Running 1 of 1", "sora: Running 4 of 4"]),
        Case("two fractions of one GPU",
             [node("n1"), reservation("g"), fraction("eval", "g", gpu_fraction="0.5"),
              fraction("tune", "g", gpu_fraction="0.25")],
             ["n1: 1 of 8, eval 0.5, tune 0.25", "eval: Running 0.5 of a GPU",
              "tune: Running 0.25 of a GPU"]),
        Case("fractions of several GPUs, and memory of one",
             [node("n1"), *map(reservation, "ghi"),
              fraction("eval", "g", gpu_fraction="0.5", gpu_fraction_num_devices="2"),
              fraction("tune", "i", gpu_memory="4000")],
             ["n1: 3 of 8, eval 1, tune shared", "eval: Running 1 of a GPU", "tune: Running 0 of 0"]),
        Case("a reservation whose pods may not be read", [node("n1"), reservation("g")], ["n1: 1 of 8"]),
        Case("fractions that are no numbers",
             [node("n1"), fraction("eval", "g", gpu_fraction="half"),
              fraction("tune", "g", gpu_fraction="nan")],
             ["n1: 0 of 8"]),
    ])  # fmt: skip
