"""Arithmetic of unschedulable pods, sentence by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from k8s.reasons.evidence import Evidence
from k8s.reasons.pending import FreeBlocks
from k8s.reasons.rules import explain
from k8s.snapshot import Job, NodeRow, Share
from k8s.status import Status
from tests.k8s.reasons.test_pending import Cluster
from tests.support.evidence import (
    evidence_of,
    explained,
    held,
    instance,
    labelled,
    pod,
    silent,
    spec_of,
    texts,
)
from tests.support.objects import GPU, Object, joined, node, pod_of, pytorch_job

WORKERS = ("master-0", "worker-0", "worker-1", "worker-2")


def gang(nodes: list[Object], *names: str, spec: Object | None = None, **parts: Any) -> Evidence:
    """Return a job whose pods no scheduler has found nodes for."""
    found = names or WORKERS
    return evidence_of(*map(instance, found), pods=[pod(name, spec) for name in found], nodes=nodes, **parts)


def test_the_largest_free_block_is_compared_with_the_request_of_each_pod() -> None:
    nodes = [node("a100-1"), node("a100-9"), *(node(f"a100-{i}", unschedulable=True) for i in (5, 6, 7))]
    rows = [held("a100-1", 8, bert_large=8), held("a100-9", 8, gpt=4)]
    answer = explain(gang(nodes, rows=rows))
    assert answer.sentence == (
        "Waits for GPUs: each of 4 pods needs 8 nvidia.com/gpu; the largest free block is 4 on a100-9 "
        "(4 free in total, 3 nodes cordoned)."
    )
    assert answer.help == (
        "Request 1 nvidia.com/gpu per pod: 4 pods of that size fit now.",
        "Wait for gpt on a100-9 (4 GPUs).",
        "An administrator can uncordon a100-5, a100-6 and a100-7.",
    )
    texts = [fact.text for fact in answer.facts]
    assert "a100-9: 4 of 8 nvidia.com/gpu free, held by gpt (4)" in texts
    assert "a100-1: 0 of 8 nvidia.com/gpu free, held by bert_large (8)" in texts
    assert "master-0, worker-0, worker-1 and worker-2 each need 8 nvidia.com/gpu" in texts


def test_the_total_of_free_gpus_is_compared_with_the_request_of_the_gang() -> None:
    nodes = [node(name) for name in "abcd"]
    rows = [held("a", 8), held("b", 8, gpt=1), held("c", 8, gpt=8), held("d", 8, gpt=8)]
    answer = explain(gang(nodes, rows=rows))
    assert answer.sentence == (
        "Waits for GPUs: room for 1 of 4 pods, each needs 8 nvidia.com/gpu "
        "(15 free in total, together they need 32)."
    )
    assert answer.help[0] == "Request 3 nvidia.com/gpu per pod: 4 pods of that size fit now."


def test_pods_too_large_for_the_empty_cluster_are_not_advised_to_wait() -> None:
    nodes = [node("a"), node("b")]
    answer = explain(gang(nodes, rows=[held("a", 8), held("b", 8, gpt=1)]))
    assert answer.sentence == (
        "Never fits: 4 pods need 8 nvidia.com/gpu each; the empty cluster has room for 2."
    )
    assert answer.help == (
        "Request 3 nvidia.com/gpu per pod: 4 pods of that size fit now.",
        "Use fewer or smaller pods, or have nodes added.",
    )


def test_scheduled_pods_count_towards_the_pods_that_must_fit() -> None:
    up = instance("master-0", Status.RUNNING, node="a")
    answer = explained(
        up, instance("worker-0"), pods=[pod("worker-0")], nodes=[node("a")], rows=[held("a", 8, b=8)]
    )
    assert answer.sentence == (
        "Never fits: 2 pods need 8 nvidia.com/gpu each; the empty cluster has room for 1."
    )


@pytest.mark.parametrize(
    "closed", [node("c", unschedulable=True), silent("c")], ids=["cordoned", "not ready"]
)
def test_cordoned_and_unready_nodes_count_for_whether_a_job_can_ever_fit(closed: Object) -> None:
    nodes = [node("a"), node("b"), node("d"), closed]
    rows = [held(name, 8, gpt=8) for name in "abcd"]
    assert explain(gang(nodes, rows=rows)).sentence.startswith("Waits for GPUs")


def test_a_busy_cluster_reports_gpus_in_use_and_the_job_to_wait_for() -> None:
    nodes = [node("a"), node("b"), silent("c")]
    rows = [held("a", 8, small=2, smaller=1, big=5), held("b", 8, huge=8), held("c", 8)]
    answer = explain(gang(nodes, "master-0", rows=rows))
    assert answer.sentence == (
        "Waits for GPUs: master-0 needs 8 nvidia.com/gpu; none is free (16 in use, 1 node not ready)."
    )
    assert answer.help[0] == "Wait for huge on b (8 GPUs)."
    assert not any("a pod:" in line for line in answer.help)


def test_a_job_that_hangs_is_not_waited_for() -> None:
    nodes = [node("a"), node("b")]
    silent = {"bloom": 1800.0}
    rows = [held("a", 8, bloom=8), held("b", 8, opt=4, vit=4)]
    answer = explain(gang(nodes, "master-0", rows=rows, silent_s=silent))
    assert answer.help[0] == "Wait for opt and vit on b (8 GPUs)."
    answer = explain(gang(nodes[:1], "master-0", rows=rows[:1], silent_s=silent))
    assert answer.help[0] == (
        "Do not wait for bloom on a (8 GPUs), which has printed nothing for 30 min. "
        "See whether it hangs: gpuconsole diagnose bloom"
    )


def test_waiting_for_a_node_that_is_too_small_is_not_advised() -> None:
    nodes, rows = [node("a"), node("b")], [held("a", 8, whole=8), held("b", 8, one=4, other=4)]
    nodes[0]["status"]["allocatable"]["cpu"] = "1"
    spec = spec_of()
    spec["containers"][0]["resources"]["limits"]["cpu"] = "2"
    answer = explain(gang(nodes, "master-0", spec=spec, rows=rows))
    assert answer.help[0] == "Wait for one and other on b (8 GPUs)."


def test_a_node_with_a_single_gpu_is_named_with_who_holds_it() -> None:
    answer = explain(gang([node("a", 1)], "master-0", spec=spec_of(1), rows=[held("a", 1, gpt=1)]))
    assert texts(answer, "nodes") == ["a: 0 of 1 nvidia.com/gpu free, held by gpt (1)"]


def test_an_unmatched_node_selector_is_reported_with_the_existing_label_values() -> None:
    nodes = [labelled("a", labels={"disk": "hdd"}), labelled("b", labels={"disk": "hdd"}), labelled("c")]
    answer = explain(gang(nodes, "master-0", spec=spec_of(nodeSelector={"disk": "ssd"})))
    assert answer.sentence == "No node matches: master-0 asks for disk=ssd; 3 nodes looked at."
    assert "no node has disk=ssd; disk is hdd (2 nodes)" in [fact.text for fact in answer.facts]


def test_an_unmatched_node_affinity_is_reported_in_words() -> None:
    term = {"matchExpressions": [{"key": "gpu.memory", "operator": "Gt", "values": ["80000"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = spec_of(affinity={"nodeAffinity": required})
    answer = explain(gang([labelled("a", labels={"gpu.memory": "40000"})], "master-0", spec=spec))
    assert answer.sentence == "No node matches: master-0 asks for gpu.memory > 80000; 1 node looked at."


def test_taints_that_keep_a_pod_from_all_nodes_are_named() -> None:
    taint = {"key": "dedicated", "value": "vision", "effect": "NoSchedule"}
    nodes = [node("a", taints=[taint]), node("b", taints=[taint]), node("c", unschedulable=True)]
    answer = explain(gang(nodes, "master-0"))
    assert answer.sentence == (
        "Waits for a node: master-0 needs 8 nvidia.com/gpu; no node that is large enough accepts it "
        "(2 nodes tainted, 1 cordoned)."
    )
    assert "tainted: a and b (dedicated=vision:NoSchedule)" in [fact.text for fact in answer.facts]
    assert "Tolerate the taint, if these nodes are meant for you: a and b." in answer.help
    tolerant = spec_of(tolerations=[{"key": "dedicated", "operator": "Exists"}])
    assert "the scheduler says no room" in explain(gang(nodes, "master-0", spec=tolerant)).sentence


def test_missing_cpu_is_reported_when_gpus_are_free() -> None:
    wants = spec_of(1)
    wants["containers"][0]["resources"]["requests"] = {"cpu": "32"}
    used = {"a": {"cpu": Fraction(60)}, "b": {"cpu": Fraction(40)}}
    rows = [held("a", 8), held("b", 8)]
    answer = explain(gang([node("a"), node("b")], "master-0", spec=wants, requested_by_node=used, rows=rows))
    assert answer.sentence == (
        "Waits for cpu: master-0 needs 32 cpu; the largest free block is 24 on b (28 free in total)."
    )


def test_free_gpus_and_free_cpu_on_different_nodes_do_not_fit_a_pod() -> None:
    wants = spec_of(4)
    wants["containers"][0]["resources"]["requests"] = {"cpu": "32"}
    used = {"a": {"cpu": Fraction(60)}}
    rows = [held("a", 8), held("b", 8, gpt=6)]
    answer = explain(gang([node("a"), node("b")], "master-0", spec=wants, requested_by_node=used, rows=rows))
    assert answer.sentence == (
        "Waits for room: master-0 needs 4 nvidia.com/gpu; the best node, a, has too little cpu free."
    )


def test_pods_with_different_requests_are_placed_group_by_group() -> None:
    pods = [pod("launcher-0", spec_of(0)), pod("worker-0"), pod("worker-1")]
    names = ("launcher-0", "worker-0", "worker-1")
    rows = [held("a", 8), held("b", 8, gpt=8)]
    evidence = evidence_of(*map(instance, names), pods=pods, nodes=[node("a"), node("b")], rows=rows)
    assert explain(evidence).sentence == (
        "Waits for GPUs: room for 1 of 2 pods, each needs 8 nvidia.com/gpu "
        "(8 free in total, together they need 16)."
    )


def test_free_numbers_without_pods_of_other_users_are_marked() -> None:
    answer = explain(gang([node("a", 4)], spec=spec_of(8), sees_all_pods=False))
    assert "other users' pods; less may be free" in [f.text for f in answer.facts if f.kind == "unseen"]


def test_many_nodes_are_summed_up() -> None:
    nodes = [node(f"n{index:03}", 8) for index in range(300)]
    rows = [held(f"n{index:03}", 8, gpt=8) for index in range(300)]
    answer = explain(gang(nodes, rows=rows))
    assert "none is free (2400 in use)" in answer.sentence
    assert "294 more nodes have nvidia.com/gpu" in [fact.text for fact in answer.facts]
    assert len(answer.facts) < 20 and GPU in answer.sentence


def two_roles(master_gpus: int, worker_gpus: int, *nodes: Object, **parts: Any) -> Evidence:
    """Return a job whose master and worker have different requests, so that each is a pod set."""
    pods = [pod("master-0", spec_of(master_gpus)), pod("worker-0", spec_of(worker_gpus))]
    return evidence_of(instance("master-0"), instance("worker-0"), pods=pods, nodes=list(nodes), **parts)


def test_two_sets_of_pods_do_not_get_the_same_free_gpus() -> None:
    answer = explain(two_roles(8, 7, node("a"), node("b"), rows=[held("a", 8), held("b", 8, gpt=8)]))
    assert answer.sentence.startswith("Waits for GPUs: worker-0 needs 7 nvidia.com/gpu; none is free")


def test_a_master_and_a_worker_that_fit_one_by_one_but_not_together_are_explained() -> None:
    answer = explain(two_roles(6, 4, node("a"), node("b"), rows=[held("a", 8), held("b", 8, gpt=8)]))
    assert answer.sentence.startswith(
        "Waits for GPUs: worker-0 needs 4 nvidia.com/gpu; the largest free block is 2 on a"
    )
    assert explain(two_roles(6, 4, node("a"))).sentence == (
        "Never fits: worker-0 needs 4 nvidia.com/gpu besides the job's other pods; "
        "the empty cluster has no room for it."
    )
    fits = explain(two_roles(4, 4, node("a")))
    assert "Waits for GPUs" not in fits.sentence


TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


def waiting(workers: int, gpus: int, **spec: Any) -> Object:
    job = pytorch_job("waits", workers=workers, gpus=gpus)
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"] |= spec
    return job


def offered(nodes: Sequence[Object], job: Object, held: Sequence[tuple[str, int]] = ()) -> object:
    """Return the GPUs that a job could use while others hold this many on each node."""
    others = [pytorch_job(f"other-{place}", gpus=gpus) for place, (_, gpus) in enumerate(held)]
    pods = [
        pod_of(other, "master-0", on=name, gpus=gpus)
        for other, (name, gpus) in zip(others, held, strict=True)
    ]
    rows, jobs = joined(list(nodes), pods, [*others, job])
    return FreeBlocks().find(jobs["waits"], tuple(rows.values()))


def test_the_smallest_blocks_that_hold_all_pods_are_offered() -> None:
    nodes = [node("a"), node("b")]
    assert offered(nodes, waiting(3, 4), [("b", 4)]) == {"b": 4, "a": 8}
    assert offered(nodes, waiting(3, 4), [("b", 5)]) is None
    assert offered([], waiting(1, 1)) is None
    assert offered(nodes, waiting(1, 0)) == {}


def test_pods_with_different_requests_share_the_free_gpus() -> None:
    job = waiting(2, 4)
    roles = job["spec"]["pytorchReplicaSpecs"]
    roles["Master"] = deepcopy(roles["Master"])
    roles["Master"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = 2
    assert offered([node("a")], job) == {"a": 6}
    assert offered([node("a")], job, [("a", 3)]) is None


def test_nodes_that_keep_the_pods_away_are_not_offered() -> None:
    cases: list[tuple[Object, dict[str, Any], object]] = [
        (node("b", taints=[TAINT]), {}, {"a": 2}),
        (node("b", taints=[TAINT]), {"tolerations": [{"key": "team", "operator": "Exists"}]}, {"b": 2}),
        (node("b", taints=[{**TAINT, "effect": "PreferNoSchedule"}]), {}, {"b": 2}),
        (node("b", unschedulable=True), {}, {"a": 2}),
        (labelled("b", labels={"pool": "old"}), {"nodeSelector": {"pool": "new"}}, None),
        (labelled("b", labels={"pool": "new"}), {"nodeSelector": {"pool": "new"}}, {"b": 2}),
    ]
    for other, spec, found in cases:
        assert offered([node("a"), other], waiting(1, 2, **spec), [("b", 5)]) == found


def test_other_resource_requests_of_a_pod_must_also_fit_a_free_block() -> None:
    job = waiting(1, 2)
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"]["cpu"] = "65"
    assert offered([node("a")], job) is None


def test_a_job_that_diagnosis_reports_without_room_is_offered_no_block() -> None:
    cluster = Cluster(node("a", 8, taints=[TAINT]), node("b", 4))
    tainted = (
        f"0/2 nodes are available: 1 Insufficient {GPU}, 1 node(s) had untolerated taint {{team: vision}}."
    )
    cluster.add("kept-out", gpus=8, message=tainted)
    # The message does not name the taint, so the pods tolerate it: a webhook lets them.
    cluster.add("let-in", gpus=8, message=f"0/2 nodes are available: 2 Insufficient {GPU}.")
    assert _found(cluster, "kept-out") is None
    assert "a" in cluster.reason("kept-out")
    assert _found(cluster, "let-in") == {"a": 8}


def _found(cluster: Cluster, name: str) -> object:
    jobs = {job.ref.name: job for job in cluster.jobs()}
    rows, _ = cluster._joiner.join(cluster.nodes, cluster.pods, cluster.declared)
    return FreeBlocks().find(jobs[name], rows)


def test_the_found_block_is_cached_until_the_job_or_the_nodes_change() -> None:
    blocks = FreeBlocks()
    rows, jobs = joined([node("a")], [], [waiting(1, 2)])
    job, nodes = jobs["waits"], tuple(rows.values())
    first = blocks.find(job, nodes)
    assert first == {"a": 2} and blocks.find(job, nodes) is first
    cordoned = (replace(nodes[0], status="Ready, cordoned"),)
    assert blocks.find(job, cordoned) is None
    full = (replace(nodes[0], resources={GPU: Share(8, 7, 0)}),)
    assert blocks.find(job, full) is None
    assert blocks.find(replace(job, lacks_capacity=True), nodes) is None
    assert _finds(blocks, job, nodes) == {"a": 2}


def _finds(blocks: FreeBlocks, job: Job, nodes: tuple[NodeRow, ...]) -> object:
    return blocks.find(replace(job), nodes)
