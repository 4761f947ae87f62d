"""Arithmetic of unschedulable pods, sentence by sentence, and the reasons of pending rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from k8s import models
from k8s.cluster.joiner import Joiner
from k8s.kinds import DeclaredJob
from k8s.models import Node, Pod
from k8s.reasons.pending import FreeBlocks, PendingReasons
from k8s.snapshot import Job, NodeRow, Share
from k8s.status import Status
from tests.support.evidence import Case, case, check, held, ids, instance, labelled, pod, silent, spec_of
from tests.support.objects import GPU, Object, join_again, joined, node, pod_of, pytorch_job, read_jobs

WORKERS = ("master-0", "worker-0", "worker-1", "worker-2")
EACH = "Waits for GPUs: each of 4 pods needs 8 nvidia.com/gpu;"
ONE = "Waits for GPUs: master-0 needs 8 nvidia.com/gpu;"
SMALLER = "Request {} nvidia.com/gpu per pod: 4 pods of that size fit now."
A, B = node("a"), node("b")
SHUT = [node(f"a100-{i}", unschedulable=True) for i in (5, 6, 7)]
DEDICATED = {"key": "dedicated", "value": "vision", "effect": "NoSchedule"}
CLOSED = [node("a", taints=[DEDICATED]), node("b", taints=[DEDICATED]), node("c", unschedulable=True)]
DISKS = [labelled("a", labels={"disk": "hdd"}), labelled("b", labels={"disk": "hdd"}), labelled("c")]
MANY = [f"n{index:03}" for index in range(300)]
SMALL_CPU = node("a")
SMALL_CPU["status"]["allocatable"]["cpu"] = "1"


def gang(sentence: str, nodes: list[Object], *names: str, spec: Object | None = None, **parts: Any) -> Case:
    """Return a job whose pods no scheduler has found nodes for."""
    found = names or WORKERS
    pods = [pod(name, spec) for name in found]
    return case(sentence, *map(instance, found), pods=pods, nodes=nodes, **parts)


def lone(sentence: str, nodes: list[Object], **parts: Any) -> Case:
    return gang(sentence, nodes, "master-0", **parts)


def wants(gpus: int, **requests: str) -> Object:
    spec = spec_of(gpus)
    spec["containers"][0]["resources"]["requests"] = requests
    return spec


def affine(key: str, operator: str, value: str) -> Object:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return spec_of(affinity={"nodeAffinity": required})


def roles(sentence: str, nodes: list[Object], *rows: NodeRow, **gpus: int) -> Case:
    """Return a job whose roles have different requests, so that each is a pod set."""
    names = [name.replace("_", "-") for name in gpus]
    pods = [pod(name, spec_of(amount)) for name, amount in zip(names, gpus.values(), strict=True)]
    return case(sentence, *map(instance, names), pods=pods, nodes=nodes, rows=rows)


CASES = [
    gang(f"{EACH} the largest free block is 4 on a100-9 (4 free in total, 3 nodes cordoned).",
         [node("a100-1"), node("a100-9"), *SHUT], help=SMALLER.format(1),
         rows=[held("a100-1", 8, bert_large=8), held("a100-9", 8, gpt=4)],
         facts=("help: Wait for gpt on a100-9 (4 GPUs).",
                "help: An administrator can uncordon a100-5, a100-6 and a100-7.",
                "nodes: a100-9: 4 of 8 nvidia.com/gpu free, held by gpt (4)",
                "nodes: a100-1: 0 of 8 nvidia.com/gpu free, held by bert_large (8)",
                "pods: master-0, worker-0, worker-1 and worker-2 each need 8 nvidia.com/gpu")),
    gang("Waits for GPUs: room for 1 of 4 pods, each needs 8 nvidia.com/gpu (15 free in total, together they "
         "need 32).", [node(name) for name in "abcd"], help=SMALLER.format(3),
         rows=[held("a", 8), held("b", 8, gpt=1), held("c", 8, gpt=8), held("d", 8, gpt=8)]),
    gang("Never fits: 4 pods need 8 nvidia.com/gpu each; the empty cluster has room for 2.", [A, B],
         rows=[held("a", 8), held("b", 8, gpt=1)], help=SMALLER.format(3), absent="help: Wait",
         facts=("help: Use fewer or smaller pods, or have nodes added.",)),
    case("Never fits: 2 pods need 8 nvidia.com/gpu each; the empty cluster has room for 1.",
         instance("master-0", Status.RUNNING, node="a"), instance("worker-0"), pods=[pod("worker-0")],
                  nodes=[A],
         rows=[held("a", 8, b=8)]),
    gang("Waits for GPUs…", [A, B, node("d"), node("c", unschedulable=True)],
         rows=[held(name, 8, gpt=8) for name in "abcd"]),
    gang("Waits for GPUs…", [A, B, node("d"), silent("c")], rows=[held(name, 8, gpt=8) for name in "abcd"]),
    lone(f"{ONE} none is free (16 in use, 1 node not ready).", [A, B, silent("c")],
         help="Wait for huge on b (8 GPUs).", absent="a pod:",
         rows=[held("a", 8, small=2, smaller=1, big=5), held("b", 8, huge=8), held("c", 8)]),
    case("Waits for GPUs: worker-0 needs 8 nvidia.com/gpu; none is free…",
         instance("master-0", Status.RUNNING, node="a"), instance("worker-0"), pods=[pod("worker-0")],
         nodes=[A, B], rows=[held("a", 8, bert=8), held("b", 8, gpt=8)], help="Wait for gpt on b (8 GPUs)."),
    lone(f"{ONE}…", [A, B], rows=[held("a", 8, bloom=8), held("b", 8, opt=4, vit=4)],
         silent_s={"bloom": 1800.0}, help="Wait for opt and vit on b (8 GPUs)."),
    lone(f"{ONE}…", [A], rows=[held("a", 8, bloom=8)], silent_s={"bloom": 1800.0},
         help="Do not wait for bloom on a (8 GPUs), which has printed nothing for 30 min. "
              "See whether it hangs: gpuconsole diagnose bloom"),
    lone(f"{ONE}…", [SMALL_CPU, B], spec=wants(8, cpu="2"), help="Wait for one and other on b (8 GPUs).",
         rows=[held("a", 8, whole=8), held("b", 8, one=4, other=4)]),
    lone("Waits for GPUs:…", [node("a", 1)], spec=spec_of(1), rows=[held("a", 1, gpt=1)],
         facts=("nodes: a: 0 of 1 nvidia.com/gpu free, held by gpt (1)",)),
    lone("No node matches: master-0 asks for disk=ssd; 3 nodes looked at.", DISKS,
         spec=spec_of(nodeSelector={"disk": "ssd"}),
         facts=("nodes: no node has disk=ssd; disk is hdd (2 nodes)",)),
    lone("No node matches: master-0 asks for gpu.memory > 80000; 1 node looked at.",
         [labelled("a", labels={"gpu.memory": "40000"})], spec=affine("gpu.memory", "Gt", "80000")),
    lone("Waits for a node: master-0 needs 8 nvidia.com/gpu; no node that is large enough accepts it "
         "(2 nodes tainted, 1 cordoned).", CLOSED,
         facts=("nodes: tainted: a and b (dedicated=vision:NoSchedule)",
                "help: Tolerate the taint, if these nodes are meant for you: a and b.")),
    lone("Waits for a node: master-0; the scheduler says no room.", CLOSED,
         spec=spec_of(tolerations=[{"key": "dedicated", "operator": "Exists"}])),
    lone("Waits for cpu: master-0 needs 32 cpu; the largest free block is 24 on b (28 free in total).", [A,
         B],
         spec=wants(1, cpu="32"), rows=[held("a", 8), held("b", 8)],
         requested_by_node={"a": {"cpu": Fraction(60)}, "b": {"cpu": Fraction(40)}}),
    lone("Waits for room: master-0 needs 4 nvidia.com/gpu; the best node, a, has too little cpu free.", [A,
         B],
         spec=wants(4, cpu="32"), rows=[held("a", 8), held("b", 8, gpt=6)],
         requested_by_node={"a": {"cpu": Fraction(60)}}),
    roles("Waits for GPUs: room for 1 of 2 pods, each needs 8 nvidia.com/gpu (8 free in total, together "
          "they need "
          "16).", [A, B], held("a", 8), held("b", 8, gpt=8), launcher_0=0, worker_0=8, worker_1=8),
    roles("Waits for GPUs: worker-0 needs 7 nvidia.com/gpu; none is free…", [A, B], held("a", 8),
          held("b", 8, gpt=8), master_0=8, worker_0=7),
    roles("Waits for GPUs: worker-0 needs 4 nvidia.com/gpu; the largest free block is 2 on a…", [A, B],
          held("a", 8), held("b", 8, gpt=8), master_0=6, worker_0=4),
    roles("Never fits: worker-0 needs 4 nvidia.com/gpu besides the job's other pods; the empty cluster "
          "has no room "
          "for it.", [A], master_0=6, worker_0=4),
    roles("Waits for a node: master-0 and worker-0; the scheduler…", [A], master_0=4, worker_0=4),
    gang("Too big:…", [node("a", 4)], sees_all_pods=False,
         facts=("unseen: other users' pods; less may be free",)),
    gang(f"{EACH} none is free (2400 in use).", list(map(node, MANY)), rows=[held(name, 8,
         gpt=8) for name in MANY],
         facts=("nodes: 294 more nodes have nvidia.com/gpu",)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_too_little_capacity_is_explained_with_figures_and_advice(case: Case) -> None:
    check(case)


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
    rows, _ = join_again(cluster._joiner, cluster.nodes, cluster.pods, cluster.declared)
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


INSUFFICIENT = f"0/2 nodes are available: 2 Insufficient {GPU}."
ROLES = ("master-0", "worker-0", "worker-1", "worker-2")


class Cluster:
    """Objects that are joined and explained as a feed does it."""

    def __init__(self, *nodes: Object) -> None:
        self.nodes: list[Node] = [models.convert(each, Node) for each in nodes]
        self.pods: list[Pod] = []
        self.declared: list[DeclaredJob] = []
        self._joiner, self._reasons = Joiner(), PendingReasons()

    def add(self, name: str, workers: int = 1, gpus: int = 8, message: str = "", **spec: Any) -> None:
        """Add a job whose pods have no node, or are all on the node `on`."""
        on = spec.pop("on", "")
        job = pytorch_job(name, workers=workers, gpus=gpus)
        for role in job["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"] |= spec
        self.declared += read_jobs(job)
        unscheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message or INSUFFICIENT,
        }
        for role in ROLES[:workers]:
            how: Object = {"phase": "Running"} if on else {"phase": "Pending", "conditions": [unscheduled]}
            self.pods.append(models.convert(pod_of(job, role, gpus=gpus, on=on, **how), Pod))

    def jobs(self, nodes: Iterable[Node] | None = None) -> tuple[Job, ...]:
        rows, jobs = join_again(self._joiner, self.nodes, self.pods, self.declared)
        for _ in self._reasons.steps(jobs, self.nodes if nodes is None else nodes, rows, self.declared):
            pass
        return self._reasons.shown(jobs)

    def reason(self, name: str) -> str:
        return next(job.reason for job in self.jobs() if job.ref.name == name)


def test_gpus_held_by_other_jobs_are_subtracted() -> None:
    cluster = Cluster(node("a", 8), node("b", 8))
    cluster.add("gpt", gpus=8, on="a")
    cluster.add("vit", gpus=4, on="b")
    cluster.add("bert", workers=2)
    assert cluster.reason("bert") == (
        "Waits for GPUs: each of 2 pods needs 8; the largest free block is 4 on b"
    )
    cluster.pods = [pod for pod in cluster.pods if "vit" not in pod.metadata.name]
    assert cluster.reason("bert") == "Waits for GPUs: room for 1 of 2 pods, each needs 8"
    assert cluster.reason("gpt") == ""
    cluster.nodes = cluster.nodes[1:]
    assert cluster.reason("bert") == "Never fits: 2 pods need 8 each; the empty cluster has room for 1"
    cluster.nodes += [models.convert(node("c", 8, unschedulable=True), Node)]
    assert cluster.reason("bert") == "Waits for GPUs: room for 1 of 2 pods, each needs 8"


def test_node_selectors_and_tolerations_of_the_pod_template_are_respected() -> None:
    tainted = labelled("a", labels={"pool": "a100"})
    tainted["spec"] = {"taints": [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]}
    cluster = Cluster(tainted, labelled("b", labels={"pool": "a100"}))
    cluster.add("gpt", on="b")
    cluster.add("elsewhere", nodeSelector={"pool": "h100"})
    named = "0/2 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint {team: nlp}."
    cluster.add("outsider", message=named)
    cluster.add("insider", gpus=9, tolerations=[{"key": "team", "operator": "Exists"}], message=named)
    assert cluster.reason("elsewhere") == "No node matches: master-0 asks for pool=h100"
    assert cluster.reason("outsider") == "Waits for GPUs: master-0 needs 8; none is free"
    assert cluster.reason("insider") == "Too big: master-0 needs 9; the largest node has 8"


def test_only_taints_that_the_scheduler_names_keep_a_job_away_as_clusters_add_tolerations_to_pods() -> None:
    tainted = node("a", 8)
    tainted["spec"] = {"taints": [{"key": "nvidia.com/gpu", "value": "only", "effect": "NoSchedule"}]}
    cluster = Cluster(tainted)
    cluster.add("gpt", gpus=4, on="a")
    cluster.add("bert")
    named = "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: only}."
    cluster.add("vit", message=named)
    assert cluster.reason("bert") == ("Waits for GPUs: master-0 needs 8; the largest free block is 4 on a")
    assert cluster.reason("vit") == (
        "Never starts: master-0 needs 8; no node that is large enough accepts it (1 node tainted)"
    )


def test_the_scheduler_message_is_shown_when_capacity_does_not_explain_the_wait() -> None:
    cases: list[str] = [
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        "running PreFilter plugin: gang is not complete",
    ]
    for message in cases:
        fits = Cluster(node("a", 8), node("b", 8))
        fits.add("bert", gpus=1, message=message)
        assert fits.reason("bert") == f"master-0: {message}"


@pytest.mark.parametrize(
    "message", ['0/2 nodes are available: persistentvolumeclaim "x" not found.', "waits"]
)
def test_a_missing_claim_and_other_schedulers_come_before_too_small_nodes(message: str) -> None:
    cluster = Cluster(node("a", 4))
    cluster.add("bert", gpus=8, message=message)
    assert cluster.reason("bert") == f"master-0: {message}"


def test_devices_of_claims_that_no_node_lists_are_left_to_the_scheduler() -> None:
    message = "0/1 nodes are available: 1 cannot allocate all claims."
    cluster = Cluster(node("a", 0))
    cluster.add("bert", gpus=2, message=message)
    cluster.add("vit", gpus=2)
    assert message in cluster.reason("bert")
    assert cluster.reason("vit").startswith("No node has nvidia.com/gpu")


def test_the_scheduler_message_is_shown_while_the_nodes_are_unknown() -> None:
    cluster = Cluster(node("a", 4))
    cluster.add("bert")
    assert [job.reason for job in cluster.jobs(nodes=())] == [f"master-0: {INSUFFICIENT}"]


def test_job_rows_are_reused_until_their_reason_changes() -> None:
    cluster = Cluster(node("a", 8), node("b", 8))
    cluster.add("gpt", on="a")
    cluster.add("bert", gpus=16)
    cluster.add("vit", workers=2)
    before = cluster.jobs()
    assert cluster.jobs() is before
    cluster.add("small", gpus=2, on="b")
    named = {job.ref.name: job for job in before}
    after = {job.ref.name: job for job in cluster.jobs()}
    assert after["bert"] is named["bert"] and after["gpt"] is named["gpt"]
    assert named["vit"].reason == "Waits for GPUs: room for 1 of 2 pods, each needs 8"
    assert after["vit"].reason == "Waits for GPUs: each of 2 pods needs 8; the largest free block is 6 on b"
    cluster.nodes.append(models.convert(node("c", 16), Node))
    assert cluster.reason("bert") == f"master-0: {INSUFFICIENT}"
    assert cluster.jobs() is cluster.jobs()


def two_roles(cluster: Cluster, name: str, master: int, worker: int) -> None:
    """Add a job whose master and worker request different numbers of GPUs and have no node."""
    cluster.add(name, workers=2, gpus=master)
    job = pytorch_job(name, workers=2, gpus=master)
    container = {"name": "pytorch", "resources": {"limits": {GPU: worker}}}
    job["spec"]["pytorchReplicaSpecs"]["Worker"] = {
        "replicas": 1,
        "template": {"spec": {"containers": [container]}},
    }
    cluster.declared[-1:] = read_jobs(job)


def test_gpus_taken_by_the_master_are_not_free_for_the_worker() -> None:
    cluster = Cluster(node("a", 8))
    two_roles(cluster, "bert", 6, 4)
    assert cluster.reason("bert") == (
        "Never fits: worker-0 needs 4 besides the job's other pods; the empty cluster has no room for it"
    )
    both = Cluster(node("a", 8), node("b", 4))
    two_roles(both, "bert", 6, 4)
    assert both.reason("bert") == f"master-0: {INSUFFICIENT}"
