"""Free GPUs that a waiting job could use, by the predicates of `why`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from k8s.diagnosis.free_blocks import FreeBlocks
from k8s.snapshot import Job, NodeRow, Share
from tests.k8s.diagnosis.test_pending import Cluster, labelled
from tests.support.objects import GPU, Object, joined, node, pod_of, pytorch_job

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


def test_pods_that_request_different_amounts_share_what_is_free() -> None:
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
        (labelled("b", pool="old"), {"nodeSelector": {"pool": "new"}}, None),
        (labelled("b", pool="new"), {"nodeSelector": {"pool": "new"}}, {"b": 2}),
    ]
    for other, spec, found in cases:
        assert offered([node("a"), other], waiting(1, 2, **spec), [("b", 5)]) == found


def test_what_else_a_pod_requests_is_sought_too() -> None:
    job = waiting(1, 2)
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"]["cpu"] = "65"
    assert offered([node("a")], job) is None


def test_a_job_of_which_why_says_that_it_has_no_room_is_offered_nothing() -> None:
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


def test_what_was_found_is_kept_until_the_job_or_the_nodes_are_others() -> None:
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
