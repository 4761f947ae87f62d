"""The reason of a waiting job in lists is the sentence of `why`, events included, at few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from k8s.cluster.cluster_mirror import ClusterMirror
from k8s.reasons.job_reasons import JobReasons
from k8s.snapshot import ClusterSnapshot, Job
from tests.scripted.feed import running, serve_lists
from tests.scripted.server import Answer, ScriptedCluster, page
from tests.support.objects import GPU, Object, node, pod_of, pytorch_job
from tui.tables.filters import own_names

CORE = "/api/v1/namespaces/default"
JOBS = "/apis/kubeflow.org/v1/pytorchjobs"
CREATED = "2026-11-01T00:00:00Z"


def unscheduled(message: str) -> list[Object]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]


def event(about: str, reason: str, message: str, kind: str = "Pod") -> Object:
    return {
        "metadata": {"name": f"e-{about}", "namespace": "default", "uid": f"e-{about}"},
        "involvedObject": {"kind": kind, "name": about, "namespace": "default"},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-11-01T00:01:00Z",
    }


def waiting(job: Object, spec: Object, on: str = "", **status: Any) -> Object:
    pod = pod_of(job, "master-0", phase="Pending", on=on, **status)
    pod["metadata"]["creationTimestamp"] = CREATED
    pod["spec"] |= spec
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"] |= spec
    return pod


def over_quota(job: Object) -> tuple[list[Object], list[Object]]:
    quota = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, "
    refused = f'pods "bert-master-0" is forbidden: {quota}limited: requests.nvidia.com/gpu=4'
    return [], [event("bert", "FailedCreate", refused, "PyTorchJob")]


def large_init_container(job: Object) -> tuple[list[Object], list[Object]]:
    init = {"name": "warm-up", "resources": {"limits": {GPU: "16"}}}
    said = unscheduled(f"0/1 nodes are available: 1 Insufficient {GPU}.")
    return [waiting(job, {"initContainers": [init]}, conditions=said)], []


def without_mount(job: Object) -> tuple[list[Object], list[Object]]:
    creating = [{"name": "pytorch", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    failed = 'MountVolume.SetUp failed for volume "d" : configmap "settings" not found'
    return [waiting(job, {}, on="n1", containerStatuses=creating)], [
        event("bert-master-0", "FailedMount", failed)
    ]


Situation = Callable[[Object], tuple[list[Object], list[Object]]]
SITUATIONS: dict[Situation, str] = {
    over_quota: ("Never starts: master-0 needs 8 nvidia.com/gpu; quota gpus allows 4"),
    large_init_container: "Too big: master-0 needs 16; the largest node has 8",
    without_mount: "Waits for ConfigMap settings, which does not exist in default",
}


def serve(cluster: ScriptedCluster, situation: Situation) -> None:
    """Serve the job bert, which waits for something, and the job gpt beside it, which waits as well."""
    jobs = [
        pytorch_job(name, creationTimestamp=CREATED) | {"status": {"conditions": []}}
        for name in ("bert", "gpt")
    ]
    pods, events = situation(jobs[0])
    serve_lists(cluster, {"/api/v1/nodes": [node("n1")], "/api/v1/pods": pods, JOBS: jobs})
    lists: dict[str, list[Object]] = {"pods": pods, "events": events, "resourcequotas": [], "limitranges": []}
    for plural, items in lists.items():
        cluster.say(f"{CORE}/{plural}", page(items))
    for job in jobs:
        cluster.say(
            f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{job['metadata']['name']}", Answer(job)
        )


def bert(snapshot: ClusterSnapshot) -> Job:
    return next(job for job in snapshot.jobs if job.ref.name == "bert")


@pytest.mark.parametrize(
    ("situation", "expected"), SITUATIONS.items(), ids=lambda each: getattr(each, "__name__", "")
)
async def test_the_console_explains_visible_jobs_once_and_no_others(
    situation: Situation, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedCluster() as cluster:
        serve(cluster, situation)
        async with running(cluster) as feed:
            snapshot = await feed.until(lambda each: each.is_synced and len(each.jobs) == 2)
            monkeypatch.setattr("k8s.reasons.job_reasons.POLL_VISIBLE_S", 0.001)
            polls: list[None] = []

            def visible() -> list[Job]:
                polls.append(None)
                return [bert(snapshot)]

            feed.reasons.visible_jobs = visible
            snapshot = await feed.until(lambda each: bert(each).reason.startswith(expected))
            explained_at = len(polls)
            while len(polls) < explained_at + 5:
                await asyncio.sleep(0.01)
            paths = [each.path for each in cluster.requests]
        # What the mirrored nodes explain is asked of nobody.
        expected_questions = 0 if situation is large_init_container else 1
        assert len([each for each in paths if each.endswith("/pytorchjobs/bert")]) == expected_questions
        assert not [each for each in paths if each.endswith("/pytorchjobs/gpt")]
        assert len(cluster.asked("/api/v1/nodes")) == 1, "the nodes are mirrored"


@pytest.mark.parametrize("is_narrow", [False, True])
async def test_free_gpus_are_not_guessed_from_the_pods_of_one_namespace(is_narrow: bool) -> None:
    bert, other = pytorch_job("bert"), pytorch_job("other")
    pod = waiting(bert, {}, conditions=unscheduled(f"0/1 nodes are available: 1 Insufficient {GPU}."))
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "8"}}
    mine, holder = (pod_of(other, place, on="n1", gpus=4) for place in ("worker-0", "worker-1"))
    holder["metadata"]["namespace"] = "elsewhere"
    async with ScriptedCluster() as cluster, cluster.client() as client:
        for path, items in (
            ("/api/v1/nodes", [node("n1", 8)]),
            ("/api/v1/pods", [pod, mine, holder]),
            (JOBS, [bert]),
        ):
            cluster.say(path, page(items))
        mirror = ClusterMirror(client, "default", is_narrow=is_narrow)
        JobReasons(mirror, own_names)
        snapshot = await mirror.read_once()
    job = next(each for each in snapshot.jobs if each.ref.name == "bert")
    assert job.reason.startswith("Waits for GPUs") is not is_narrow
