"""Why a job has not been let in: it is suspended, or waits in a queue, or its pods have a gate."""

from __future__ import annotations

from k8s.diagnosis.answer import Cause, Fact
from k8s.diagnosis.evidence import Evidence
from k8s.diagnosis.objects import Workload
from k8s.diagnosis.words import condition_words, count, cut, names, seconds_between, span
from k8s.status import Status

KUBE_QUEUE = "scheduling.x-k8s.io/suspend"
"""Annotation by which kube-queue, of ACK, holds a job back."""


def kueue(evidence: Evidence) -> Cause | None:
    """Kueue has not let it in."""
    workload = evidence.workload
    if workload is None:
        return _no_workload(evidence)
    true = {each.type: each for each in workload.status.conditions or () if each.status == "True"}
    if "Admitted" in true or "Finished" in true:
        return None
    queue = workload.spec.queue_name or evidence.queue
    local = evidence.local_queues.get(queue)
    reserved = workload.status.admission.cluster_queue if workload.status.admission is not None else ""
    cluster_queue = reserved or (local.spec.cluster_queue if local is not None else "")
    where = f"queue {queue}" + (f" (ClusterQueue {cluster_queue})" if cluster_queue else "")
    facts = [Fact("queue", condition_words(each)) for each in workload.status.conditions or ()]
    if evidence.queue_positions is not None:
        before, before_all = evidence.queue_positions
        facts.append(Fact("queue", f"{before} before it in {queue}, {before_all} in the ClusterQueue"))
    if not workload.spec.active:
        sentence = f"Kueue has stopped it: its Workload in {where} is not active."
        return Cause(sentence, tuple(facts), ("Set spec.active of its Workload to true again.",))
    if "QuotaReserved" in true:
        checks = [each for each in workload.status.admission_checks or () if each.state != "Ready"]
        waits = names(f"{each.name} ({each.state})" for each in checks)
        facts += [Fact("queue", f"{each.name}: {cut(each.message)}") for each in checks if each.message]
        return Cause(
            f"Waits in {where}: quota is reserved, admission waits for {waits or 'Kueue'}.", tuple(facts)
        )
    place = f", {evidence.queue_positions[0]} before it" if evidence.queue_positions is not None else ""
    why = _kueue_words(workload, evidence)
    return Cause(
        f"Waits in {where}{place}{f': {why}' if why else ''}.",
        tuple(facts),
        ("Ask for less, wait for the jobs before it, or use another queue.",),
    )


def _kueue_words(workload: Workload, evidence: Evidence) -> str:
    conditions = {each.type: each for each in workload.status.conditions or ()}
    evicted, reserved = conditions.get("Evicted"), conditions.get("QuotaReserved")
    parts = []
    if evicted is not None and evicted.status == "True":
        parts.append(f"it was evicted, {cut(evicted.message) or evicted.reason or 'for no given reason'}")
    if reserved is not None:
        parts.append(cut(reserved.message) or reserved.reason or "")
    again = workload.status.requeue_state
    if again is not None and again.requeue_at is not None:
        wait_s = -seconds_between(again.requeue_at, evidence.now)
        if wait_s > 0:
            parts.append(f"it is tried again in {span(wait_s)}")
    return "; ".join(part for part in parts if part)


def _no_workload(evidence: Evidence) -> Cause | None:
    queue = evidence.queue
    if not queue or evidence.job.status not in (Status.SUSPENDED, Status.QUEUED):
        return None
    if queue in evidence.local_queues and evidence.local_queues[queue] is None:
        return Cause(
            f"Waits in queue {queue}: there is no such LocalQueue in namespace {evidence.job.ref.namespace}.",
            (Fact("queue", f"label kueue.x-k8s.io/queue-name={queue}"),),
            ("Name a queue that exists, or ask an administrator for one.",),
        )
    local = evidence.local_queues.get(queue)
    inactive = next(
        (
            each
            for each in (local.status.conditions if local is not None else None) or ()
            if each.type == "Active"
        ),
        None,
    )
    if inactive is not None and inactive.status != "True":
        return Cause(
            f"Waits in queue {queue}, which takes nothing: {cut(inactive.message) or inactive.reason}."
        )
    return Cause(f"Waits in queue {queue}: Kueue has made no Workload for it, since {span(evidence.age_s)}.")


def suspended(evidence: Evidence) -> Cause | None:
    """It asks not to run."""
    if evidence.declared is not None and evidence.declared.meta.annotation(KUBE_QUEUE) == "true":
        return Cause(
            "Waits in kube-queue, which has not let it in.",
            (Fact("job", f"annotation {KUBE_QUEUE}=true"),),
            ("Wait for its turn; kube-queue takes the annotation away.",),
        )
    is_suspended = evidence.declared.is_suspended if evidence.declared is not None else False
    if not is_suspended and evidence.job.status is not Status.SUSPENDED:
        return None
    left = [each for each in evidence.unfinished if each.pod]
    more = f"; {count(len(left), 'pod')} still there" if left else ", so it has no pods"
    return Cause(
        f"Suspended: its object says suspend{more}.",
        (),
        (f"Resume it: gpuconsole resume {evidence.job.ref.name}",),
    )


def gated(evidence: Evidence) -> Cause | None:
    """A scheduling gate keeps its pods from being looked at."""
    gates = [
        gate.name
        for each in evidence.unscheduled
        for gate in evidence.spec(each).scheduling_gates or ()
        if each.pod
    ]
    if not gates:
        return None
    waiting = [each.name for each in evidence.unscheduled]
    sentence = (
        f"Its pods are gated: {names(waiting)} may not be scheduled before {names(gates)} is taken away."
    )
    return Cause(sentence, (), ("Whoever set the gate must take it away.",))
