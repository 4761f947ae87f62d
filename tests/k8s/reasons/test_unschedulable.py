"""Pods without a node for other reasons than capacity; with exact sentences."""

from __future__ import annotations

from typing import Any

from k8s.models.claim import Claim
from k8s.reasons import objects as o
from k8s.reasons.cause import Cause
from tests.support.evidence import event, explained, held, instance, pod, read, spec_of, texts
from tests.support.objects import node

MOUNTS = spec_of(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "corpus"}}])


def test_a_wait_for_first_consumer_claim_does_not_block_scheduling() -> None:
    pending = {"spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}}
    late = {"metadata": {"name": "fast"}, "volumeBindingMode": "WaitForFirstConsumer"}
    answer = explained(
        instance(),
        pods=[pod("master-0", MOUNTS)],
        nodes=[node("a")],
        rows=[held("a", 8, gpt=8)],
        claims={"corpus": read(Claim, {"metadata": {"name": "corpus"}, **pending})},
        storage_classes={"fast": read(o.StorageClass, late)},
    )
    assert answer.sentence == "Waits for GPUs: master-0 needs 8 nvidia.com/gpu; none is free (8 in use)."


def test_a_missing_scheduler_is_reported_after_a_minute() -> None:
    ignored = spec_of(schedulerName="nobody")
    answer = explained(instance(), pods=[pod("master-0", ignored, conditions=[])], nodes=[node("a")])
    assert answer.sentence == "No scheduler acts on it: nobody has not looked at master-0 for 5 min."
    young = pod("master-0", ignored, age_s=20, conditions=[])
    assert explained(instance(), pods=[young], nodes=[node("a")]).sentence == (
        "Waits for scheduler nobody, which has not looked at master-0 for 20 s."
    )


def test_autoscaler_scale_up_is_reported_until_it_is_overdue_or_refused() -> None:
    def ask(seconds_ago: float, *more: Any) -> Cause:
        asked = event("bert-master-0", "TriggeredScaleUp", "gpu-pool 1->2", seconds_ago=seconds_ago)
        nodes, rows = [node("a")], [held("a", 8, gpt=8)]
        pods = [pod("master-0")]
        return explained(instance(), pods=pods, nodes=nodes, rows=rows, events=(asked, *more))

    answer = ask(40)
    assert answer.sentence == "Waits for new nodes, which the autoscaler requested 40 s ago: gpu-pool 1->2."
    assert texts(answer, "also")[0].startswith("Waits for GPUs:")
    assert ask(2000).sentence.startswith("Waits for GPUs:")
    refused = event("bert-master-0", "NotTriggerScaleUp", "max size reached", seconds_ago=5)
    assert ask(40, refused).sentence.startswith("Waits for GPUs:")


def test_a_gang_of_which_a_part_fits_waits_for_all_of_it() -> None:
    names = [f"worker-{number}" for number in range(5)]
    for spec, said in (
        (
            {"schedulingPolicy": {"gang": {"minCount": 5}}},
            "Waits for its gang: 5 must start together, 2 fit.",
        ),
        ({"minMember": 4}, "Waits for its gang: 4 must start together, 2 fit."),
        ({"schedulingPolicy": {"basic": {}}}, "Waits for GPUs: room for 2 of 5 pods"),
    ):
        group = read(o.PodGroup, {"metadata": {"name": "gang"}, "spec": spec})
        answer = explained(
            *map(instance, names),
            pods=list(map(pod, names)),
            nodes=list(map(node, "abcde")),
            rows=[held("a", 8), held("b", 8), *(held(each, 8, gpt=8) for each in "cde")],
            pod_group=group,
        )
        assert answer.sentence.startswith(said)


def test_devices_that_only_the_scheduler_sees_are_not_called_missing() -> None:
    message = "0/1 nodes are available: 1 cannot allocate all claims."
    unplaced = {"type": "PodScheduled", "status": "False", "message": message}
    bare = node("a", gpus=0)
    answer = explained(instance(), pods=[pod("master-0", conditions=[unplaced])], nodes=[bare])
    assert answer.sentence.startswith("Waits for a node: master-0; the scheduler says 0/1 nodes")


def test_a_native_pod_group_is_reported_with_its_condition() -> None:
    said = {
        "type": "PodGroupScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "2 of 3 placed",
    }
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = read(o.PodGroup, {"metadata": {"name": "g"}, "spec": spec, "status": {"conditions": [said]}})
    answer = explained(
        instance(), pods=[pod("master-0")], nodes=[node("a")], rows=[held("a", 8)], pod_group=group
    )
    assert answer.sentence == (
        "Waits for its gang: PodGroup g is new; 3 pods must start together: 2 of 3 placed."
    )


def test_a_waiting_pod_group_is_reported_with_its_phase_and_scheduler_message() -> None:
    said = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": "2/4 tasks in gang",
    }
    group = read(
        o.PodGroup,
        {
            "metadata": {"name": "bert"},
            "spec": {"minMember": 4, "queue": "lab"},
            "status": {"phase": "Inqueue", "conditions": [said]},
        },
    )
    room = [node("a")]
    answer = explained(instance(), pods=[pod("master-0")], nodes=room, rows=[held("a", 8)], pod_group=group)
    assert answer.sentence == (
        "Waits for its gang: PodGroup bert is Inqueue in queue lab; 4 pods must start together: "
        "2/4 tasks in gang."
    )
    full = explained(
        instance(), pods=[pod("master-0")], nodes=room, rows=[held("a", 8, gpt=8)], pod_group=group
    )
    assert full.sentence.startswith("Waits for GPUs:")
    assert "PodGroup bert: all 4 pods must fit at once" in texts(full, "gang")
    assert texts(full, "also")[0].startswith("Waits for its gang:")


def test_a_preempting_pod_is_reported_with_its_nominated_node() -> None:
    answer = explained(
        instance(), pods=[pod("master-0", nominatedNodeName="a")], nodes=[node("a")], rows=[held("a", 8)]
    )
    assert answer.sentence == "Waits until pods of lower priority have left a: master-0 goes there next."


def test_pod_affinity_and_spread_constraints_are_reported_with_the_scheduler_message() -> None:
    term = [{"topologyKey": "kubernetes.io/hostname"}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": term}
    spread = [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": when}
        for key, when in (("zone", "DoNotSchedule"), ("rack", "ScheduleAnyway"))
    ]
    spec = spec_of(
        affinity={"podAffinity": required, "podAntiAffinity": required}, topologySpreadConstraints=spread
    )
    words = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. preemption: none helps."
    unscheduled = {"type": "PodScheduled", "status": "False", "message": words}
    answer = explained(
        instance(),
        pods=[pod("master-0", spec, conditions=[unscheduled])],
        nodes=[node("a")],
        rows=[held("a", 8)],
    )
    assert answer.sentence == (
        "Waits for a node: master-0; the scheduler says 0/1 nodes are available: "
        "1 node(s) didn't match pod anti-affinity rules."
    )
    assert {
        "must be beside certain other pods (podAffinity)",
        "must not be beside certain other pods (podAntiAffinity)",
        "must be spread evenly over zone",
    } <= set(texts(answer, "pods"))


def test_without_permission_to_list_nodes_the_scheduler_message_is_reported() -> None:
    failed = event(
        "bert-master-0", "FailedScheduling", "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."
    )
    bare = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    answer = explained(
        instance(),
        pods=[pod("master-0", conditions=[bare])],
        events=(failed,),
        unseen=("nodes: User cannot list resource nodes",),
    )
    assert answer.sentence == (
        "Waits for a node: master-0; the scheduler says 0/9 nodes are available: 9 Insufficient "
        "nvidia.com/gpu."
    )
    assert texts(answer, "unseen") == ["nodes: User cannot list resource nodes"]


def test_uncounted_resources_of_a_tainted_node_are_not_reported_as_free() -> None:
    closed = node("a", 0, taints=[{"key": "k", "effect": "NoSchedule"}])
    closed["status"]["allocatable"]["pods"] = "110"
    answer = explained(instance(), pods=[pod("master-0", {"containers": []})], nodes=[closed])
    assert "a: 110 pods, tainted" in texts(answer, "nodes")
    assert "master-0: no requests" in texts(answer, "pods")
