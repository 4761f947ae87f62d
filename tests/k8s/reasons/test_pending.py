"""Reasons of pending rows: computed from mirrors, remembered from `why`, or the scheduler's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from k8s import models
from k8s.cluster.joiner import Joiner
from k8s.kinds import DeclaredJob
from k8s.models import Node, Pod
from k8s.reasons.pending import PendingReasons
from k8s.snapshot import Job
from tests.support.objects import GPU, Object, join_again, node, pod_of, pytorch_job, read_jobs

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


def labelled(name: str, gpus: int = 8, **labels: str) -> Object:
    found = node(name, gpus)
    found["metadata"]["labels"] = labels
    return found


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
    tainted = labelled("a", 8, pool="a100")
    tainted["spec"] = {"taints": [{"key": "team", "value": "nlp", "effect": "NoSchedule"}]}
    cluster = Cluster(tainted, labelled("b", 8, pool="a100"))
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
