"""Pods have no node: volume claims, a missing scheduler, too little capacity, a gang."""

from __future__ import annotations

from msgspec.structs import replace

from k8s.reasons.cause import Cause, Fact
from k8s.reasons.causes.no_pods import PATIENCE_S
from k8s.reasons.evidence import Evidence
from k8s.reasons.phrases import count, cut, names, seconds_between, span, verb
from k8s.reasons.pod_rules import claim_cause, gang_cause
from k8s.reasons.requests import SchedulingSpec
from k8s.reasons.shortage import capacity_cause, is_refuted
from k8s.snapshot import Instance

# Time for new nodes to come. Source: cluster-autoscaler's --max-node-provision-time.
SCALE_UP_S = 900.0
_MEANS_UNSCHEDULED = "PodScheduled"
# Condition of a PodGroup of Kubernetes, which has no phase.
_GROUP_PLACED = "PodGroupScheduled"
_GROUP_RUNS = ("Running", "Scheduled", "Finished", "Completed")


def claims(evidence: Evidence) -> Cause | None:
    """Detect a volume claim that is missing or not bound."""
    waiting = [*evidence.unscheduled, *evidence.unstarted]
    mounting: dict[str, list[str]] = {}
    for each in waiting:
        for name in evidence.spec(each).claims:
            mounting.setdefault(name, []).append(each.name)
    for name, instances in mounting.items():
        if name not in evidence.claims:
            continue
        namespace = evidence.job.ref.namespace
        cause = claim_cause(name, evidence.claims[name], namespace, evidence.storage_classes)
        if cause is not None:
            mounts = Fact("claim", f"{names(instances)} {verb(instances, 'mounts', 'mount')} {name}")
            return replace(cause, facts=(mounts, *cause.facts))
    return None


def no_scheduler(evidence: Evidence) -> Cause | None:
    """Detect pods that no scheduler has tried to place."""
    ignored = [
        each for each in evidence.unscheduled if each.pod in evidence.pods and _is_ignored(evidence, each)
    ]
    if not ignored:
        return None
    age_s = max(
        seconds_between(evidence.pods[each.pod].metadata.creation_timestamp, evidence.now) for each in ignored
    )
    scheduler = evidence.pods[ignored[0].pod].spec.scheduler_name or "default-scheduler"
    which = names(each.name for each in ignored)
    if age_s < PATIENCE_S:
        return Cause(f"Waits for scheduler {scheduler}, which has not looked at {which} for {span(age_s)}.")
    return Cause(
        f"No scheduler acts on it: {scheduler} has not looked at {which} for {span(age_s)}.",
        (Fact("pods", f"schedulerName {scheduler}; no event and no condition of it on {which}"),),
        ("Name a scheduler that runs here, or ask an administrator whether this one does.",),
    )


def _is_ignored(evidence: Evidence, instance: Instance) -> bool:
    pod = evidence.pods[instance.pod]
    # The row may know its message already: it was made of a pod that was read at another moment.
    if pod.spec.scheduling_gates or "nodes available" in instance.reason:
        return False
    conditions = pod.status.conditions or ()
    has_reason = any(each.type == _MEANS_UNSCHEDULED and (each.message or each.reason) for each in conditions)
    return not has_reason and not evidence.events_of(
        "Pod", "FailedScheduling", "Scheduled", names={instance.pod}
    )


def scaling_up(evidence: Evidence) -> Cause | None:
    """Detect nodes being added by the cluster's autoscaler.

    Source: cluster-autoscaler's events on pods, TriggeredScaleUp and NotTriggerScaleUp.
    """
    waiting = {each.pod for each in evidence.unscheduled if each.pod}
    newest = next(
        iter(evidence.events_of("Pod", "TriggeredScaleUp", "NotTriggerScaleUp", names=waiting)), None
    )
    if newest is None or newest.reason != "TriggeredScaleUp":
        return None
    age_s = seconds_between(newest.at, evidence.now)
    if age_s > SCALE_UP_S:
        return None
    return Cause(
        f"Waits for new nodes, which the autoscaler requested {span(age_s)} ago: {cut(newest.message)}."
    )


def capacity(evidence: Evidence) -> Cause | None:
    """Detect too little capacity, by arithmetic."""
    if evidence.capacity is None or not evidence.capacity.nodes or not evidence.pod_sets:
        return None
    group = evidence.pod_group
    gang = group.min_pods if group is not None and group.min_pods > 1 else 0
    cause = capacity_cause(
        evidence.pod_sets,
        evidence.capacity,
        evidence.together,
        gang=gang,
        bound=len(evidence.unfinished) - len(evidence.unscheduled),
        holders=evidence.holders_by_node,
        silent_s=evidence.silent_s,
    )
    if cause is None or any(is_refuted(cause.brief, fact.text) for fact in _scheduler_facts(evidence)):
        return None
    facts = [*cause.facts, *_scheduler_facts(evidence)]
    if group is not None and gang:
        facts.append(Fact("gang", f"PodGroup {group.metadata.name}: all {gang} pods must fit at once"))
    if not evidence.sees_all_pods:
        facts.append(Fact("unseen", "other users' pods; less may be free"))
    return replace(cause, facts=tuple(facts))


def gang(evidence: Evidence) -> Cause | None:
    """Detect a PodGroup that has not been scheduled."""
    group = evidence.pod_group
    if group is None or not evidence.unscheduled or group.status.phase in _GROUP_RUNS:
        return None
    messages = [
        each
        for each in group.status.conditions or ()
        if each.message and each.status == ("False" if each.type == _GROUP_PLACED else "True")
    ]
    unschedulable = next((each for each in messages if each.type in ("Unschedulable", _GROUP_PLACED)), None)
    why = f": {cut(unschedulable.message)}" if unschedulable is not None else ""
    queue = f" in queue {group.spec.queue}" if group.spec.queue else ""
    state = f"PodGroup {group.metadata.name} is {group.status.phase or 'new'}{queue}{why}"
    facts = tuple(Fact("gang", f"{each.type}: {cut(each.message)}") for each in messages)
    return replace(gang_cause(group.min_pods, state), facts=facts)


def nominated(evidence: Evidence) -> Cause | None:
    """Detect pods that wait for others of lower priority to be preempted."""
    nodes_by_instance = {
        each.name: node
        for each in evidence.unscheduled
        if each.pod in evidence.pods and (node := evidence.pods[each.pod].status.nominated_node_name)
    }
    if not nodes_by_instance:
        return None
    nodes = names(nodes_by_instance.values())
    return Cause(
        f"Waits until pods of lower priority have left {nodes}: {names(nodes_by_instance)} goes there next."
    )


def scheduler_message(evidence: Evidence) -> Cause | None:
    """Detect a scheduler's reason that arithmetic does not find, or cannot without the nodes."""
    waiting = [each for each in evidence.unscheduled if each.pod]
    if not waiting:
        return None
    facts = _scheduler_facts(evidence)
    messages = [fact.text.partition(": ")[2] for fact in facts]
    if not messages:
        return None
    first = messages[0].partition(" preemption: ")[0].rstrip(", .")
    beside = sorted({text for each in waiting for text in _beside(evidence.spec(each))})
    fits = (
        ()
        if evidence.capacity is None
        else (Fact("nodes", "by requests and labels alone there would be room"),)
    )
    return Cause(
        f"Waits for a node: {names(each.name for each in waiting)}; the scheduler says {first}.",
        (*facts, *(Fact("pods", text) for text in beside), *fits),
    )


def _beside(spec: SchedulingSpec) -> list[str]:
    affinity = spec.affinity
    found = []
    if affinity is not None and affinity.pod_affinity is not None and affinity.pod_affinity.required:
        found.append("must be beside certain other pods (podAffinity)")
    if (
        affinity is not None
        and affinity.pod_anti_affinity is not None
        and affinity.pod_anti_affinity.required
    ):
        found.append("must not be beside certain other pods (podAntiAffinity)")
    strict = [
        each.topology_key
        for each in spec.topology_spread_constraints or ()
        if each.when_unsatisfiable != "ScheduleAnyway"
    ]
    if strict:
        found.append(f"must be spread evenly over {names(strict)}")
    return found


def _scheduler_facts(evidence: Evidence) -> list[Fact]:
    instances_by_message: dict[str, list[str]] = {}
    for each in evidence.unscheduled:
        if message := _scheduler_message(evidence, each):
            instances_by_message.setdefault(message, []).append(each.name)
    return [
        Fact("scheduler", f"{names(instances)}: {message}")
        for message, instances in instances_by_message.items()
    ]


def _scheduler_message(evidence: Evidence, instance: Instance) -> str:
    pod = evidence.pods.get(instance.pod)
    for each in (pod.status.conditions if pod is not None else None) or ():
        if each.type == _MEANS_UNSCHEDULED and each.status == "False" and each.message:
            return cut(each.message)
    newest = next(iter(evidence.events_of("Pod", "FailedScheduling", names={instance.pod})), None)
    if newest is not None:
        return cut(newest.message)
    return cut(instance.reason) if instance.pod and " nodes are available" in instance.reason else ""


def not_scheduled(evidence: Evidence) -> Cause | None:
    """Detect pods without a node and without a reason."""
    waiting = [each for each in evidence.unscheduled if each.pod]
    if not waiting:
        return None
    text = f"{count(len(waiting), 'pod')} without a node, {names(each.name for each in waiting)}"
    return Cause(f"Waits for a node: {text}; the scheduler gives no reason.")
