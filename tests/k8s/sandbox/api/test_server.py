"""The sandbox's server beyond what a real one does: tokens, idleness, refusals of its own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from k8s.sandbox.api.http.certificate import server_context
from k8s.sandbox.api.http.server import Server
from k8s.sandbox.api.storage.store import Store
from tests.k8s.sandbox.calls import Api, Object, config, eventually, job, pod, thing, torch_job
from tests.k8s.sandbox.conftest import TOKEN, serving


async def test_it_listens_on_loopback_only(store: Store, tmp_path: Path) -> None:
    server = Server(store, token=TOKEN, pods_root=tmp_path)
    with pytest.raises(ValueError, match="loopback"):
        await server.start(host="0.0.0.0")


async def test_without_the_token_only_health_is_told(sandbox: Api) -> None:
    for token in ("", "x", TOKEN + "x", TOKEN[:-1]):
        assert (await sandbox.call("GET", "/version", token=token)).code == 401
        assert (await sandbox.call("GET", "/readyz", token=token)).code == 200


async def test_tls_proves_the_server_and_works_from_the_second_start(store: Store, tmp_path: Path) -> None:
    server = Server(store, token=TOKEN, pods_root=tmp_path)
    context, _ = server_context(tmp_path)
    port = await server.start(tls=context)
    _, trusted = server_context(tmp_path)
    assert (tmp_path / "tls.key").stat().st_mode & 0o077 == 0
    tls = ssl.create_default_context(cadata=trusted)
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in ("127.0.0.1", "localhost"):
        async with Api(f"https://{host}:{port}", TOKEN, tls, is_real=False) as api:
            assert (await api.call("GET", "/version")).code == 200
    async with Api(
        f"https://127.0.0.1:{port}", TOKEN, ssl.create_default_context(), is_real=False
    ) as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.call("GET", "/version")
    await server.stop()


async def test_idleness_is_about_people_and_not_about_components(store: Store, tmp_path: Path) -> None:
    server = Server(store, token=TOKEN, pods_root=tmp_path, component_token="inner")
    port = await server.start()
    async with (
        Api(f"http://127.0.0.1:{port}", "inner", None, is_real=False) as inner,
        Api(f"http://127.0.0.1:{port}", TOKEN, None, is_real=False) as outer,
    ):
        await asyncio.sleep(0.05)
        assert (await inner.get("pods")).code == 200
        assert server.idle_s >= 0.05
        async with outer.watching("pods"):
            assert server.idle_s == 0
            async with inner.watching("pods"):
                pass
            assert server.idle_s == 0

        async def is_idle() -> bool:
            return 0 < server.idle_s < 5

        await eventually(is_idle)
    await server.stop()


async def test_stopping_ends_open_watches(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as (server, api), api.watching("pods") as events:
        stopping = asyncio.create_task(server.stop())
        assert await events.next() == {}
        async with asyncio.timeout(3):
            await stopping


async def test_a_full_disk_is_said_and_the_server_goes_on(sandbox: Api, store: Store) -> None:
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    answer = await sandbox.create("configmaps", config("c", {"k": "x" * 900_000}))
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert "full" in answer.body["message"]
    assert (await sandbox.get("configmaps")).names == []


async def test_the_default_namespace_is_there(sandbox: Api) -> None:
    namespace = (await sandbox.call("GET", "/api/v1/namespaces/default")).body
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}


@pytest.mark.parametrize(
    ("plural", "obj", "field"),
    [
        ("pods", pod("p") | {"spek": {}}, "spek"),
        (
            "pods",
            thing("Pod", "p", spec={"containers": [{"name": "a", "imagee": "x"}]}),
            "spec.containers[0].imagee",
        ),
        ("batch/v1/jobs", job("j", paralelism=1), "spec.paralelism"),
        (
            "kubeflow.org/v1/pytorchjobs",
            torch_job("t", spec={"pytorchReplicaSpecs": {"Master": {"replica": 1}}}),
            "spec.pytorchReplicaSpecs.Master.replica",
        ),
        ("configmaps", config("c", lables={}), "metadata.lables"),
    ],
)
async def test_a_misspelt_field_is_found_when_asked_for(
    sandbox: Api, plural: str, obj: Object, field: str
) -> None:
    answer = await sandbox.create(plural, obj, fieldValidation="Strict", dryRun="All")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert f'strict decoding error: unknown field "{field}"' in answer.body["message"]


async def test_what_is_not_served_may_not_be_done(sandbox: Api) -> None:
    for resource, allowed in (("pods", True), ("*", True), ("deployments", False)):
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": resource}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status = (await sandbox.call("POST", path, review)).body["status"]
        assert status["allowed"] is allowed
    await sandbox.made("pods", pod("p"))
    for path in ("attach", "proxy"):
        answer = await sandbox.call("GET", sandbox.path("pods", "p", path))
        assert (answer.code, answer.reason) == (501, "NotImplemented")


async def test_fields_are_checked_by_the_server_says_its_openapi(sandbox: Api) -> None:
    index = (await sandbox.call("GET", "/openapi/v3")).body["paths"]
    document = (await sandbox.call("GET", index["apis/batch/v1"]["serverRelativeURL"])).body
    patch = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert "fieldValidation" in [each["name"] for each in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert (await sandbox.call("GET", "/openapi/v3/apis/none/v1")).code == 404


async def test_old_events_are_swept(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as (server, api):
        old = "2026-01-01T00:00:00Z"
        await api.made("events", thing("Event", "old", lastTimestamp=old))
        await api.made("events", thing("Event", "new"))
        server.registry.expire_events(3600)
        assert (await api.get("events")).names == ["new"]


async def test_a_pod_that_is_over_goes_at_once(sandbox: Api) -> None:
    await sandbox.made("pods", pod("p", node="n"))
    await sandbox.patch("pods", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    await sandbox.delete("pods", "p")
    assert (await sandbox.get("pods", "p")).code == 404


async def test_a_namespace_with_a_running_pod_waits_for_it(sandbox: Api) -> None:
    await sandbox.call("POST", "/api/v1/namespaces", thing("Namespace", "n"))
    sandbox.namespace = "n"
    await sandbox.made("pods", pod("p", node="somewhere"))
    await sandbox.call("DELETE", "/api/v1/namespaces/n")
    assert (await sandbox.get("pods", "p")).body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (await sandbox.call("GET", "/api/v1/namespaces/n")).body["status"]["phase"] == "Terminating"
    await sandbox.delete("pods", "p", {"gracePeriodSeconds": 0})
    assert (await sandbox.call("GET", "/api/v1/namespaces/n")).code == 404


async def test_many_objects_end_with_their_namespace(sandbox: Api, store: Store) -> None:
    await sandbox.call("POST", "/api/v1/namespaces", thing("Namespace", "n"))
    sandbox.namespace = "n"
    for number in range(200):
        await sandbox.made("pods", pod(f"p-{number}"))
    async with asyncio.timeout(10):
        await sandbox.call("DELETE", "/api/v1/namespaces/n")
    assert store.records("pods") == []


async def test_a_job_takes_its_pods_along_when_told_so(sandbox: Api) -> None:
    made = await sandbox.made("batch/v1/jobs", job("j"))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made["metadata"]["uid"]}
    await sandbox.made("pods", pod("p", ownerReferences=[reference]))
    await sandbox.delete("batch/v1/jobs", "j")
    assert "ownerReferences" not in (await sandbox.get("pods", "p")).body["metadata"]
    made = await sandbox.made("batch/v1/jobs", job("j"))
    reference["uid"] = made["metadata"]["uid"]
    await sandbox.made("pods", pod("q", ownerReferences=[reference]))
    await sandbox.delete("batch/v1/jobs", "j", propagationPolicy="Background")
    assert (await sandbox.get("pods", "q")).code == 404


async def test_an_object_may_not_be_created_with_a_version(sandbox: Api) -> None:
    answer = await sandbox.create("pods", pod("p", resourceVersion="5"))
    assert (answer.code, answer.reason) == (400, "BadRequest")
