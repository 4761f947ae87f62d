"""Why pods have no node: claims, a scheduler that is not there, too little capacity, a gang."""

from __future__ import annotations

from k8s.diagnosis.answer import Cause, Fact
from k8s.diagnosis.causes.capacity import insufficient_capacity
from k8s.diagnosis.causes.held_back import PATIENCE_S
from k8s.diagnosis.evidence import Evidence
from k8s.diagnosis.words import count, cut, names, seconds_between, span, verb
from k8s.models.claim import Claim
from k8s.scheduling.scheduling_spec import SchedulingSpec
from k8s.snapshot import Instance

SCALE_UP_S = 900.0
"""How long new nodes may take to come; Source: cluster-autoscaler's --max-node-provision-time."""
_MEANS_UNSCHEDULED = "PodScheduled"
_GROUP_RUNS = ("Running", "Scheduled", "Finished", "Completed")


def claims(evidence: Evidence) -> Cause | None:
    """A volume claim is missing, or has no volume."""
    waiting = [*evidence.unscheduled, *evidence.unstarted]
    mounting: dict[str, list[str]] = {}
    for each in waiting:
        for name in evidence.spec(each).claims:
            mounting.setdefault(name, []).append(each.name)
    for name, instances in mounting.items():
        if name in evidence.claims and (
            cause := _claim_cause(evidence, name, evidence.claims[name], instances)
        ):
            return cause
    return None


def _claim_cause(evidence: Evidence, name: str, claim: Claim | None, instances: list[str]) -> Cause | None:
    who = names(instances)
    if claim is None:
        return Cause(
            f"Waits for volume claim {name}, which does not exist in {evidence.job.ref.namespace}.",
            (Fact("claim", f"{who} {verb(instances, 'mounts', 'mount')} {name}"),),
            (f"Create the claim {name}, or name one that exists: gpuconsole data list",),
        )
    if claim.metadata.deletion_timestamp is not None:
        return Cause(f"Waits for volume claim {name}, which is being deleted.")
    if claim.status.phase == "Lost":
        return Cause(f"Waits for volume claim {name}, whose volume {claim.spec.volume_name} is lost.")
    if claim.status.phase == "Bound" or not claim.status.phase:
        return None
    class_name = claim.spec.storage_class_name
    storage = evidence.storage_classes.get(class_name)
    fact = Fact("claim", f"{name} is {claim.status.phase}, storage class {class_name or 'none'}")
    if class_name and class_name in evidence.storage_classes and storage is None:
        return Cause(
            f"Waits for volume claim {name}: there is no storage class {class_name}.",
            (fact,),
            ("Make the claim anew with a storage class that exists.",),
        )
    if storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer":
        return None  # it is bound when a pod is placed, so that it keeps none from being placed
    if not class_name:
        return Cause(
            f"Waits for volume claim {name}: no volume is bound to it, and it names no storage class.",
            (fact,),
            ("Make a volume for the claim, or the claim anew with a storage class.",),
        )
    made_by = f", made by {storage.provisioner}" if storage is not None and storage.provisioner else ""
    return Cause(
        f"Waits for volume claim {name}: no volume is bound to it (storage class {class_name}{made_by}).",
        (fact,),
        (f"See what its events say: kubectl describe pvc {name}",),
    )


def no_scheduler(evidence: Evidence) -> Cause | None:
    """No scheduler has looked at its pods."""
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
    if pod.spec.scheduling_gates:
        return False
    conditions = pod.status.conditions or ()
    heard = any(each.type == _MEANS_UNSCHEDULED and (each.message or each.reason) for each in conditions)
    return not heard and not evidence.events_of("Pod", "FailedScheduling", "Scheduled", names={instance.pod})


def scaling_up(evidence: Evidence) -> Cause | None:
    """The cluster's autoscaler makes nodes for it.

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
        f"Waits for new nodes, for which the autoscaler asked {span(age_s)} ago: {cut(newest.message)}."
    )


def capacity(evidence: Evidence) -> Cause | None:
    """The nodes have too little capacity, by arithmetic."""
    if evidence.capacity is None or not evidence.capacity.nodes or not evidence.pod_sets:
        return None
    cause = insufficient_capacity(evidence.pod_sets, evidence.capacity, evidence.holders_by_node)
    if cause is None:
        return None
    unseen = () if evidence.sees_all_pods else (Fact("unseen", "pods of others, so that less may be free"),)
    group = evidence.pod_group
    gang = (
        (Fact("gang", f"PodGroup {group.metadata.name}: all {group.spec.min_member} pods must fit at once"),)
        if group is not None and group.spec.min_member > 1
        else ()
    )
    return Cause(cause.sentence, (*cause.facts, *gang, *_scheduler_facts(evidence), *unseen), cause.help)


def gang(evidence: Evidence) -> Cause | None:
    """Its PodGroup has not been let in as a whole."""
    group = evidence.pod_group
    if group is None or not evidence.unscheduled or group.status.phase in _GROUP_RUNS:
        return None
    messages = [each for each in group.status.conditions or () if each.status == "True" and each.message]
    unschedulable = next((each for each in messages if each.type == "Unschedulable"), None)
    why = f": {cut(unschedulable.message)}" if unschedulable is not None else ""
    queue = f" in queue {group.spec.queue}" if group.spec.queue else ""
    together = f"; {group.spec.min_member} pods must start together" if group.spec.min_member > 1 else ""
    phase = group.status.phase or "new"
    return Cause(
        f"Waits for its gang: PodGroup {group.metadata.name} is {phase}{queue}{together}{why}.",
        tuple(Fact("gang", f"{each.type}: {cut(each.message)}") for each in messages),
        ("Wait until all of them fit at once, or ask for fewer or smaller pods.",),
    )


def nominated(evidence: Evidence) -> Cause | None:
    """Pods of lower priority are being ended to make room for it."""
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


def scheduler_says(evidence: Evidence) -> Cause | None:
    """The scheduler gives a reason that arithmetic does not find, or nobody may see the nodes."""
    waiting = [each for each in evidence.unscheduled if each.pod]
    if not waiting:
        return None
    facts = _scheduler_facts(evidence)
    messages = [fact.text.partition(": ")[2] for fact in facts]
    if not messages:
        return None
    first = messages[0].partition(" preemption: ")[0].rstrip(", .")
    beside = sorted({words for each in waiting for words in _beside(evidence.spec(each))})
    fits = (
        ()
        if evidence.capacity is None
        else (Fact("nodes", "by requests and labels alone there would be room"),)
    )
    return Cause(
        f"Waits for a node: {names(each.name for each in waiting)}; the scheduler says {first}.",
        (*facts, *(Fact("pods", words) for words in beside), *fits),
    )


def _beside(spec: SchedulingSpec) -> list[str]:
    """Name the demands about other pods, which are not solved here."""
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
    """Return what the scheduler says of the waiting pods, each thing once."""
    instances_by_message: dict[str, list[str]] = {}
    for each in evidence.unscheduled:
        if message := _scheduler_words(evidence, each):
            instances_by_message.setdefault(message, []).append(each.name)
    return [
        Fact("scheduler", f"{names(instances)}: {message}")
        for message, instances in instances_by_message.items()
    ]


def _scheduler_words(evidence: Evidence, instance: Instance) -> str:
    pod = evidence.pods.get(instance.pod)
    for each in (pod.status.conditions if pod is not None else None) or ():
        if each.type == _MEANS_UNSCHEDULED and each.status == "False" and each.message:
            return cut(each.message)
    newest = next(iter(evidence.events_of("Pod", "FailedScheduling", names={instance.pod})), None)
    if newest is not None:
        return cut(newest.message)
    return cut(instance.reason) if instance.pod and " nodes are available" in instance.reason else ""


def not_scheduled(evidence: Evidence) -> Cause | None:
    """Pods are without a node, and nobody says why."""
    waiting = [each for each in evidence.unscheduled if each.pod]
    if not waiting:
        return None
    words = f"{count(len(waiting), 'pod')} without a node, {names(each.name for each in waiting)}"
    return Cause(f"Waits for a node: {words}; the scheduler gives no reason.")
