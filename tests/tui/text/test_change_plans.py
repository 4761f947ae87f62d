"""Questions before a delete, and reports after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from k8s.kinds import JobRef
from k8s.models import Pod, Reader
from k8s.snapshot import ClusterSnapshot, Job, Missing
from tests.support.objects import GPU, Object, batch_job, joined, listed, node, pod_of, pytorch_job
from tui.text.change_plans import MOST_WITHOUT_TYPING, ChangePlan, Propagation, delete_plan
from tui.verbs.changes import LONGEST_S, Leftover, find_leftovers, is_over, leftover_lines

BERT = pytorch_job("bert", workers=3)
PODS = [pod_of(BERT, place, on="n1", uid=f"uid-{place}") for place in ("master-0", "worker-0", "worker-1")]


def read(*pods: Object) -> dict[str, Pod]:
    return {pod.metadata.uid: pod for pod in Reader[Pod](Pod).read_list(listed(*pods))[1]}


def seen(nodes: list[Object], pods: list[Object], jobs: list[Object], **said: Any) -> ClusterSnapshot:
    node_rows, job_rows = joined(nodes, pods, jobs)
    rows = {"nodes": tuple(node_rows.values()), "jobs": tuple(job_rows.values())}
    return ClusterSnapshot(**{"context": "lab", "is_synced": True, **rows, **said})


BEFORE = seen([node("n1", 32)], PODS, [BERT])


ONLY = "Deletes the jobs only:"


def plan_of(snapshot: ClusterSnapshot = BEFORE, **how: Any) -> ChangePlan:
    return delete_plan(snapshot, [job.ref for job in snapshot.jobs], **how)


def going(pod: Object, *finalizers: str, phase: str = "Running") -> Object:
    """Return a pod that is being deleted."""
    meta = {**pod["metadata"], "deletionTimestamp": "2026-11-20T10:00:00Z", "finalizers": list(finalizers)}
    return {**pod, "metadata": meta, "status": {**pod["status"], "phase": phase}}


def test_a_delete_plan_lists_deleted_pods_freed_gpus_and_kept_volume_claims() -> None:
    plan = plan_of()
    assert plan.question == "Delete 1 job?"
    assert plan.lines == (
        "PyTorchJob default/bert  Running, 3 pods, 24 GPUs",
        "",
        "Deletes 3 pods and their logs, and frees 24 GPUs.",
        "Volume claims and their files are kept.",
    )
    assert plan.word == ""
    assert plan.sentence == f"Delete PyTorchJob default/bert? {' '.join(plan.consequences)}"


@pytest.mark.parametrize(
    ("propagation", "words"),
    [
        ("Foreground", "Deletes 3 pods and their logs, and frees 24 GPUs. The jobs stay"),
        ("Orphan", f"{ONLY} 3 pods keep running, hold 24 GPUs and are no longer managed."),
    ],
)
def test_a_delete_plan_describes_the_pods_fate_for_each_propagation_policy(
    propagation: Propagation, words: str
) -> None:
    assert plan_of(propagation=propagation).consequences[0].startswith(words)


@pytest.mark.parametrize(
    ("phase", "gpus", "propagation", "words"),
    [
        ("Succeeded", 8, "Background", "Deletes 1 finished pod and its logs."),
        ("Running", 0, "Background", "Deletes 1 pod and its logs."),
        ("Failed", 8, "Orphan", f"{ONLY} finished pods and their logs are kept."),
        ("Running", 0, "Orphan", f"{ONLY} 1 pod keeps running and is no longer"),
    ],
)
def test_a_delete_plan_of_finished_or_cpu_only_pods_frees_no_gpus(
    phase: str, gpus: int, propagation: Propagation, words: str
) -> None:
    job = pytorch_job("bert", workers=1, gpus=gpus)
    pod = pod_of(job, "master-0", on="n1", gpus=gpus)
    pod["status"] = {**pod["status"], "phase": phase}
    plan = plan_of(seen([node("n1", 8)], [pod], [job]), propagation=propagation)
    assert plan.consequences[0].startswith(words)


def test_a_delete_plan_includes_finished_pods_in_the_pod_count() -> None:
    job = pytorch_job("bert", workers=2, gpus=8)
    pods = [pod_of(job, "master-0", on="n1", gpus=8), pod_of(job, "worker-0", on="n1", gpus=8)]
    pods[1]["status"] = {**pods[1]["status"], "phase": "Succeeded"}
    plan = plan_of(seen([node("n1", 16)], pods, [job]))
    assert plan.consequences[0] == "Deletes 2 pods (1 finished) and their logs, and frees 8 GPUs."


def test_a_delete_plan_reports_a_job_without_pods() -> None:
    assert plan_of(seen([], [], [BERT])).consequences[0] == "There are no pods to delete."


def test_deleting_many_jobs_requires_a_typed_word_and_counts_hidden_jobs() -> None:
    snapshot = seen([], [], [batch_job(f"job-{number}", gpus=0) for number in range(12)])
    refs = [job.ref for job in snapshot.jobs]
    assert delete_plan(snapshot, refs[:MOST_WITHOUT_TYPING]).word == ""
    plan = delete_plan(snapshot, refs, hidden=2)
    assert (plan.question, plan.word) == ("Delete 12 jobs?", "delete 12")
    assert len(plan.lines) < 20
    assert "and 2 more" in plan.lines
    assert "2 of these are hidden by the filter." in plan.lines


def test_a_delete_plan_excludes_missing_jobs_and_duplicates() -> None:
    refs = [BEFORE.jobs[0].ref, JobRef("default", "gone", "Job", "batch/v1"), BEFORE.jobs[0].ref]
    assert [job.ref.name for job in delete_plan(BEFORE, refs, hidden=7).jobs] == ["bert"]
    assert delete_plan(BEFORE, refs, hidden=7).hidden == 1


def left_of(plan: ChangePlan, snapshot: ClusterSnapshot, *pods: Object) -> Leftover:
    (left,) = find_leftovers(plan, snapshot, read(*pods))
    return left


def test_a_completed_deletion_is_reported_at_once() -> None:
    left = find_leftovers(plan_of(), seen([node("n1", 32)], [], []), {})
    assert is_over(left, 0.0)
    assert leftover_lines(left, 4.0) == ("bert is gone.",)


def test_waiting_for_deleted_pods_ends_at_the_time_limit() -> None:
    pods = [going(pod) for pod in PODS]
    left = find_leftovers(plan_of(), seen([node("n1", 32)], pods, []), read(*pods))
    assert not is_over(left, LONGEST_S - 1)
    assert is_over(left, LONGEST_S)


def test_remaining_pods_are_reported_with_node_and_blocking_cause() -> None:
    silent = node("n1", 32)
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    bad = pod_of(BERT, "worker-0", on="n2", uid="uid-worker-0")
    pods = [going(PODS[0]), going(bad, "lab.io/keep", phase="Failed"), PODS[2]]
    left = left_of(plan_of(), seen([silent, node("n2")], pods, []), *pods)
    assert leftover_lines([left], 60.0) == (
        "bert: 3 pods still there after 60 s: bert-master-0 Terminating on n1 (its node is not ready); "
        "bert-worker-0 Failed on n2 (kept by finalizer lab.io/keep); "
        "bert-worker-1 Running on n1 (its node is not ready, nothing has asked it to end).",
    )


def test_a_lost_node_is_recognized_from_the_pods_reason_without_node_permission() -> None:
    lost = {**going(PODS[0]), "status": {"phase": "Running", "reason": "NodeLost"}}
    left = left_of(plan_of(), seen([], [lost], []), lost)
    assert left.pods == (("bert-master-0", "Terminating on n1 (its node does not answer)"),)


def test_remaining_pods_without_gpus_are_counted_after_their_job_is_removed() -> None:
    job = pytorch_job("cpu", gpus=0)
    pod = pod_of(job, "master-0", gpus=0, on="n1", uid="u")
    plan = plan_of(seen([], [pod], [job]))
    after = seen([], [pod], [])
    assert after.jobs == ()
    assert not left_of(plan, after, pod).is_gone


def test_pods_created_after_the_delete_prompt_are_counted_as_remaining() -> None:
    late = pod_of(BERT, "worker-1", on="n1", uid="uid-late")
    left = left_of(plan_of(), seen([node("n1", 32)], [late], [BERT]), late)
    assert left.pods == (("bert-worker-1", "Running on n1 (nothing has asked it to end)"),)


def test_a_job_object_blocked_by_finalizers_is_reported() -> None:
    kept = pytorch_job("bert", workers=3, deletionTimestamp="2026-11-20T10:00:00Z", finalizers=["a/b", "c/d"])
    left = left_of(plan_of(), seen([], [], [kept]))
    assert leftover_lines([left], 61.2) == (
        "bert is still there after 61 s, without pods, kept by finalizers a/b, c/d.",
    )


def test_a_new_job_with_the_same_name_is_not_counted_as_remaining() -> None:
    namesake = pytorch_job("bert", uid="another")
    pod = pod_of(namesake, "master-0", uid="of-another")
    assert left_of(plan_of(), seen([], [pod], [namesake]), pod).is_gone


def test_orphaned_pods_are_not_counted_as_remaining_and_their_gpus_are_reported() -> None:
    orphans = [{**pod, "metadata": {**pod["metadata"], "ownerReferences": []}} for pod in PODS]
    plan = plan_of(propagation="Orphan")
    left = left_of(plan, seen([node("n1", 32)], orphans, []), *orphans)
    assert left.is_gone
    assert leftover_lines([left], 3.0) == ("bert is gone; 3 pods of it run on as asked, with 24 GPUs.",)
    assert not left_of(plan, BEFORE, *PODS).is_gone


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"context": "other"}, "Another cluster is shown now."),
        ({"namespace": "speech"}, "Another namespace is shown now."),
        ({"is_synced": False}, "The cluster has not been read yet."),
        ({"stale": "no answer"}, "The state may be out of date: no answer"),
        ({"problems": {"pods": Missing("list", "pods")}}, "This user may not list pods."),
    ],
)
def test_a_job_is_not_reported_gone_if_the_snapshot_cannot_prove_it(said: dict[str, Any], why: str) -> None:
    left = left_of(plan_of(), seen([], [], [], **said))
    assert not left.is_gone
    assert leftover_lines([left], 60.0) == (f"bert: nobody can tell whether it is gone. {why}",)


def test_several_deleted_jobs_are_reported_in_one_sentence() -> None:
    snapshot = seen([], [], [batch_job(f"job-{number}", gpus=0) for number in range(14)])
    names = [job.ref.name for job in snapshot.jobs]
    gone = [Leftover(job) for job in snapshot.jobs]
    assert leftover_lines(gone[:4], 1.0) == (f"{', '.join(names[:3])} and {names[3]} are gone.",)
    assert leftover_lines(gone, 1.0) == (f"{', '.join(names[:10])} and 4 more are gone.",)
    assert leftover_lines(gone[:2], 1.0) == (f"{names[0]} and {names[1]} are gone.",)
    kept = replace(gone[0], is_there=True)
    assert leftover_lines([kept, gone[1]], 60.0) == (
        f"{names[1]} is gone.",
        f"{names[0]} is still there after 60 s, without pods.",
    )


def test_control_characters_are_removed_from_delete_plans_and_reports() -> None:
    job: Job = msgspec.structs.replace(
        BEFORE.jobs[0], ref=JobRef("default", "b\x1b[2Jert", "Job", "batch/v1")
    )
    plan = ChangePlan("Delete", (job,), context="lab")
    words = (*plan.lines, plan.sentence)
    words += leftover_lines([Leftover(job, is_there=True, finalizers=("\x1b[1m",))], 60.0)
    words += leftover_lines([Leftover(job, pods=(("\x1b]0;x\x07", "Running"),))], 60.0)
    assert not any(ord(char) < 32 for line in words for char in line)
    assert GPU not in "".join(words)
