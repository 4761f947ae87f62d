"""Owners of pods: each fetched once, in the background, within the user's permissions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from k8s.cluster import owners
from k8s.cluster.owners import OwnerLookup
from k8s.models import OwnerReference
from k8s.models.resources import Resource
from k8s.text.errors import ServerFailed
from tests.scripted.server import WAIT_S, Answer, ScriptedCluster, refusal

REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SERVED: Mapping[tuple[str, str], Resource] = {
    ("apps/v1", "ReplicaSet"): Resource("apps", "v1", "replicasets", "ReplicaSet"),
    ("apps/v1", "Deployment"): Resource("apps", "v1", "deployments", "Deployment"),
    ("example.com/v1", "Fleet"): Resource("example.com", "v1", "fleets", "Fleet", is_namespaced=False),
}
Above = dict[str, tuple[str, OwnerReference]]


async def resource_of(api_version: str, kind: str) -> Resource | None:
    return SERVED.get((api_version, kind))


def reference(kind: str, name: str, api_version: str = "apps/v1", uid: str = "") -> OwnerReference:
    return OwnerReference(kind, name, uid or f"{kind}-{name}", api_version, True)


def wanted(*references: OwnerReference) -> Above:
    return {each.uid: ("default", each) for each in references}


def stored(kind: str, name: str, owner: OwnerReference | None = None, uid: str = "") -> Answer:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": uid or f"{kind}-{name}"}
    if owner is not None:
        above = {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "apiVersion": owner.api_version}
        meta["ownerReferences"] = [{**above, "controller": True}]
    return Answer({"kind": kind, "metadata": meta, "spec": {"replicas": 2}})


class Watched:
    """Owners that are being fetched, and the number of changes."""

    def __init__(self, cluster: ScriptedCluster, client: Any) -> None:
        self.cluster = cluster
        self._changed = asyncio.Event()
        self.lookup = OwnerLookup(client, resource_of, self._changed.set)

    async def until_found(self, uid: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while uid not in self.lookup.owners:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def looking() -> AsyncIterator[Watched]:
    async with ScriptedCluster() as cluster, cluster.client() as client:
        yield Watched(cluster, client)


async def test_an_owner_is_fetched_once_and_gives_its_own_controller() -> None:
    deployment = reference("Deployment", "web")
    async with looking() as watched:
        watched.cluster.say(f"{REPLICA_SETS}/web-1", stored("ReplicaSet", "web-1", deployment))
        above = wanted(reference("ReplicaSet", "web-1"))
        watched.lookup.update(above)
        await watched.lookup.fetch_missing()
        watched.lookup.update(above)
        await watched.lookup.fetch_missing()
        assert watched.lookup.owners["ReplicaSet-web-1"].controller == deployment
        assert len(watched.cluster.asked(f"{REPLICA_SETS}/web-1")) == 1


async def test_owners_wanted_later_are_found_in_the_background() -> None:
    async with looking() as watched:
        watched.cluster.say(f"{REPLICA_SETS}/web-1", stored("ReplicaSet", "web-1"))
        watched.cluster.say(f"{DEPLOYMENTS}/web", stored("Deployment", "web"))
        task = asyncio.create_task(watched.lookup.run())
        watched.lookup.update(wanted(reference("ReplicaSet", "web-1")))
        await watched.until_found("ReplicaSet-web-1")
        watched.lookup.update(wanted(reference("ReplicaSet", "web-1"), reference("Deployment", "web")))
        await watched.until_found("Deployment-web")
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("code", [403, 404])
async def test_an_unreadable_owner_is_the_topmost_known_owner(code: int) -> None:
    async with looking() as watched:
        watched.cluster.say(f"{DEPLOYMENTS}/web", refusal(code, "no"))
        watched.lookup.update(wanted(reference("Deployment", "web")))
        await watched.lookup.fetch_missing()
        meta = watched.lookup.owners["Deployment-web"]
        assert (meta.name, meta.namespace, meta.controller) == ("web", "default", None)


async def test_an_owner_of_an_unserved_kind_is_topmost_without_a_request() -> None:
    async with looking() as watched:
        watched.lookup.update(wanted(reference("Notebook", "mine", "kubeflow.org/v1")))
        await watched.lookup.fetch_missing()
        assert watched.lookup.owners["Notebook-mine"].controller is None
        assert watched.cluster.requests == []


async def test_an_owner_with_the_same_name_but_another_uid_is_ignored() -> None:
    async with looking() as watched:
        watched.cluster.say(
            f"{REPLICA_SETS}/web-1", stored("ReplicaSet", "web-1", reference("Deployment", "web"), uid="new")
        )
        watched.lookup.update(wanted(reference("ReplicaSet", "web-1", uid="old")))
        await watched.lookup.fetch_missing()
        assert watched.lookup.owners["old"].controller is None


async def test_a_cluster_scoped_owner_is_found() -> None:
    async with looking() as watched:
        watched.cluster.say("/apis/example.com/v1/fleets/all", stored("Fleet", "all"))
        watched.lookup.update(wanted(reference("Fleet", "all", "example.com/v1")))
        await watched.lookup.fetch_missing()
        assert watched.lookup.owners["Fleet-all"].name == "all"


async def test_owners_without_pods_are_dropped_from_the_cache() -> None:
    async with looking() as watched:
        for name in ("web-1", "web-2"):
            watched.cluster.say(f"{REPLICA_SETS}/{name}", stored("ReplicaSet", name))
        watched.lookup.update(wanted(reference("ReplicaSet", "web-1"), reference("ReplicaSet", "web-2")))
        await watched.lookup.fetch_missing()
        watched.lookup.update(wanted(reference("ReplicaSet", "web-2")))
        assert list(watched.lookup.owners) == ["ReplicaSet-web-2"]


async def test_the_number_of_owners_remembered_has_an_end() -> None:
    most = owners.MOST_OWNERS
    async with looking() as watched:
        many = [reference("Notebook", f"n{number}", "kubeflow.org/v1") for number in range(most + 5)]
        watched.lookup.update(wanted(*many))
        await watched.lookup.fetch_missing()
        assert len(watched.lookup.owners) == most


async def test_a_server_error_while_fetching_an_owner_is_not_cached() -> None:
    async with looking() as watched:
        watched.cluster.say(f"{DEPLOYMENTS}/web", refusal(500, "busy"), stored("Deployment", "web"))
        watched.lookup.update(wanted(reference("Deployment", "web")))
        with pytest.raises(ServerFailed):
            await watched.lookup.fetch_missing()
        assert watched.lookup.owners == {}
        await watched.lookup.fetch_missing()
        assert list(watched.lookup.owners) == ["Deployment-web"]
