"""The load server answers lists and watches of one namespace as it answers those of all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from k8s.models.resources import PODS as PODS_KIND
from tests.load.cluster import LoadCluster
from tests.load.server import Server

JOBS = "/apis/kubeflow.org/v1/{}pytorchjobs"
PODS = "/api/v1/{}pods"
Http = TestClient[Any, Any]


@pytest.fixture
async def client() -> AsyncIterator[tuple[LoadCluster, Http]]:
    cluster = LoadCluster(4, 20)
    async with TestClient(TestServer(Server(cluster, 0, 0).app())) as client:
        yield cluster, client


async def names(client: Http, path: str, **query: str) -> list[tuple[str, str]]:
    answer = await client.get(path, params=query)
    assert answer.status == 200
    return [
        (each["metadata"]["namespace"], each["metadata"]["name"]) for each in (await answer.json())["items"]
    ]


@pytest.mark.parametrize("path", [JOBS, PODS])
async def test_a_list_of_a_namespace_has_its_objects_and_no_others(
    client: tuple[LoadCluster, Http], path: str
) -> None:
    _, http = client
    everything = await names(http, path.format(""))
    found = await names(http, path.format("namespaces/biology/"))
    assert found == [each for each in everything if each[0] == "biology"]
    assert 0 < len(found) < len(everything)
    running = await names(
        http, path.format("namespaces/biology/"), fieldSelector=f"metadata.name={found[0][1]}"
    )
    assert running == found[:1]


async def test_a_list_that_is_not_served_is_not_found(client: tuple[LoadCluster, Http]) -> None:
    _, http = client
    for path in ("/api/v1/namespaces/biology/nodes", "/api/v1/namespaces/biology/secrets", "/api/v1/secrets"):
        answer = await http.get(path)
        assert (answer.status, (await answer.json())["reason"]) == (404, "NotFound")


async def test_a_watch_of_a_namespace_has_its_changes_and_no_others(client: tuple[LoadCluster, Http]) -> None:
    cluster, http = client
    mark = b'"namespace":"biology"'
    pods = cluster.collections[PODS_KIND]
    while len(expected := [each.line for each in pods.since(pods.position(1)) if mark in each.line]) < 3:
        cluster.change()
    query = {"watch": "1", "resourceVersion": "1"}
    async with http.get(PODS.format("namespaces/biology/"), params=query) as answer:
        found = [json.loads(await answer.content.readline())["object"]["metadata"] for _ in expected]
    assert {each["namespace"] for each in found} == {"biology"}
