"""Jobs without pods: no operator, a queue, a refusal; with exact sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from k8s.kinds import JobRef
from k8s.models.namespace import Quota
from k8s.reasons import objects as o
from k8s.reasons.cause import Cause
from k8s.reasons.rules import explain
from k8s.status import Status
from tests.support.evidence import (
    event,
    evidence_of,
    explained,
    held,
    instance,
    job_of,
    on_node,
    pod,
    read,
    spec_of,
    starting,
    texts,
)
from tests.support.objects import Object, node, pytorch_job


def test_a_missing_operator_is_reported_after_a_minute() -> None:
    missing = instance(has_pod=False)
    orphan = pytorch_job("bert")
    answer = explained(missing, manifest=orphan, age_s=300)
    assert answer.sentence == (
        "No operator acts on it: PyTorchJob bert has no status and no pods after 5 min."
    )
    assert answer.help == ("Ask an administrator whether the operator for PyTorchJob is running.",)
    young = explained(missing, manifest=orphan, age_s=12)
    assert young.sentence == "Was created 12 s ago; its operator has not reacted yet."


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (Status.PENDING, "Its operator rejects its spec: PyTorchJobSpec is not valid: 1 worker at least."),
        (
            Status.FAILED,
            "Failed: Its operator rejects its spec: PyTorchJobSpec is not valid: 1 worker at least.",
        ),
    ],
)
def test_a_spec_rejected_only_by_an_event_is_reported_as_invalid(status: Status, sentence: str) -> None:
    said = "PyTorchJobSpec is not valid: 1 worker at least"
    refusal = event("bert", "PyTorchJobFailedValidation", said, kind="PyTorchJob")
    answer = explained(instance(has_pod=False), status=status, events=(refusal,))
    assert answer.sentence == sentence
    assert answer.help == ("Correct the spec, and submit the job again.",)
    assert texts(answer, "event") == [f"PyTorchJob PyTorchJobFailedValidation: {said}"]


def test_a_job_that_was_deleted_is_gone() -> None:
    assert explained(instance(), is_gone=True).sentence == "It is gone: PyTorchJob bert was deleted."


def test_finalizers_and_pods_that_keep_a_deleted_job_are_named() -> None:
    manifest = pytorch_job("bert", finalizers=["lab/keep"])
    answer = explained(instance(has_pod=False), status=Status.TERMINATING, manifest=manifest)
    assert answer.sentence == "Is being deleted: 0 pods left; finalizers keep it: lab/keep."
    answer = explain(evidence_of(instance(node="a"), status=Status.TERMINATING, manifest=manifest))
    assert answer.sentence == "Is being deleted: 1 pod left on a."


def test_pods_that_an_operator_has_not_created_are_counted() -> None:
    manifest = pytorch_job("bert", workers=2) | {"status": {"conditions": []}}
    conditions = [{"type": "Created", "status": "True", "message": "PyTorchJob bert is created."}]
    none_yet = evidence_of(
        instance(has_pod=False), instance("worker-0", has_pod=False), manifest=manifest, conditions=conditions
    )
    answer = explain(none_yet)
    assert answer.sentence == "Has no pods: its operator has created none of 2, 5 min after it was created."
    assert texts(answer, "job") == ["Created is True: PyTorchJob bert is created"]


def test_a_suspended_job_is_reported_as_suspended() -> None:
    manifest = pytorch_job("bert") | {"status": {"conditions": []}}
    manifest["spec"]["runPolicy"] = {"suspend": True}
    answer = explained(instance(has_pod=False), status=Status.SUSPENDED, manifest=manifest)
    assert answer.sentence == "Suspended: its object says suspend, so it has no pods."
    assert texts(answer, "pods") == []
    assert answer.help == ("Resume it: gpuconsole resume bert",)


def test_a_job_suspended_by_kube_queue_is_reported_as_waiting() -> None:
    manifest = pytorch_job("bert", annotations={"scheduling.x-k8s.io/suspend": "true"})
    answer = explained(instance(has_pod=False), status=Status.QUEUED, manifest=manifest)
    assert answer.sentence == "Waits in kube-queue, which has not admitted it."


def workload(*conditions: Object, **spec: Any) -> o.Workload:
    found: o.Workload = read(
        o.Workload,
        {
            "metadata": {"name": "pytorchjob-bert", "namespace": "default"},
            "spec": {"queueName": "research", **spec},
            "status": {"conditions": list(conditions)},
        },
    )
    return found


NO_QUOTA = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu",
}
QUEUE = read(o.LocalQueue, {"metadata": {"name": "research"}, "spec": {"clusterQueue": "gpus"}})


def queued(**parts: Any) -> Cause:
    manifest = pytorch_job("bert", labels={"kueue.x-k8s.io/queue-name": "research"})
    manifest["spec"]["runPolicy"] = {"suspend": True}
    return explained(instance(has_pod=False), status=Status.QUEUED, manifest=manifest, **parts)


def test_a_workload_without_quota_reports_its_queue_position_and_kueue_message() -> None:
    answer = queued(workload=workload(NO_QUOTA), local_queues={"research": QUEUE}, queue_positions=(3, 5))
    assert answer.sentence == (
        "Waits in queue research (ClusterQueue gpus), 3 before it: couldn't assign flavors to pod set main: "
        "insufficient unused quota for nvidia.com/gpu."
    )
    assert "3 before it in research, 5 in the ClusterQueue" in texts(answer, "queue")


def test_a_workload_with_quota_waits_for_admission_checks() -> None:
    reserved = {"type": "QuotaReserved", "status": "True"}
    found = workload(reserved)
    status = read(
        o.WorkloadStatus,
        {
            "conditions": [reserved],
            "admission": {"clusterQueue": "gpus"},
            "admissionChecks": [{"name": "provision", "state": "Pending", "message": "fetcher for nodes"}],
        },
    )
    answer = queued(workload=o.Workload(found.metadata, found.spec, status))
    assert answer.sentence == (
        "Waits in queue research (ClusterQueue gpus): quota is reserved, admission waits for "
        "provision (Pending)."
    )


def test_an_evicted_or_deactivated_workload_reports_the_reason() -> None:
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "Preempted by li/urgent.",
    }
    answer = queued(workload=workload(evicted, NO_QUOTA))
    assert answer.sentence.startswith(
        "Waits in queue research: it was evicted, Preempted by li/urgent; couldn't"
    )
    stopped = queued(workload=workload(active=False))
    assert stopped.sentence == "Kueue has deactivated it: its Workload in queue research is not active."


def test_the_job_that_preempted_another_is_named_with_its_user() -> None:
    urgent = replace(job_of([]), ref=JobRef("lab", "urgent", "Job", "batch/v1"), uid="u-7", user="mai")
    for uid, name in (("u-7", "urgent of mai"), ("UNKNOWN", "a workload (UID: w-1, JobUID: UNKNOWN)")):
        message = f"Preempted to accommodate a workload (UID: w-1, JobUID: {uid}) due to reclamation"
        evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": message}
        answer = queued(workload=workload(evicted), jobs=(urgent,))
        assert answer.sentence.endswith(f"Preempted to accommodate {name} due to reclamation.")
    pod_uid = "0f9a4f6e-55a1-4c65-9d5b-6a53f7a0c111"
    preemptor = msgspec.structs.replace(instance(), pod_uid=pod_uid)
    message = f"Preempted by pod {pod_uid} on node n1"
    answer = explained(
        instance(status=Status.FAILED),
        status=Status.FAILED,
        events=[event("bert-master-0", "Preempted", message)],
        jobs=(replace(urgent, instances=(preemptor,)),),
    )
    assert answer.sentence == "Failed: bert-master-0 was preempted: Preempted by urgent of mai on node n1."


def test_a_job_without_a_workload_waits_for_kueue() -> None:
    assert queued().sentence == "Waits in queue research: Kueue has created no Workload for it in 5 min."


def test_an_admitted_workload_is_not_reported_as_the_cause() -> None:
    admitted = workload({"type": "Admitted", "status": "True"})
    answer = explained(
        instance(), pods=[pod("master-0")], nodes=[node("a", 4)], rows=[held("a", 4)], workload=admitted
    )
    assert answer.sentence.startswith("Too big:")


def test_a_scheduling_gate_is_named() -> None:
    gates = [{"name": "lab/approval"}]
    gated = pod("master-0", spec_of(schedulingGates=gates), conditions=[])
    answer = explained(instance(), pods=[gated])
    assert answer.sentence == (
        "Its pods are gated: master-0 may not be scheduled until lab/approval is removed."
    )


def test_pod_creation_errors_of_the_server_are_explained_in_a_sentence() -> None:
    cases: list[tuple[str, str]] = [
        (
            'pods "bert-master-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, '
            "used: requests.nvidia.com/gpu=12, limited: requests.nvidia.com/gpu=16",
            "Waits for quota: master-0 needs 8 nvidia.com/gpu; quota gpus has 4 of 16 left.",
        ),
        (
            'pods "bert-master-0" is forbidden: exceeded quota: gpus, requested: cpu=32,requests.memory=2Ti, '
            "used: cpu=0,requests.memory=0, limited: cpu=16,requests.memory=4Ti",
            "Never starts: master-0 needs 32 cpu; quota gpus allows 16.",
        ),
        (
            'pods "x" is forbidden: failed quota: cpus: must specify limits.cpu,limits.memory',
            "Its pods cannot be created: quota cpus requires every container to set "
            "limits.cpu,limits.memory.",
        ),
        (
            'pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 64Gi',
            "Its pods cannot be created: a LimitRange says maximum memory usage per Container is 1Gi, "
            "but limit is 64Gi.",
        ),
        (
            'pods "x" is forbidden: no PriorityClass with name urgent was found',
            "Its pods cannot be created: there is no PriorityClass urgent.",
        ),
        (
            'pods "x" is forbidden: error looking up service account default/trainer: '
            'serviceaccount "trainer" '
            "not found",
            "Its pods cannot be created: there is no ServiceAccount trainer.",
        ),
        (
            'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged (container "a")',
            "Its pods cannot be created: PodSecurity restricted:latest forbids them: privileged "
            '(container "a").',
        ),
        (
            'admission webhook "policy.lab" denied the request: images must come from lab/',
            "Its pods cannot be created: admission webhook policy.lab denies them: "
            "images must come from lab/.",
        ),
        ("the moon is full", "Its pods cannot be created: the moon is full."),
    ]
    for message, sentence in cases:
        refused = event("bert", "FailedCreatePod", f"Error creating: {message}", kind="PyTorchJob")
        answer = explained(instance(has_pod=False), events=(refused,))
        if message.startswith("the moon"):
            sentence = sentence.replace("the moon", "Error creating: the moon")
        assert answer.sentence == sentence
        assert texts(answer, "event")[0].startswith("PyTorchJob/bert FailedCreatePod: Error creating:")


def test_a_kubelets_failed_create_is_not_taken_for_a_refusal() -> None:
    sandbox = event("bert-worker-0", "FailedCreatePodSandBox", "no network")
    answer = explained(on_node(), pods=[starting()], nodes=[node("a")], events=(sandbox,))
    assert answer.sentence == "Waits for its network on a: no network (worker-0)."


def quota(hard: Object, used: Object, **spec: Any) -> Any:
    return read(Quota, {"metadata": {"name": "gpus"}, "spec": spec, "status": {"hard": hard, "used": used}})


def test_a_quota_with_enough_left_or_for_other_pods_is_not_the_cause() -> None:
    key = "requests.nvidia.com/gpu"
    for others in (quota({key: "16"}, {key: "8"}), quota({key: "16"}, {key: "12"}, scopes=["BestEffort"])):
        assert "quota" not in explained(instance(has_pod=False), quotas=(others,)).sentence


def test_an_account_that_is_missing_is_named() -> None:
    assert explained(instance(has_pod=False), accounts={"trainer": None}).sentence == (
        "Its pods cannot be created: there is no ServiceAccount trainer."
    )


def test_a_job_on_another_cluster_names_the_cluster() -> None:
    job = replace(job_of([instance(has_pod=False, status=Status.UNKNOWN)], Status.RUNNING), is_elsewhere=True)
    admitted = {"type": "Admitted", "status": "True"}
    check = {"name": "mk", "state": "Ready", "message": 'The workload got reservation on "worker-us"'}
    for status, cluster in (
        ({"clusterName": "worker-eu"}, "worker-eu"),
        ({"admissionChecks": [check]}, "worker-us"),
        ({}, "another cluster"),
    ):
        found = read(o.Workload, {"metadata": {"name": "w"}, "status": {"conditions": [admitted], **status}})
        answer = explain(replace(evidence_of(instance()), job=job, workload=found))
        assert answer.sentence == f"Runs on {cluster}, its pods are not in this cluster."
