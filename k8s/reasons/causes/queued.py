"""A job has not been admitted: it is suspended, queued, or its pods are gated."""

from __future__ import annotations

import re
from dataclasses import replace

from k8s.reasons.cause import Cause, Fact
from k8s.reasons.evidence import QUEUE_LABEL, Evidence
from k8s.reasons.objects import Workload, WorkloadStatus
from k8s.reasons.phrases import condition_text, count, cut, names, seconds_between, span
from k8s.reasons.pod_rules import queue_cause
from k8s.status import Status

# Of MultiKueue's admission check, in versions that do not write `clusterName`.
_RESERVED_ON = re.compile(r'got reservation on "([^"]+)"')
# ACK's kube-queue holds a job back with this annotation.
KUBE_QUEUE = "scheduling.x-k8s.io/suspend"


def kueue(evidence: Evidence) -> Cause | None:
    """Detect a job that Kueue has not admitted."""
    workload = evidence.workload
    if workload is None:
        return _no_workload(evidence)
    true = {each.type: each for each in workload.status.conditions or () if each.status == "True"}
    if "Admitted" in true or "Finished" in true:
        return None
    queue = workload.spec.queue_name or evidence.queue
    if "QuotaReserved" not in true and (cause := _queue_cause(evidence, queue)):
        return cause
    local = evidence.local_queues.get(queue)
    reserved = workload.status.admission.cluster_queue if workload.status.admission is not None else ""
    cluster_queue = reserved or (local.spec.cluster_queue if local is not None else "")
    where = f"queue {queue}" + (f" (ClusterQueue {cluster_queue})" if cluster_queue else "")
    facts = [Fact("queue", condition_text(each)) for each in workload.status.conditions or ()]
    if evidence.queue_positions is not None:
        before, before_all = evidence.queue_positions
        facts.append(Fact("queue", f"{before} before it in {queue}, {before_all} in the ClusterQueue"))
    if not workload.spec.active:
        sentence = f"Kueue has deactivated it: its Workload in {where} is not active."
        return Cause(sentence, tuple(facts), ("Set spec.active of its Workload to true again.",))
    if "QuotaReserved" in true:
        checks = [each for each in workload.status.admission_checks or () if each.state != "Ready"]
        waits = names(f"{each.name} ({each.state})" for each in checks)
        facts += [Fact("queue", f"{each.name}: {cut(each.message)}") for each in checks if each.message]
        return Cause(
            f"Waits in {where}: quota is reserved, admission waits for {waits or 'Kueue'}.", tuple(facts)
        )
    place = f", {evidence.queue_positions[0]} before it" if evidence.queue_positions is not None else ""
    why = _describe_kueue(workload, evidence)
    return Cause(
        f"Waits in {where}{place}{f': {why}' if why else ''}.",
        tuple(facts),
        ("Request less, wait for the jobs before it, or use another queue.",),
    )


def elsewhere(evidence: Evidence) -> Cause | None:
    """Detect a job that Kueue runs on another cluster."""
    if not evidence.job.is_elsewhere or evidence.job.status is not Status.RUNNING:
        return None
    status = evidence.workload.status if evidence.workload is not None else WorkloadStatus()
    messages = " ".join(each.message for each in status.admission_checks or ())
    found = _RESERVED_ON.search(messages)
    cluster = status.cluster_name or (found[1] if found else "another cluster")
    return Cause(
        f"Runs on {cluster}, its pods are not in this cluster.",
        help=("Its log, shell and curves are there: use the context of that cluster.",),
    )


def _describe_kueue(workload: Workload, evidence: Evidence) -> str:
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
            parts.append(f"the next attempt is in {span(wait_s)}")
    return "; ".join(part for part in parts if part)


def _no_workload(evidence: Evidence) -> Cause | None:
    queue = evidence.queue
    if not queue or evidence.job.status not in (Status.SUSPENDED, Status.QUEUED):
        return None
    sentence = f"Waits in queue {queue}: Kueue has created no Workload for it in {span(evidence.age_s)}."
    return _queue_cause(evidence, queue) or Cause(sentence)


def _queue_cause(evidence: Evidence, queue: str) -> Cause | None:
    if queue not in evidence.local_queues:
        return None
    cause = queue_cause(queue, evidence.local_queues[queue], evidence.job.ref.namespace)
    fact = Fact("queue", f"label {QUEUE_LABEL}={queue}")
    return replace(cause, facts=(fact,)) if cause is not None else None


def suspended(evidence: Evidence) -> Cause | None:
    """Detect a suspended job."""
    if evidence.declared is not None and evidence.declared.meta.annotation(KUBE_QUEUE) == "true":
        return Cause(
            "Waits in kube-queue, which has not admitted it.",
            (Fact("job", f"annotation {KUBE_QUEUE}=true"),),
            ("Wait for its turn; kube-queue removes the annotation.",),
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
    """Detect pods held back by a scheduling gate."""
    gates = [
        gate.name
        for each in evidence.unscheduled
        for gate in evidence.spec(each).scheduling_gates or ()
        if each.pod
    ]
    if not gates:
        return None
    waiting = [each.name for each in evidence.unscheduled]
    sentence = f"Its pods are gated: {names(waiting)} may not be scheduled until {names(gates)} is removed."
    return Cause(sentence, (), ("The controller that set the gate must remove it.",))
