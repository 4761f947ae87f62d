"""Pods have no node: volume claims, a missing scheduler, too little capacity, a gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from k8s.diagnosis.causes.held_back import PATIENCE_S
from k8s.diagnosis.evidence import Evidence
from k8s.models import accelerators
from k8s.models.node import cordon_reason, faults
from k8s.reasons.cause import Cause, Fact
from k8s.reasons.phrases import amount, bare_amount, count, cut, names, seconds_between, span, verb
from k8s.reasons.pod_rules import claim_cause
from k8s.reasons.shortage import (
    PodSet,
    Shortage,
    ShortageKind,
    find_shortage,
    is_never_feasible,
    is_refuted,
)
from k8s.scheduling.predicates import ClusterCapacity, InfeasibleNode, InfeasibleReason, importance
from k8s.scheduling.requests import PODS, insufficient
from k8s.scheduling.scheduling_spec import SchedulingSpec
from k8s.snapshot import Instance

# Time for new nodes to come. Source: cluster-autoscaler's --max-node-provision-time.
SCALE_UP_S = 900.0
_MEANS_UNSCHEDULED = "PodScheduled"
# Condition of a PodGroup of Kubernetes, which has no phase.
_GROUP_PLACED = "PodGroupScheduled"
_GROUP_RUNS = ("Running", "Scheduled", "Finished", "Completed")
# Nodes that get a fact of their own.
_NODES_SHOWN = 6
# Larger requests are not tried in smaller sizes.
_MOST_TRIED = 64


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
    cause = _insufficient_capacity(
        evidence.pod_sets, evidence.capacity, evidence.holders_by_node, evidence.together, evidence.silent_s
    )
    if cause is None or any(is_refuted(cause.brief, fact.text) for fact in _scheduler_facts(evidence)):
        return None
    unseen = () if evidence.sees_all_pods else (Fact("unseen", "other users' pods; less may be free"),)
    group = evidence.pod_group
    if group is None or group.min_pods < 2:
        return replace(cause, facts=(*cause.facts, *_scheduler_facts(evidence), *unseen))
    together = f"PodGroup {group.metadata.name}: all {group.min_pods} pods must fit at once"
    shortage = find_shortage(evidence.pod_sets, evidence.capacity)
    is_busy = shortage is not None and shortage.kind is ShortageKind.BUSY and bool(cause.brief)
    fit = shortage.placed + len(evidence.unfinished) - len(evidence.unscheduled) if shortage else 0
    if is_busy and len(evidence.pod_sets) == 1 and 0 < fit < group.min_pods:
        text = (
            f"Waits for its gang: {group.min_pods} must start together, {fit} {'fits' if fit == 1 else 'fit'}"
        )
        together += f"; {cause.sentence}"
        cause = replace(cause, sentence=f"{text}.", brief=text)
    facts = (*cause.facts, Fact("gang", together), *_scheduler_facts(evidence), *unseen)
    return replace(cause, facts=facts)


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
    together = f"; {group.min_pods} pods must start together" if group.min_pods > 1 else ""
    phase = group.status.phase or "new"
    return Cause(
        f"Waits for its gang: PodGroup {group.metadata.name} is {phase}{queue}{together}{why}.",
        tuple(Fact("gang", f"{each.type}: {cut(each.message)}") for each in messages),
        ("Wait until all of them fit at once, or use fewer or smaller pods.",),
    )


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


def _insufficient_capacity(
    pod_sets: Sequence[PodSet],
    capacity: ClusterCapacity,
    holders: Mapping[str, Counter[str]],
    together: Sequence[PodSet],
    silent_s: Mapping[str, float],
) -> Cause | None:
    """Return the reason why not all pods find a node; None if, by arithmetic, they all do.

    `pod_sets` are the pods without a node, `together` those that must run at once, including pods that
    have a node, `holders` the accelerators held on each node, by other job, and `silent_s` the jobs that
    probably hang.
    """
    shortage = find_shortage(pod_sets, capacity)
    if shortage is None:
        return None
    pods = Fact("pods", _format_pods(shortage.pod_set))
    nodes = _node_facts(shortage, holders)
    closed = _closed_facts(shortage)
    match shortage.kind:
        case ShortageKind.NO_MATCH:
            advice = ["Change the node selector or the affinity, or have a node labelled."]
            facts = [pods, *_label_facts(shortage)]
        case ShortageKind.TOO_BIG:
            advice, facts = [_smaller_than_any(shortage)], [pods, *nodes]
        case ShortageKind.TOO_BIG_TOGETHER:
            advice, facts = ["Request less of one of them."], [pods, *nodes]
        case ShortageKind.CLOSED:
            advice, facts = _advice_on_closed(shortage.closed), [pods, *closed, *nodes]
        case ShortageKind.BUSY if never := _beyond_empty_cluster(together, capacity):
            advice = [*_smaller(shortage), "Use fewer or smaller pods, or have nodes added."]
            return Cause(never, (pods, *closed, *nodes), tuple(advice))
        case ShortageKind.BUSY:
            advice = [
                *_smaller(shortage),
                *_pods_to_wait_for(shortage, holders, silent_s),
                *_advice_on_closed(shortage.closed_with_main),
            ]
            facts = [pods, *closed, *nodes]
    return Cause(shortage.sentence, tuple(facts), tuple(advice), shortage.brief)


def _beyond_empty_cluster(together: Sequence[PodSet], capacity: ClusterCapacity) -> str:
    # A single pod that is too large has its own message.
    shortage = find_shortage(together, capacity.emptied(), is_never_feasible)
    is_sum = shortage is not None and shortage.kind is ShortageKind.BUSY
    return f"Never fits: {shortage.beyond_empty_cluster}." if shortage is not None and is_sum else ""


def _label_facts(shortage: Shortage) -> list[Fact]:
    facts = []
    for key, value in (shortage.pod_set.spec.node_selector or {}).items():
        labels = [each.node.metadata.labels or {} for each in shortage.capacity.nodes.values()]
        seen = Counter(each.get(key, "") for each in labels)
        if value not in seen:
            others = names(f"{each} ({count(number, 'node')})" for each, number in seen.most_common() if each)
            facts.append(Fact("nodes", f"no node has {key}={value}; {key} is {others or 'on none of them'}"))
    infeasible = shortage.infeasible[:_NODES_SHOWN]
    return facts or [Fact("nodes", f"{each.name} lacks {each.detail}") for each in infeasible]


def _smaller_than_any(shortage: Shortage) -> str:
    most, _ = shortage.largest
    if most <= 0:
        return f"Request a resource that the nodes have, or have {shortage.main} set up on them."
    return f"Request {amount(shortage.main, most)} or less per pod; more pods can make up for it."


def _format_pods(pod_set: PodSet) -> str:
    requested = pod_set.requested
    wants = names(amount(each, requested[each]) for each in sorted(requested, key=importance) if each != PODS)
    verb = "needs" if len(pod_set.instances) == 1 else "each need"
    return (
        f"{names(pod_set.instances)} {verb} {wants}" if wants else f"{names(pod_set.instances)}: no requests"
    )


def _closed_facts(shortage: Shortage) -> list[Fact]:
    facts = []
    for reason in InfeasibleReason:
        closed = [each for each in shortage.infeasible if each.reason is reason]
        if closed and reason.is_closed:
            why = names(
                text for each in closed if (text := each.detail or _trouble(shortage.capacity, each.name))
            )
            which = names(each.name for each in closed)
            facts.append(Fact("nodes", f"{reason}: {which}{f' ({why})' if why else ''}"))
    return facts


def _trouble(capacity: ClusterCapacity, name: str) -> str:
    node = capacity.nodes[name].node
    found = [each.type for each in faults(node.status.conditions)]
    return ", ".join(filter(None, (cordon_reason(node.metadata), *found)))


def _advice_on_closed(closed: Sequence[InfeasibleNode]) -> list[str]:
    lines = {
        InfeasibleReason.CORDONED: "An administrator can uncordon {}.",
        InfeasibleReason.NOT_READY: "An administrator can repair the nodes that do not answer: {}.",
        InfeasibleReason.TAINTED: "Tolerate the taint, if these nodes are meant for you: {}.",
    }
    named = {reason: [each.name for each in closed if each.reason is reason] for reason in lines}
    return [line.format(names(named[reason])) for reason, line in lines.items() if named[reason]]


def _node_facts(shortage: Shortage, holders: Mapping[str, Counter[str]]) -> list[Fact]:
    main = shortage.main
    having = [each for each in shortage.matching if each.allocatable.get(main, 0) > 0]
    closed = {each.name: each.reason for each in shortage.infeasible if each.reason.is_closed}
    having.sort(key=lambda each: (each.name in closed, -each.free.get(main, 0), each.name))
    facts = []
    for each in having[:_NODES_SHOWN]:
        free, total = max(0, each.free.get(main, 0)), amount(main, each.allocatable[main])
        # Only of accelerators are all pods counted; the pods of a closed node are not read.
        is_counted = accelerators.is_accelerator(main) or free != each.allocatable[main]
        text = (
            f"{each.name}: {bare_amount(main, free)} of {total} free"
            if is_counted
            else f"{each.name}: {total}"
        )
        jobs = holders.get(each.name)
        if accelerators.is_accelerator(main) and jobs:
            text += f", held by {names(f'{job} ({gpus})' for job, gpus in jobs.most_common())}"
        if each.name in closed:
            text += f", {closed[each.name]}"
        facts.append(Fact("nodes", text))
    if len(having) > _NODES_SHOWN:
        facts.append(Fact("nodes", f"{len(having) - _NODES_SHOWN} more nodes have {main}"))
    return facts


def _smaller(shortage: Shortage) -> list[str]:
    pod_set, main = shortage.pod_set, shortage.main
    pods = len(pod_set.instances)
    if not accelerators.is_accelerator(main) or pod_set.requested[main] > _MOST_TRIED:
        return []
    for size in range(int(pod_set.requested[main]) - 1, 0, -1):
        smaller = PodSet(pod_set.instances, pod_set.spec, {**pod_set.requested, main: size})
        if find_shortage([smaller], shortage.capacity) is None:
            which = "1 pod of that size fits" if pods == 1 else f"{pods} pods of that size fit"
            return [f"Request {amount(main, size)} per pod: {which} now."]
    return []


def _pods_to_wait_for(
    shortage: Shortage, holders: Mapping[str, Counter[str]], silent_s: Mapping[str, float]
) -> list[str]:
    main, requested = shortage.main, shortage.pod_set.requested
    if not accelerators.is_accelerator(main):
        return []
    best: tuple[int, int, int, str, list[tuple[str, int]]] | None = None
    for node in shortage.open:
        if insufficient(requested, node.allocatable):
            continue
        missing = requested[main] - node.free.get(main, 0)
        leaving: list[tuple[str, int]] = []
        for job, gpus in holders.get(node.name, Counter()).most_common():
            if missing > 0:
                leaving.append((job, gpus))
                missing -= gpus
        if leaving and missing <= 0:
            hung = sum(job in silent_s for job, _ in leaving)
            option = (hung, len(leaving), sum(gpus for _, gpus in leaving), node.name, leaving)
            best = min(best, option) if best is not None else option
    if best is None:
        return []
    _, _, freed, where, jobs = best
    if hanging := [job for job, _ in jobs if job in silent_s]:
        quiet = span(max(silent_s[job] for job in hanging))
        has = verb(hanging, "has", "have")
        return [
            f"Do not wait for {names(hanging)} on {where} ({count(freed, 'GPU')}), which {has} printed "
            f"nothing for {quiet}. See whether it hangs: gpuconsole diagnose {hanging[0]}"
        ]
    return [f"Wait for {names(job for job, _ in jobs)} on {where} ({count(freed, 'GPU')})."]
