"""The scheduler: all pods of a job or none, never more than a node has, in order, even with late lists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s import models
from k8s.client.auth.cluster_config import ClusterConfig
from k8s.client.client import Client
from k8s.gpus.ack import config_map
from k8s.gpus.links import MACHINES
from k8s.models.resources import CLAIMS, NODES, PODS
from k8s.reasons import requests
from k8s.reasons.causes.unschedulable import capacity
from k8s.reasons.objects import FullPod
from k8s.reasons.predicates import NodeCapacity
from k8s.sandbox.controller_runtime import Informers
from k8s.sandbox.controllers.reconcile import GANG
from k8s.sandbox.controllers.scheduler import (
    LinkedGpus,
    PendingPod,
    Scheduler,
    choose_gpus,
    infeasible_text,
    node_capacity,
    pending_pod,
    place,
)
from k8s.sandbox.node.nodes import Devices, Shape
from tests.k8s.sandbox.calls import Api, job, thing
from tests.k8s.sandbox.conftest import TOKEN
from tests.support.evidence import evidence_of, instance, labelled
from tests.support.objects import GPU, Object

NLP = {"key": "team", "value": "nlp", "effect": "NoSchedule"}


def node(name: str, gpus: int = 4, cpu: int = 64, **spec: Any) -> NodeCapacity:
    """Return an empty node that is ready unless told otherwise; `labels` are its own."""
    labels, is_ready = spec.pop("labels", {}), spec.pop("is_ready", True)
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    allocatable = {GPU: str(gpus), "cpu": str(cpu), "pods": "110"}
    status = {"allocatable": allocatable, "conditions": [ready]}
    return node_capacity({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}, ())


def pending(name: str, gpus: int = 0, cpu: int = 0, **spec: Any) -> PendingPod:
    limits = {GPU: str(gpus), "cpu": str(cpu)}
    spec["containers"] = [{"name": "c", "resources": {"limits": limits}}]
    return pending_pod({"metadata": {"name": name}, "spec": spec})


gangs = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 16)), min_size=1, max_size=10)
machines = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 32)), min_size=0, max_size=6)


@given(gangs, machines)
def test_a_job_is_placed_completely_or_not_at_all_within_the_free_capacity(
    sizes: list[tuple[int, int]], nodes: list[tuple[int, int]]
) -> None:
    there = [node(f"n{index}", *size) for index, size in enumerate(nodes)]
    pods = [pending(f"p{index}", *size) for index, size in enumerate(sizes)]
    before = [dict(each.free) for each in there]
    placed, why = place(pods, there)
    assert [each.free for each in there] == before
    assert (len(placed) == len(pods) and not why) or (not placed and why)
    for each in there:
        here = [pod for pod in pods if placed.get(pod.name) == each.name]
        for name, free in each.free.items():
            assert sum((pod.requested.get(name, Fraction(0)) for pod in here), Fraction(0)) <= free


@given(st.integers(1, 8), st.integers(1, 12), st.lists(st.integers(0, 8), max_size=6))
def test_a_job_of_equal_pods_is_placed_whenever_it_fits(size: int, count: int, nodes: list[int]) -> None:
    there = [node(f"n{index}", gpus) for index, gpus in enumerate(nodes)]
    placed, _ = place([pending(f"p{index}", size) for index in range(count)], there)
    assert bool(placed) == (sum(gpus // size for gpus in nodes) >= count)


def test_a_job_is_placed_on_the_fullest_node_that_fits_all_its_pods() -> None:
    nodes = [node("empty", 8), node("half", 4), node("nearly", 1)]
    placed, _ = place([pending("a", 2), pending("b", 2)], nodes)
    assert placed == {"a": "half", "b": "half"}


def test_pods_that_may_only_go_to_one_node_get_it_before_the_others() -> None:
    nodes = [node("left", 4, labels={"zone": "a"}), node("right", 4, labels={"zone": "b"})]
    placed, _ = place([pending("any", 4), pending("choosy", 4, nodeSelector={"zone": "a"})], nodes)
    assert placed == {"choosy": "left", "any": "right"}


@pytest.mark.parametrize(
    ("where", "spec", "why"),
    [
        (node("n", 1), {}, "Insufficient nvidia.com/gpu"),
        (node("n", 8, cpu=0), {}, "Insufficient cpu"),
        (node("n", 8, unschedulable=True), {}, "node(s) were unschedulable"),
        (node("n", 8, is_ready=False), {}, "node(s) were not ready"),
        (
            node("n", 8),
            {"nodeSelector": {"gpu": "h100"}},
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (node("n", 8, taints=[NLP]), {}, "node(s) had untolerated taint {team: nlp}"),
        (node("n", 8, taints=[NLP]), {"tolerations": [{"key": "team", "operator": "Exists"}]}, ""),
        (node("n", 8, taints=[{"key": "soft", "effect": "PreferNoSchedule"}]), {}, ""),
    ],
)
def test_infeasible_pods_are_explained_with_kube_scheduler_messages(
    where: NodeCapacity, spec: dict[str, Any], why: str
) -> None:
    assert infeasible_text(pending("p", 4, 1, **spec), where) == why


def test_a_job_that_does_not_fit_reports_how_many_pods_would_fit() -> None:
    pods = [pending(f"p{index}", 4) for index in range(3)]
    _, why = place(pods, [node("a"), node("b")])
    assert why == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "All 3 pods of the job start together or none does; 2 would fit."
    )


def test_pods_that_ended_hold_nothing() -> None:
    manifest = {"metadata": {"name": "n"}, "status": {"allocatable": {GPU: "4", "cpu": "1500m"}}}
    spec = {"containers": [{"resources": {"limits": {GPU: "2"}, "requests": {"cpu": "500m"}}}]}
    phases = ("Running", "Succeeded", "Failed", "")
    pods = [{"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}} for phase in phases]
    free = node_capacity(manifest, pods).free
    assert (free[GPU], free["cpu"]) == (Fraction(0), Fraction(1, 2))


@pytest.mark.parametrize(("offered", "free"), [("nvidia.com/gpu", 3), ("aliyun.com/gpu", 3)])
def test_gpus_held_under_any_resource_name_reduce_the_free_gpus(offered: str, free: int) -> None:
    """A node whose label changed offers other names than its pods hold."""
    pods = [
        {"metadata": {"name": name}, "spec": {"containers": [{"resources": {"limits": {name: gpus}}}]}}
        for name, gpus in ((GPU, 4), ("aliyun.com/gpu", 1))
    ]
    status = {"allocatable": {offered: "8", "pods": "110"}, "conditions": []}
    found = node_capacity({"metadata": {"name": "n"}, "spec": {}, "status": status}, pods)
    assert found.free[offered] == free
    assert not {GPU, "aliyun.com/gpu"} - {offered} & found.free.keys()


def linked(machine: str, *taken: int) -> LinkedGpus:
    """Return the GPUs of a machine of eight without some."""
    matrix = MACHINES[machine].matrix()
    return LinkedGpus(matrix, tuple(gpu for gpu in matrix.gpus if gpu not in taken))


def test_the_best_linked_node_is_preferred_and_then_the_fullest() -> None:
    nodes = [node("pcie", 4), node("full", 5), node("quad", 8)]
    full, quad = linked("dgx-1v", 0, 3, 6), linked("dgx-a100")
    links = {"pcie": linked("pcie", 4, 5, 6, 7), "full": full, "quad": quad}
    assert place([pending("a", 4)], nodes)[0] == {"a": "pcie"}
    assert place([pending("a", 4)], nodes, links)[0] == {"a": "quad"}
    assert place([pending(name, 1) for name in "abcd"], nodes, links)[0] == dict.fromkeys("abcd", "quad")
    assert place([pending("a", 1)], nodes, links)[0] == {"a": "pcie"}


def test_a_job_of_several_nodes_stays_in_a_rack_and_else_in_a_block() -> None:
    rack, block = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"
    places = {"a": "b1/r1", "b": "b1/r2", "c": "b1/r2", "d": "b2/r3", "e": "b2/r3", "f": "b2/r4"}
    nodes = [node(name, 4, labels={block: at.partition("/")[0], rack: at}) for name, at in places.items()]
    two, three = ([pending(f"p{at}", 4) for at in range(count)] for count in (2, 3))
    assert set(place(two, nodes)[0].values()) == {"b", "c"}
    assert set(place(three, nodes)[0].values()) == {"a", "b", "c"}
    assert set(place(two, [each for each in nodes if each.name != "c"])[0].values()) == {"d", "e"}
    four = [pending(f"p{at}", 4) for at in range(4)]
    assert len(set(place(four, nodes)[0].values())) == 4


def test_the_gpus_of_a_job_are_the_best_set_divided_among_its_pods() -> None:
    pods = [pending("launcher"), *(pending(name, 1) for name in "abcd")]
    chosen = choose_gpus(pods, linked("dgx-1v", 0, 1))
    assert sorted(chosen) == ["a", "b", "c", "d"]
    assert sorted(gpu for gpus in chosen.values() for gpu in gpus) == [4, 5, 6, 7]
    assert choose_gpus([pending("a", 2), pending("b", 2)], linked("pcie")) == {"a": (0, 1), "b": (2, 3)}
    assert choose_gpus(pods, linked("dgx-1v", 0, 1, 2, 3, 4)) == {}


def test_a_pod_gets_the_gpus_that_the_scheduler_chose_if_they_are_free() -> None:
    devices = Devices(Shape(("n",), 8, "x", is_simulated=True))
    assert devices.allocate("a", "n", 2, (6, 3)) == (3, 6)
    assert devices.allocate("b", "n", 2, (3, 4)) == (0, 1)
    assert devices.allocate("c", "n", 2, (0,)) == (2, 4)
    assert devices.allocate("d", "n", 1, (7, 7)) == (7,)
    assert devices.allocate("e", "n", 1, (9,)) == (5,)


def test_gpus_come_back_and_are_never_held_twice() -> None:
    devices = Devices(Shape(("n",), 4, "x", is_simulated=True))
    assert devices.allocate("a", "n", 1) == (0,)
    assert devices.allocate("b", "n", 2) == (1, 2)
    assert devices.allocate("c", "n", 2) is None
    devices.release("a")
    assert devices.allocate("c", "n", 2) == (0, 3)
    devices.release("unknown")
    assert devices.free("n") == 0


_format_amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["500m", "1", "2", "3"]),
        "memory": st.sampled_from(["64Mi", "1Gi"]),
        GPU: st.integers(0, 4).map(str),
    },
)
_resources = st.fixed_dictionaries({}, optional={"requests": _format_amounts, "limits": _format_amounts})


def _containers(**more: Any) -> st.SearchStrategy[list[Object]]:
    container = st.fixed_dictionaries({"name": st.just("c"), "resources": _resources}, optional=more)
    return st.lists(container, max_size=3)


_specs = st.fixed_dictionaries(
    {"containers": _containers().filter(bool)},
    optional={
        "initContainers": _containers(restartPolicy=st.just("Always")),
        "overhead": _format_amounts,
        "nodeSelector": st.just({"zone": "a"}),
        "tolerations": st.just([{"key": "team", "operator": "Exists"}]),
    },
)
_taints = st.sampled_from([[], [NLP]])


@st.composite
def _nodes(draw: st.DrawFn) -> list[tuple[Object, Object | None]]:
    """Return nodes, each with the spec of a pod that runs there, or none."""
    found = []
    for index in range(draw(st.integers(1, 3))):
        labels = draw(st.sampled_from([{}, {"zone": "a"}]))
        spec: dict[str, Any] = {"taints": draw(_taints), "unschedulable": draw(st.booleans())}
        node = labelled(f"n{index}", draw(st.integers(0, 6)), labels, **spec)
        node["status"]["allocatable"]["cpu"] = str(draw(st.integers(1, 8)))
        found.append((node, draw(st.none() | _specs)))
    return found


@given(_specs, st.integers(1, 4), _nodes())
def test_a_capacity_shortage_is_found_exactly_when_the_sandbox_cannot_place_equal_pods(
    spec: Object, number: int, nodes: list[tuple[Object, Object | None]]
) -> None:
    pods = [_pod(f"worker-{index}", spec) for index in range(number)]
    there = [node_capacity(node, [_pod("other", own)] if own else []) for node, own in nodes]
    placed, _ = place([pending_pod(pod) for pod in pods], there)
    used = {
        str(node["metadata"]["name"]): requests.of_pod(models.convert(_pod("other", own), FullPod).spec)
        for node, own in nodes
        if own
    }
    evidence = evidence_of(
        *(instance(f"worker-{index}") for index in range(number)),
        pods=[models.convert(pod, FullPod) for pod in pods],
        nodes=[node for node, _ in nodes],
        requested_by_node=used,
    )
    assert (capacity(evidence) is None) == (len(placed) == number)


def _pod(name: str, spec: Object) -> Object:
    return {"metadata": {"name": f"bert-{name}"}, "spec": spec}


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
