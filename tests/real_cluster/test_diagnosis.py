"""Why jobs wait, asked of a real API server whose own scheduler, quota and kubelet make them wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from k8s.client.client import Client
from k8s.diagnosis.answer import Answer
from k8s.diagnosis.gather import answer_why
from k8s.kinds.kubeflow.pytorch_job import PYTORCH_JOBS
from k8s.models.resources import JOBS, QUOTAS, Resource
from tests.support import real_cluster
from tests.support.objects import GPU, Object, pytorch_job
from tui.feeds.cluster_feed import ClusterFeed

WAIT_S = 60.0
"""Longest wait for a scheduler, a controller or a kubelet to have said its word."""
LOOK_EVERY_S = 0.5

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def client(admin: Client) -> Client:
    """A client of the administrator, in a namespace of its own that is deleted afterwards."""
    return admin


def job(name: str, pods: int = 1, *, gpus: int = 0, **spec: Any) -> Object:
    """Return a Job of busybox, which the node has."""
    container: Object = {"name": "main", "command": ["sleep", "600"], **real_cluster.BUSYBOX}
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    container |= spec.pop("container", {})
    pod = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": pods, "parallelism": pods, "backoffLimit": 0, "template": {"spec": pod}},
    }


async def until(client: Client, name: str, is_so: Callable[[Answer], object]) -> Answer:
    """Ask why until the cluster has had its say."""
    answer: Answer | None = None
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                snapshot = await ClusterFeed(client, client.config.namespace).read_once()
                found = next((each for each in snapshot.jobs if each.ref.name == name), None)
                if found is not None:
                    answer = await answer_why(client, found, snapshot)
                    if is_so(answer):
                        return answer
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise AssertionError(f"never came true; last was:\n{answer and answer.as_text()}") from None


async def make(client: Client, obj: Object, resource: Resource = JOBS) -> None:
    await client.create(resource, obj, client.config.namespace)


def facts(answer: Answer, kind: str) -> list[str]:
    return [fact.text for fact in answer.facts if fact.kind == kind]


async def test_more_gpus_than_a_node_has_are_too_big_as_the_real_scheduler_says_too(client: Client) -> None:
    await make(client, job("huge", gpus=16))
    answer = await until(client, "huge", lambda found: facts(found, "scheduler"))
    assert answer.sentence == f"Too big: pod-0 needs 16 {GPU}; the largest node has 8 ({real_cluster.NODE})."
    assert "Insufficient nvidia.com/gpu" in facts(answer, "scheduler")[0]
    assert answer.status == "Pending"


async def test_cpu_that_the_node_has_not_left_is_found_by_adding_up_its_pods(client: Client) -> None:
    nodes = await client.get_json(f"/api/v1/nodes/{real_cluster.NODE}")
    cpus = int(nodes["status"]["allocatable"]["cpu"])
    half: Object = {"container": {"resources": {"requests": {"cpu": f"{cpus * 600}m"}}}}
    await make(client, job("first", **half))
    await until(client, "first", lambda found: found.status == "Running")
    await make(client, job("second", **half))
    answer = await until(client, "second", lambda found: facts(found, "scheduler"))
    assert answer.sentence.startswith(
        f"Waits for cpu: pod-0 needs {cpus * 0.6:g} cpu; the largest free block is "
    )
    assert "Insufficient cpu" in facts(answer, "scheduler")[0]


async def test_a_selector_that_matches_nothing_is_named(client: Client) -> None:
    await make(client, job("picky", nodeSelector={"disk": "ssd"}))
    answer = await until(client, "picky", lambda found: facts(found, "scheduler"))
    assert answer.sentence.startswith("No node matches: pod-0 asks for disk=ssd; ")
    assert "didn't match" in facts(answer, "scheduler")[0]


async def test_a_claim_that_is_missing_is_named(client: Client) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "corpus"}}]
    await make(client, job("reader", volumes=volumes))
    answer = await until(client, "reader", lambda found: facts(found, "claim"))
    namespace = client.config.namespace
    assert answer.sentence == f"Waits for volume claim corpus, which does not exist in {namespace}."


async def test_a_quota_that_can_never_allow_a_pod_is_named_with_its_numbers(client: Client) -> None:
    namespace = client.config.namespace
    key = f"requests.{GPU}"
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {key: "2"}}}
    await client.create(QUOTAS, quota, namespace)
    while not (await client.get(QUOTAS, "gpus", namespace)).get("status", {}).get("hard"):
        await asyncio.sleep(LOOK_EVERY_S)
    await make(client, job("greedy", gpus=4))
    answer = await until(client, "greedy", lambda found: facts(found, "event"))
    assert answer.sentence == f"Never starts: a pod needs 4 {key}; quota gpus allows 2 {key}."


async def test_a_priority_class_that_is_missing_is_named(client: Client) -> None:
    await make(client, job("urgent", priorityClassName="urgent"))
    answer = await until(client, "urgent", lambda found: facts(found, "event"))
    assert answer.sentence == "Its pods cannot be created: there is no PriorityClass urgent."


async def test_a_scheduler_that_does_not_exist_is_named(client: Client) -> None:
    await make(client, job("alone", schedulerName="volcano"))
    answer = await until(client, "alone", lambda found: "volcano" in found.sentence)
    assert answer.sentence.startswith("Waits for scheduler volcano, which has not looked at pod-0 for ")


async def test_an_image_that_is_not_there_is_named_with_the_node(client: Client) -> None:
    await make(client, job("lost", container={"image": "lab/nowhere:1"}))
    answer = await until(client, "lost", lambda found: facts(found, "image"))
    assert answer.sentence == (
        "Waits for its image: lab/nowhere:1 is not on the node, and imagePullPolicy Never forbids pulling it "
        f"(pod-0 on {real_cluster.NODE})."
    )


async def test_a_config_map_that_is_missing_is_named(client: Client) -> None:
    env = [{"configMapRef": {"name": "settings"}}]
    await make(client, job("unset", container={"envFrom": env}))
    answer = await until(client, "unset", lambda found: "ConfigMap" in found.sentence)
    assert answer.sentence == "Waits for ConfigMap settings, which does not exist (pod-0)."


async def test_a_job_without_an_operator_and_one_that_is_suspended_are_told_apart(client: Client) -> None:
    orphan = pytorch_job("orphan")
    held_back = pytorch_job("held-back")
    held_back["spec"]["runPolicy"] = {"suspend": True}
    for each in (orphan, held_back):
        each["metadata"] = {"name": each["metadata"]["name"]}
        for role in each["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"]["containers"][0]["image"] = "busybox"
        await make(client, each, PYTORCH_JOBS)
    answer = await until(client, "orphan", lambda found: "operator" in found.sentence)
    assert answer.sentence.endswith("ago; its operator has not reacted yet.")
    answer = await until(client, "held-back", lambda found: found.sentence)
    assert answer.sentence == "Suspended: its object says suspend, so it has no pods."


async def test_a_process_that_ends_badly_is_blamed_with_its_exit_code(client: Client) -> None:
    await make(client, job("fails", container={"command": ["sh", "-c", "exit 3"]}))
    answer = await until(client, "fails", lambda found: found.status == "Failed" and "exit" in found.sentence)
    assert answer.sentence.startswith("Failed: pod-0 ended with exit 3, ")
    assert answer.sentence.endswith(" UTC; it had no retries.")


async def test_a_job_that_runs_is_said_to_run(client: Client) -> None:
    await make(client, job("runs", 2, gpus=1))
    answer = await until(
        client, "runs", lambda found: found.status == "Running" and "2 of 2" in found.sentence
    )
    assert answer.sentence == "It runs: 2 of 2 pods."


async def test_who_may_see_one_namespace_gets_the_schedulers_words(kubeconfig: Path) -> None:
    async with await Client.connect(f"{kubeconfig}-alice", namespace="alice") as alice:
        name = f"huge-{uuid4().hex[:6]}"
        await make(alice, job(name, gpus=16))
        try:
            answer = await until(alice, name, lambda found: facts(found, "scheduler"))
        finally:
            await alice.delete(JOBS, name, "alice")
        assert answer.sentence.startswith("Waits for a node: pod-0; the scheduler says 0/")
        assert any('cannot list resource "nodes"' in text for text in facts(answer, "unseen"))
