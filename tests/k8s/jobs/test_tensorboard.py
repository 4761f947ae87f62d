"""Place of a job's TensorBoard: behind Arena's Service, behind one named for it, or in a pod of the job."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from k8s.errors import NotFound
from k8s.jobs.tensorboard import PodPort, find_tensorboard
from k8s.snapshot import Job
from tests.scripted.server import Answer, ScriptedCluster, page, refusal
from tests.support.objects import joined, node, pod_of, pytorch_job

Object = dict[str, Any]
SERVICES, PODS = (f"/api/v1/namespaces/default/{plural}" for plural in ("services", "pods"))
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
ARENA: Object = {
    "metadata": {"name": "bert-tensorboard", "labels": {"role": "tensorboard", "release": "bert"}},
    "spec": {
        "ports": [{"name": "tensorboard", "nodePort": 32199, "port": 6006, "targetPort": 6006}],
        "selector": {"app": "pytorchjob", "release": "bert", "role": "tensorboard"},
    },
}
"""As arena v0.15.5 makes it."""


def bert() -> tuple[Job, Object]:
    made = pytorch_job("bert")
    chief = pod_of(made, "master-0", on="n1")
    _, jobs = joined([node("n1")], [chief], [made])
    return jobs["bert"], chief


def serving(name: str, *ports: Object, **status: Any) -> Object:
    spec = {"containers": [{"name": "a"}, {"name": "b", "ports": list(ports)}]}
    return {"metadata": {"name": name}, "spec": spec, "status": status or READY}


async def found(services: object, pods: list[Object], chief: Object | None = None) -> tuple[PodPort, str]:
    """Look for bert's TensorBoard; return it, and the labels by which its pods were found."""
    job, own = bert()
    async with ScriptedCluster() as cluster, cluster.client() as client:
        cluster.say(SERVICES, services if isinstance(services, Answer) else page(services))  # type: ignore[arg-type]
        cluster.say(PODS, page(pods))
        cluster.say(f"{PODS}/bert-master-0", Answer(chief or own))
        place = await find_tensorboard(client, job)
        return place, next((asked.query["labelSelector"] for asked in cluster.asked(PODS)), "")


async def test_arenas_service_leads_to_a_ready_pod() -> None:
    others = {"metadata": {"name": "vit-tensorboard", "labels": {"role": "tensorboard", "release": "vit"}}}
    leaving = serving("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T18:00:00Z"
    starting = serving("starting", phase="Running", conditions=[{"type": "Ready", "status": "False"}])
    place, labels = await found([others, ARENA], [leaving, starting, serving("tb-7c")])
    assert place == PodPort("default", "tb-7c", 6006)
    assert labels == "app=pytorchjob,release=bert,role=tensorboard"


async def test_a_port_that_is_named_is_looked_up_in_the_pod() -> None:
    service = copy.deepcopy(ARENA)
    board = {"name": "http-tensorboard", "port": 80, "targetPort": "web"}
    service["spec"]["ports"] = [{"name": "metrics", "port": 9090}, board]
    other, web = {"name": "metrics", "containerPort": 9090}, {"name": "web", "containerPort": 8080}
    place, _ = await found([service], [serving("old", other), serving("new", other, web)])
    assert place == PodPort("default", "new", 8080)


@pytest.mark.parametrize("bad", [None, True, 7, "x", [None], {"metadata": 1}, {"metadata": {"labels": [1]}}])
async def test_a_malformed_service_or_pod_is_left_out(bad: Any) -> None:
    broken = [{**ARENA, key: bad} for key in ARENA]
    place, _ = await found(
        [bad, *broken, ARENA], [bad, *({**serving("a"), "status": bad},), serving("tb-7c")]
    )
    assert place.pod == "tb-7c"


@pytest.mark.parametrize(
    ("name", "is_its"),
    [
        ("bert-tensorboard", True),
        ("tensorboard-bert", True),
        ("bert", False),
        ("bert-large-tensorboard", False),
        ("tensorboard", False),
    ],
)
async def test_only_a_service_named_for_the_job_counts(name: str, is_its: bool) -> None:
    service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    if is_its:
        assert (await found([service], [serving("tb")]))[0] == PodPort("default", "tb", 80)
    else:
        with pytest.raises(NotFound, match="No TensorBoard found for"):
            await found([service], [serving("tb")])


@pytest.mark.parametrize("services", [page([]), refusal(403, "no")])
async def test_a_pod_of_the_job_that_declares_the_port_counts(services: Answer) -> None:
    chief = serving("bert-master-0", {"containerPort": 22}, {"containerPort": 6006})
    assert (await found(services, [], chief))[0] == PodPort("default", "bert-master-0", 6006)
    chief["status"] = {"phase": "Pending"}
    with pytest.raises(NotFound):
        await found(services, [], chief)


async def test_an_unready_tensorboard_is_distinguished_from_a_missing_one() -> None:
    with pytest.raises(NotFound, match="No pod behind the Service bert-tensorboard is ready"):
        await found([ARENA], [])
    with pytest.raises(NotFound, match="No TensorBoard found for"):
        await found([], [])


async def test_malformed_services_are_skipped() -> None:
    labels = ARENA["metadata"]["labels"]
    odd: list[Object] = [
        {"metadata": {"labels": labels}},
        {"metadata": {"labels": labels}, "spec": {"selector": {"a": "b"}, "ports": [None, {"port": "x"}]}},
        {"spec": None},
    ]
    pods = [serving("tb"), {"metadata": {"name": "x"}, "status": READY, "spec": {"containers": 1}}]
    with pytest.raises(NotFound):
        await found(odd, pods)
