"""A job has no pods: it is deleted, suspended or queued, its pods are refused, or nothing acts on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from k8s.models import Meta, Quantities
from k8s.models.event import Event
from k8s.models.namespace import Quota, QuotaStatus
from k8s.reasons import requests
from k8s.reasons.cause import Cause, Fact
from k8s.reasons.evidence import QUEUE_LABEL, Evidence, dig
from k8s.reasons.objects import Workload, WorkloadStatus
from k8s.reasons.phrases import condition_text, count, cut, names, order, seconds_between, span
from k8s.reasons.pod_rules import counted_resource, limit_causes, missing_name, queue_cause, quota_causes
from k8s.status import Status
from k8s.text.lazy_pattern import lazy_pattern

# Seconds before the silence of an operator or scheduler means something.
PATIENCE_S = 60.0
# Of MultiKueue's admission check, in versions that do not write `clusterName`.
_RESERVED_ON = lazy_pattern(r'got reservation on "([^"]+)"')
# ACK's kube-queue holds a job back with this annotation.
KUBE_QUEUE = "scheduling.x-k8s.io/suspend"


def gone(evidence: Evidence) -> Cause | None:
    """Detect a job that no longer exists."""
    if not evidence.is_gone:
        return None
    ref = evidence.job.ref
    return Cause(f"It is gone: {ref.kind} {ref.name} was deleted.")


def unreadable(evidence: Evidence) -> Cause | None:
    """Detect a field of the wrong type in the job's object."""
    if not evidence.manifest or evidence.declared is not None:
        return None
    why = cut(evidence.job.reason) or "its object cannot be read"
    return Cause(f"Cannot tell: {why}.", help=("Correct that field in its object.",))


def being_deleted(evidence: Evidence) -> Cause | None:
    """Detect a deletion that something delays."""
    if evidence.job.status is not Status.TERMINATING:
        return None
    pods = [each for each in evidence.unfinished if each.pod]
    found = dig(evidence.manifest, "metadata", "finalizers")
    finalizers = [each for each in (found if isinstance(found, list) else ()) if isinstance(each, str)]
    held = f"; finalizers keep it: {names(finalizers)}" if finalizers and not pods else ""
    nodes = f" on {names(each.node for each in pods if each.node)}" if any(each.node for each in pods) else ""
    return Cause(f"Is being deleted: {count(len(pods), 'pod')} left{nodes}{held}.")


def operator_absent(evidence: Evidence) -> Cause | None:
    """Detect an operator that does not react."""
    has_answer = bool(evidence.manifest.get("status")) or any(each.pod for each in evidence.job.instances)
    if not evidence.manifest or has_answer or evidence.events_of(None, names={evidence.job.ref.name}):
        return None
    ref, age = evidence.job.ref, span(evidence.age_s)
    if evidence.age_s < PATIENCE_S:
        return Cause(f"Was created {age} ago; its operator has not reacted yet.")
    return Cause(
        f"No operator acts on it: {ref.kind} {ref.name} has no status and no pods after {age}.",
        (Fact("job", f"{ref.api_version} {ref.kind}, no status, no events, no pods"),),
        (f"Ask an administrator whether the operator for {ref.kind} is running.",),
    )


def refused(evidence: Evidence) -> Cause | None:
    """Detect a spec that the operator finds invalid; it may say so in an event only.

    Source: training-operator's PyTorchJobFailedValidation, mpi-operator's ValidationError.
    """
    if not evidence.podless:
        return None
    for event in evidence.events_of(None, names={evidence.job.ref.name}):
        if (event.reason or "").endswith(("FailedValidation", "ValidationError")):
            return Cause(
                f"Its operator rejects its spec: {cut(event.message)}.",
                (Fact("event", f"{event.involved_object.kind} {event.reason}: {cut(event.message)}"),),
                ("Correct the spec, and submit the job again.",),
            )
    return None


def no_pods_yet(evidence: Evidence) -> Cause | None:
    """Detect missing pods without a known reason."""
    if not evidence.podless or evidence.job.status is Status.SUSPENDED:
        return None
    made = len(evidence.job.instances) - len(evidence.podless)
    newest = max(
        (each for each in evidence.job.conditions if each.status == "True" and each.message),
        key=lambda each: order(each.last_transition_time),
        default=None,
    )
    facts = (Fact("job", condition_text(newest)),) if newest is not None else ()
    if not evidence.job.instances:
        return None
    total, age = len(evidence.job.instances), span(evidence.age_s)
    sentence = (
        f"Has {made} of {count(total, 'pod')}: its operator has not created the rest."
        if made
        else f"Has no pods: its operator has created none of {total}, {age} after it was created."
    )
    return Cause(sentence, facts)


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


def cannot_create(evidence: Evidence) -> Cause | None:
    """Detect pods that the server refused, from events."""
    if not evidence.podless:
        return None
    for event in evidence.events_of(None, "FailedCreate"):
        message = cut(event.message)
        for pattern, explain in _REJECTIONS:
            if (found := pattern.search(message)) and (cause := explain(evidence, found)):
                return Cause(cause.sentence, (_event_fact(event), *cause.facts), cause.help)
        return Cause(f"Its pods cannot be created: {message}.", (_event_fact(event),))
    return None


def _event_fact(event: Event) -> Fact:
    about = event.involved_object
    return Fact("event", f"{about.kind}/{about.name} {event.reason}: {cut(event.message)}")


def _over_quota(evidence: Evidence, found: re.Match[str]) -> Cause | None:
    name, requested, used, limited = found.groups()
    quota = Quota(Meta(name), status=QuotaStatus(_format_amounts(limited), _format_amounts(used)))
    # The server may have set requests that the template lacks.
    quantities = {counted_resource(key): value for key, value in _format_amounts(requested).items()}
    asked = requests.from_quantities(quantities)
    pods = {each.name: {**asked, **requests.of_pod(evidence.spec(each))} for each in evidence.podless}
    return _quota_cause(evidence, quota, pods)


def _quota_cause(evidence: Evidence, quota: Quota, pods: Mapping[str, requests.ResourceList]) -> Cause | None:
    together = [pods.get(name, each.requested) for each in evidence.together for name in each.instances]
    causes = quota_causes(quota, pods, together, evidence.job.ref.namespace)
    return min(causes, key=lambda cause: cause.severity, default=None)  # an error first


def _out_of_limits(evidence: Evidence, found: re.Match[str]) -> Cause:
    sentence = f"Its pods cannot be created: a LimitRange says {found[1]}."
    return out_of_limits(evidence) or Cause(sentence, help=("Request an amount within the limits.",))


def _format_amounts(text: str) -> Quantities:
    return {key: value for key, _, value in (each.partition("=") for each in text.split(",")) if value}


def _rejected(sentence: str, *help_lines: str) -> Callable[[Evidence, re.Match[str]], Cause]:
    return lambda _, found: Cause(sentence.format(*found.groups()), help=help_lines)


# Messages of servers that refuse a pod, and their explanations; the first match wins.
_REJECTIONS: tuple[tuple[re.Pattern[str], Callable[[Evidence, re.Match[str]], Cause | None]], ...] = (
    (lazy_pattern(r"exceeded quota: ([^,]+), requested: (\S+), used: (\S+), limited: (\S+)"), _over_quota),
    (
        lazy_pattern(r"failed quota: ([^:]+): must specify (.+)"),
        _rejected(
            "Its pods cannot be created: quota {0} requires every container to set {1}.",
            "Set these in every container.",
        ),
    ),
    (
        lazy_pattern(r"((?:maximum|minimum) \S+ usage per \w+ is .+|\S+ max limit to request ratio .+)"),
        _out_of_limits,
    ),
    (
        lazy_pattern(r"no PriorityClass with name (\S+) was found"),
        lambda _, found: missing_name("PriorityClass", found[1]),
    ),
    (
        lazy_pattern(r"service ?account \"?([^\s\":]+)\"? (?:was )?not found"),
        lambda _, found: missing_name("ServiceAccount", found[1]),
    ),
    (
        lazy_pattern(r"violates PodSecurity \"([^\"]+)\":? ?(.*)"),
        _rejected("Its pods cannot be created: PodSecurity {0} forbids them: {1}."),
    ),
    (
        lazy_pattern(r"admission webhook \"([^\"]+)\" denied the request:? ?(.*)"),
        _rejected("Its pods cannot be created: admission webhook {0} denies them: {1}."),
    ),
)


def no_such_name(evidence: Evidence) -> Cause | None:
    """Detect a missing PriorityClass or ServiceAccount."""
    named = (("PriorityClass", evidence.priorities), ("ServiceAccount", evidence.accounts))
    for kind, by_name in named if evidence.podless else ():
        if missing := [name for name, found in by_name.items() if found is None]:
            return missing_name(kind, names(missing))
    return None


def over_quota(evidence: Evidence) -> Cause | None:
    """Detect an exceeded quota by arithmetic, if no event names it."""
    pods = {each.name: requests.of_pod(evidence.spec(each)) for each in evidence.podless}
    causes = (_quota_cause(evidence, quota, pods) for quota in evidence.quotas if pods)
    return next(filter(None, causes), None)


def out_of_limits(evidence: Evidence) -> Cause | None:
    """Detect a violated LimitRange by arithmetic, if no event names it."""
    pods = ((each.name, evidence.spec(each)) for each in evidence.podless)
    return next(iter(limit_causes(evidence.limit_ranges, pods)), None)
