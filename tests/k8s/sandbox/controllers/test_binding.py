"""The scheduler on a server, seen through lists that lag: who is bound, in which order, and who is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.gpus.ack import config_map
from k8s.gpus.links import MACHINES
from k8s.models.resources import CLAIMS, NODES, PODS
from k8s.sandbox.controller_runtime import Informers
from k8s.sandbox.controllers.reconcile import GANG
from k8s.sandbox.controllers.scheduler import Scheduler
from tests.k8s.sandbox.calls import Api, Object, job, thing
from tests.k8s.sandbox.conftest import TOKEN

GPU = "nvidia.com/gpu"


class Cluster:
    """A server, and a scheduler that sees of it what it was shown last."""

    def __init__(self, api: Api, client: Client) -> None:
        self.api = api
        self._client = client
        self._informers = Informers(client)
        self.scheduler = Scheduler(self._informers)

    async def add_node(self, name: str, gpus: int) -> None:
        ready = {"type": "Ready", "status": "True"}
        allocatable = {GPU: str(gpus), "cpu": "64", "pods": "110"}
        node = thing("Node", name, status={"allocatable": allocatable, "conditions": [ready]})
        assert (await self.api.call("POST", "/api/v1/nodes", node)).code == 201

    async def add_links(self, node: str, machine: str) -> None:
        await self.api.call("POST", "/api/v1/namespaces", thing("Namespace", "kube-system"))
        written = config_map(node, MACHINES[machine].matrix())
        path = "/api/v1/namespaces/kube-system/configmaps"
        assert (await self.api.call("POST", path, written)).code == 201

    async def gpus(self, pod: str) -> str:
        meta = (await self.api.get("pods", pod)).body["metadata"]
        return str((meta.get("annotations") or {}).get("topology.kubernetes.io/gpu-group", ""))

    async def add_job(self, name: str) -> Object:
        """Add a job, and return what its pods say of it."""
        made = await self.api.made("batch/v1/jobs", job(name))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"]}
        return {**owner, "controller": True}

    async def add(self, name: str, gpus: int = 1, *owners: Object, gang: int = 1, **spec: Any) -> Object:
        container = {"name": "c", "image": "x", "resources": {"limits": {GPU: gpus}}}
        meta = {"annotations": {GANG: str(gang)}, "ownerReferences": list(owners)}
        spec["containers"] = [container]
        return await self.api.made("pods", thing("Pod", name, metadata=meta, spec=spec))

    async def watch_catches_up(self) -> None:
        """Show the scheduler what there is now."""
        for resource in (PODS, NODES, CLAIMS):
            found = await self._client.list(resource)
            self._informers.of(resource).mirror.objects = {each["metadata"]["uid"]: each for each in found}

    async def show_new(self, *pods: Object) -> None:
        """Show it pods that are new, and nothing of what became of the others."""
        mirror = self._informers.of(PODS).mirror
        mirror.objects = {**mirror.objects, **{each["metadata"]["uid"]: each for each in pods}}

    async def look(self) -> dict[str, str]:
        """Let it look once, after its watch has caught up; return who is bound where."""
        await self.watch_catches_up()
        await self.scheduler.reconcile()
        return await self.bound()

    async def bound(self) -> dict[str, str]:
        pods = (await self.api.get("pods")).body["items"]
        return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}

    async def why(self, name: str) -> str:
        conditions = (await self.api.get("pods", name)).body["status"].get("conditions", ())
        return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")


@pytest.fixture
async def cluster(sandbox: Api) -> AsyncIterator[Cluster]:
    config = ClusterConfig(host=sandbox.url, api_key={"BearerToken": f"Bearer {TOKEN}"})
    async with Client(config) as client:
        yield Cluster(sandbox, client)


async def test_recent_bindings_hold_their_gpus_before_the_watch_confirms_them(cluster: Cluster) -> None:
    await cluster.add_node("n", 2)
    await cluster.add("a", 2)
    assert await cluster.look() == {"a": "n"}
    await cluster.show_new(await cluster.add("b", 1, priority=5))
    await cluster.scheduler.reconcile()
    assert await cluster.bound() == {"a": "n", "b": ""}
    assert await cluster.why("b") == f"0/1 nodes are available: 1 Insufficient {GPU}."
    assert await cluster.look() == {"a": "n", "b": ""}


async def test_the_more_important_pod_is_bound_first_then_the_older(cluster: Cluster) -> None:
    await cluster.add_node("n", 1)
    await cluster.add("old")
    await cluster.add("young-but-important", priority=5)
    assert await cluster.look() == {"old": "", "young-but-important": "n"}


async def test_a_job_that_does_not_fit_blocks_no_other(cluster: Cluster) -> None:
    await cluster.add_node("n", 1)
    await cluster.add("large", 4, priority=5)
    await cluster.add("small")
    assert await cluster.look() == {"large": "", "small": "n"}


async def test_a_job_waits_until_all_its_pods_are_there(cluster: Cluster) -> None:
    await cluster.add_node("n", 4)
    owner = await cluster.add_job("job")
    await cluster.add("p-0", 1, owner, gang=2)
    assert await cluster.look() == {"p-0": ""}
    assert await cluster.why("p-0") == ""
    await cluster.add("p-1", 1, owner, gang=2)
    assert await cluster.look() == {"p-0": "n", "p-1": "n"}


@pytest.mark.parametrize("state", ["failed", "deleted"])
async def test_a_pod_that_is_over_does_not_complete_a_job(cluster: Cluster, state: str) -> None:
    await cluster.add_node("n", 4)
    owner = await cluster.add_job("job")
    await cluster.add("p-0", 1, owner, gang=2)
    await cluster.add("p-1", 1, owner, gang=2, nodeName="elsewhere")
    if state == "failed":
        await cluster.api.patch("pods", "p-1", {"status": {"phase": "Failed"}}, subresource="status")
    else:
        await cluster.api.delete("pods", "p-1")
    assert (await cluster.look())["p-0"] == ""
    await cluster.add("p-2", 1, owner, gang=2)
    bound = await cluster.look()
    assert (bound["p-0"], bound["p-2"]) == ("n", "n")


async def test_a_pod_of_another_scheduler_is_ignored(cluster: Cluster) -> None:
    await cluster.add_node("n", 4)
    await cluster.add("theirs", schedulerName="volcano")
    await cluster.add("ours", schedulerName="gpuconsole")
    assert await cluster.look() == {"ours": "n", "theirs": ""}


async def test_a_gated_pod_keeps_its_whole_job_waiting(cluster: Cluster) -> None:
    await cluster.add_node("n", 4)
    owner = await cluster.add_job("job")
    await cluster.add("p-0", 1, owner, gang=2)
    await cluster.add("p-1", 1, owner, gang=2, schedulingGates=[{"name": "quota"}])
    assert await cluster.look() == {"p-0": "", "p-1": ""}
    await cluster.api.patch("pods", "p-1", {"spec": {"schedulingGates": None}})
    assert await cluster.look() == {"p-0": "n", "p-1": "n"}


async def test_a_pod_waits_for_the_claim_that_it_mounts(cluster: Cluster) -> None:
    await cluster.add_node("n", 4)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    await cluster.add("p", volumes=volumes)
    assert await cluster.look() == {"p": ""}
    assert await cluster.why("p") == '0/1 nodes are available: persistentvolumeclaim "data" not found.'
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.api.made("persistentvolumeclaims", thing("PersistentVolumeClaim", "data", spec=spec))
    assert await cluster.look() == {"p": "n"}


async def test_a_pod_that_vanished_meanwhile_does_not_stop_the_others(cluster: Cluster) -> None:
    await cluster.add_node("n", 4)
    for name in ("a", "b"):
        await cluster.add(name)
    await cluster.watch_catches_up()
    await cluster.api.delete("pods", "a", gracePeriodSeconds="0")
    await cluster.scheduler.reconcile()
    assert await cluster.bound() == {"b": "n"}


async def test_a_failed_scheduling_event_is_written_once(cluster: Cluster) -> None:
    await cluster.add_node("n", 1)
    await cluster.add("large", 4)
    for _ in range(2):
        await cluster.look()
    await cluster.scheduler.reconcile()
    events = (await cluster.api.get("events")).body["items"]
    assert [each["reason"] for each in events] == ["FailedScheduling"]


async def test_gpus_are_given_by_their_links_and_none_twice_before_the_watch_answers(
    cluster: Cluster,
) -> None:
    await cluster.add_node("n", 8)
    await cluster.add_links("n", "dgx-1v")
    bert = await cluster.add_job("bert")
    for name in ("a", "b", "c", "d"):
        await cluster.add(name, 1, bert, gang=4)
    await cluster.look()
    given = {name: await cluster.gpus(name) for name in ("a", "b", "c", "d")}
    assert sorted(given.values()) == ["0", "1", "2", "3"]
    await cluster.show_new(await cluster.add("e", 2))
    await cluster.scheduler.reconcile()
    assert await cluster.gpus("e") == "4,7"
    await cluster.api.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.add("f", 3)
    await cluster.look()
    assert set((await cluster.gpus("f")).split(",")) <= {given["a"], "5", "6"}


async def test_without_known_links_nothing_is_written_on_pods(cluster: Cluster) -> None:
    await cluster.add_node("n", 8)
    await cluster.add("a", 2)
    assert await cluster.look() == {"a": "n"}
    assert await cluster.gpus("a") == ""
