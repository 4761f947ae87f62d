"""Requests of a diagnosis, to servers that answer, refuse, lack kinds or are not Kubernetes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from k8s.client.client import Client
from k8s.reasons.cause import Cause
from k8s.reasons.gather import answer_why, gather
from k8s.reasons.rules import explain
from k8s.snapshot import ClusterSnapshot, Job, Missing, NodeRow
from k8s.status import Status
from k8s.text.errors import KubeError, Unreachable
from tests.scripted.server import Answer as Say
from tests.scripted.server import Cut, Drop, ScriptedCluster, page, refusal
from tests.support.evidence import held, instance, job_of
from tests.support.objects import GPU, Object, joined, node, pod_of, pytorch_job, recorded

CORE = "/api/v1/namespaces/default"
OWN = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/bert"
KUEUE = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default"
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """Serve the usual lists, all empty, and the job bert."""
    async with ScriptedCluster() as serving:
        for plural in ("pods", "events", "resourcequotas", "limitranges"):
            serving.say(f"{CORE}/{plural}", page([]))
        serving.say("/api/v1/nodes", page([node("a", 8)]))
        serving.say("/api/v1/pods", page([]))
        serving.say(OWN, Say(bert()))
        yield serving


@pytest.fixture
async def client(cluster: ScriptedCluster) -> AsyncIterator[Client]:
    async with cluster.client() as found:
        yield found


def bert(**meta: Any) -> Object:
    return pytorch_job("bert", **meta) | {"status": {"conditions": []}}


def pending(job: Object, **spec: Any) -> Object:
    """Return the unschedulable pod of the job's master."""
    found = pod_of(job, "master-0", phase="Pending", conditions=[UNSCHEDULED])
    found["spec"] |= {"nodeName": "", **spec}
    return found


def waiting_job(has_pod: bool = True) -> Job:
    return job_of([instance(has_pod=has_pod)])


def picture(job: Job, *rows: NodeRow, **more: Any) -> ClusterSnapshot:
    return ClusterSnapshot(jobs=(job,), nodes=rows, is_synced=True, **more)


async def ask(client: Client, job: Job, *rows: NodeRow, **more: Any) -> Cause:
    return await answer_why(client, job, picture(job, *rows, **more))


def unseen(answer: Cause) -> list[str]:
    return [fact.text for fact in answer.facts if fact.kind == "unseen"]


RECORDED = {
    "too-big": "Too big: master-0 needs 16 nvidia.com/gpu; the largest node has 8 (gpu-node-0).",
    "waits": "Waits for node gpu-node-1, which has not answered for 22 h: worker-0 is bound to it.",
    "pytorch-dist": "Waits for node gpu-node-1, which has not answered for 22 h: master-0 is bound to it.",
    "pytorch-dist-git": (
        "Waits for node gpu-node-1, which has not answered for 22 h: master-0 and worker-0 are bound to it."
    ),
    "fails": "Failed: master-0 exit 1, 18:36:07: KeyError: 'lr'.",
    "running": "It runs: 1 of 1 pod.",
    "done": "It succeeded: 1 of 1 pod.",
}
ALSO = {
    "waits": ["Waits for GPUs: worker-1 needs 4 nvidia.com/gpu; none is free (8 in use, 1 node not ready)."],
    "pytorch-dist": [
        "Waits for its image: registry.cn-zhangjiakou.aliyuncs.com/acs/git-sync:v3.3.5 is not on the node, "
        "and imagePullPolicy Never forbids pulling it (worker-0 on gpu-node-0).",
        "Waits for GPUs: worker-1 needs 1 nvidia.com/gpu; none is free (8 in use, 1 node not ready).",
    ],
}


async def test_the_jobs_of_a_recorded_cluster_are_explained() -> None:
    for name in RECORDED:
        objects = {plural: recorded(plural) for plural in ("nodes", "pods", "events", "pytorchjobs")}
        rows, jobs = joined(objects["nodes"], objects["pods"], objects["pytorchjobs"])
        async with ScriptedCluster() as serving, serving.client() as client:
            serving.say("/api/v1/nodes", page(objects["nodes"]))
            serving.say("/api/v1/pods", page(objects["pods"]))
            for plural in ("pods", "events"):
                serving.say(f"{CORE}/{plural}", page(objects[plural]))
            for own in objects["pytorchjobs"]:
                serving.say(OWN.replace("bert", own["metadata"]["name"]), Say(own))
            for claim in recorded("persistentvolumeclaims"):
                serving.say(f"{CORE}/persistentvolumeclaims/{claim['metadata']['name']}", Say(claim))
            log = b"2026-11-20T18:36:06.000000001Z Traceback (most recent call last):\n"
            log += b'2026-11-20T18:36:06.000000002Z   File "train.py", line 3, in <module>\n'
            log += b"2026-11-20T18:36:06.000000003Z KeyError: 'lr'\n"
            serving.say(f"{CORE}/pods/fails-master-0/log", Say(log))
            snapshot = ClusterSnapshot(nodes=tuple(rows.values()), jobs=tuple(jobs.values()), is_synced=True)
            evidence = await gather(client, jobs[name], snapshot)
        evidence = replace(evidence, now=datetime(2026, 11, 21, 16, 40, tzinfo=UTC))
        answer = explain(evidence)
        assert answer.sentence == RECORDED[name]
        assert [fact.text for fact in answer.facts if fact.kind == "also"] == ALSO.get(name, [])
        assert unseen(answer) == []


async def test_only_relevant_objects_are_requested(cluster: ScriptedCluster, client: Client) -> None:
    running = job_of([instance(status=Status.RUNNING, node="a")], Status.RUNNING)
    cluster.say(f"{CORE}/pods/bert-master-0", Say(pod_of(bert(), "master-0", on="a")))
    assert (await ask(client, running, held("a", 8, bert=8))).sentence == "It runs: 1 of 1 pod."
    asked = {each.path for each in cluster.requests}
    assert asked == {OWN, f"{CORE}/pods", f"{CORE}/pods/bert-master-0"}


async def test_only_feasible_nodes_have_their_pods_added_up(cluster: ScriptedCluster, client: Client) -> None:
    cluster.replace("/api/v1/nodes", page([node("full"), node("free"), node("shut", unschedulable=True)]))
    other = pod_of(pytorch_job("gpt"), "master-0", on="free", gpus=0)
    other["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "60"}}
    cluster.replace("/api/v1/pods", page([other]))
    wants = pending(bert())
    wants["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "32", GPU: "8"}
    cluster.replace(f"{CORE}/pods", page([wants]))
    answer = await ask(client, waiting_job(), held("full", 8, gpt=8), held("free", 8), held("shut", 8))
    assert answer.sentence == (
        "Waits for room: master-0 needs 8 nvidia.com/gpu; the best node, free, has too little cpu free."
    )
    selectors = [each.query["fieldSelector"] for each in cluster.asked("/api/v1/pods")]
    assert selectors == ["spec.nodeName=free,status.phase!=Succeeded,status.phase!=Failed"]


async def test_a_forbidden_node_list_is_named_and_the_scheduler_message_is_shown(
    cluster: ScriptedCluster, client: Client
) -> None:
    why = 'nodes is forbidden: User "li" cannot list resource "nodes"'
    cluster.replace("/api/v1/nodes", refusal(403, why, "Forbidden"))
    cluster.replace(f"{CORE}/pods", page([pending(bert())]))
    narrowed = {"pods": Missing("list", "pods", shown="default")}
    answer = await ask(client, waiting_job(), problems=narrowed)
    assert answer.sentence == "Waits for a node: master-0; the scheduler says no room."
    assert unseen(answer) == [f"nodes: The cluster says: {why}"]


async def test_a_forbidden_job_is_explained_by_its_pods(cluster: ScriptedCluster, client: Client) -> None:
    cluster.replace(OWN, refusal(403, "no", "Forbidden"))
    cluster.replace(f"{CORE}/pods", page([pending(bert())]))
    answer = await ask(client, waiting_job(), held("a", 8, gpt=8))
    assert answer.sentence == "Waits for GPUs: master-0 needs 8 nvidia.com/gpu; none is free (8 in use)."
    assert unseen(answer) == ["PyTorchJob bert: The cluster says: no"]


async def test_a_deleted_or_replaced_job_is_gone(cluster: ScriptedCluster, client: Client) -> None:
    cluster.replace(OWN, Say(bert(uid="another")), refusal(404, "not found", "NotFound"))
    for _ in range(2):
        assert (await ask(client, waiting_job())).sentence == "It is gone: PyTorchJob bert was deleted."


async def test_a_cluster_that_does_not_answer_is_an_error_in_words() -> None:
    cases: list[Any] = [Drop(), Cut(), Say(b"[1, 2"), refusal(500, "etcd is away")]
    for reply in cases:
        async with ScriptedCluster() as cluster, cluster.client() as client:
            cluster.say(OWN, reply, reply)
            with pytest.raises(KubeError) as caught:
                await ask(client, waiting_job())
            assert caught.value.what
            if isinstance(reply, Drop):
                assert isinstance(caught.value, Unreachable)


async def test_a_broken_part_does_not_lose_the_answer(cluster: ScriptedCluster, client: Client) -> None:
    cluster.replace(f"{CORE}/pods", page([pending(bert())]))
    cluster.replace(f"{CORE}/events", refusal(503, "the events are out"))
    cluster.replace("/api/v1/nodes", page([node("a", 4), {"metadata": 7}, "no node"]))
    answer = await ask(client, waiting_job(), held("a", 4))
    assert answer.sentence == "Too big: master-0 needs 8 nvidia.com/gpu; the largest node has 4 (a)."
    assert unseen(answer) == [
        "nodes: 2 of them are malformed",
        "events: The cluster says: the events are out",
    ] or unseen(answer) == ["events: The cluster says: the events are out", "nodes: 2 of them are malformed"]


async def test_a_list_without_end_is_given_up(cluster: ScriptedCluster, client: Client) -> None:
    cluster.replace("/api/v1/nodes", page([node("a", 4)], following="again"))
    cluster.replace(f"{CORE}/pods", page([pending(bert())]))
    answer = await ask(client, waiting_job(), held("a", 4))
    assert answer.sentence.startswith("Too big:")
    assert unseen(answer) == ["nodes: only the first 10 were read"]


async def test_kueue_gives_the_workload_and_its_place(cluster: ScriptedCluster, client: Client) -> None:
    job = bert(labels={"kueue.x-k8s.io/queue-name": "research"})
    job["spec"]["runPolicy"] = {"suspend": True}
    cluster.replace(OWN, Say(job))
    workload = {
        "metadata": {
            "name": "pytorchjob-bert-1a",
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/job-uid": "job-bert"},
        },
        "spec": {"queueName": "research"},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "no quota"}]},
    }
    cluster.say(f"{KUEUE}/workloads", page([workload]))
    queue = {"metadata": {"name": "research"}, "spec": {"clusterQueue": "gpus"}}
    cluster.say(f"{KUEUE}/localqueues/research", Say(queue))
    places = [{"metadata": {"name": "pytorchjob-bert-1a"}, "positionInLocalQueue": 2}]
    path = "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/default/localqueues/research/pendingworkloads"
    cluster.say(path, Say({"items": places}))
    queued = job_of([instance(has_pod=False)], Status.QUEUED)
    answer = await ask(client, queued)
    assert answer.sentence == "Waits in queue research (ClusterQueue gpus), 2 before it: no quota."


@pytest.mark.parametrize(
    ("path", "spec", "sentence"),
    [
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 4}, "4 must start together, PodGroup gang is new."),
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 3}}},
         "3 must start together, PodGroup gang is new."),
    ],
)  # fmt: skip
async def test_claims_and_gangs_that_pods_name_are_looked_up(
    cluster: ScriptedCluster, client: Client, path: str, spec: Object, sentence: str
) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "corpus"}}]
    own = pending(bert(), volumes=volumes)
    if "minMember" in spec:
        own["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "gang"
    else:
        own["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    cluster.replace(f"{CORE}/pods", page([own]))
    bound = {"metadata": {"name": "corpus"}, "status": {"phase": "Bound"}}
    cluster.say(f"{CORE}/persistentvolumeclaims/corpus", Say(bound))
    group = {"metadata": {"name": "gang"}, "spec": spec}
    cluster.say(f"/apis/{path}/namespaces/default/podgroups/gang", Say(group))
    answer = await ask(client, waiting_job(), held("a", 8))
    assert answer.sentence == f"Waits for its gang: {sentence}"


async def test_events_of_a_job_in_between_are_found(cluster: ScriptedCluster, client: Client) -> None:
    refused = {
        "metadata": {"name": "e", "uid": "e"},
        "involvedObject": {"kind": "Job", "name": "bert-master-0"},
        "reason": "FailedCreate",
        "message": "exceeded quota: gpus, requested: pods=1, used: pods=2, limited: pods=2",
    }
    other = refused | {
        "metadata": {"name": "o", "uid": "o"},
        "involvedObject": {"kind": "Job", "name": "bert-2"},
    }
    cluster.replace(f"{CORE}/events", page([other, refused]))
    answer = await ask(client, waiting_job(has_pod=False))
    assert answer.sentence == "Waits for quota: master-0 needs 1 pod; quota gpus has 0 of 2 left."
    assert [fact.text[:17] for fact in answer.facts if fact.kind == "event"] == ["Job/bert-master-0"]
