"""The sandbox's server where it differs from a real one: tokens, idle time, connections, limits of bodies."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s.client.transport import uid_of_peer
from k8s.sandbox.api.api_errors import ApiError
from k8s.sandbox.api.listening import listen, server_context
from k8s.sandbox.api.server import Server, decode_body
from k8s.sandbox.api.store import Store
from tests.k8s.sandbox.calls import (
    JSON_PATCH,
    MERGE,
    PATIENCE_S,
    STRATEGIC,
    Api,
    config,
    eventually,
    pod,
    thing,
)
from tests.k8s.sandbox.conftest import TOKEN, serving
from tests.support import second_account


async def test_requests_without_the_token_get_health_only(sandbox: Api) -> None:
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


async def test_idle_time_counts_users_not_components(store: Store, tmp_path: Path) -> None:
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
        async with asyncio.timeout(PATIENCE_S):
            await stopping


async def test_a_full_disk_is_reported_and_the_server_continues(sandbox: Api, store: Store) -> None:
    store._database.execute("VACUUM")  # uses up the reserve
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages}")
    answer = await sandbox.create("configmaps", config("c", {"k": "x" * 900_000}))
    assert (answer.code, answer.reason) == (500, "InternalError")
    assert "full" in answer.body["message"]
    assert (await sandbox.get("configmaps")).names == []


async def test_the_default_namespace_exists(sandbox: Api) -> None:
    namespace = (await sandbox.call("GET", "/api/v1/namespaces/default")).body
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}


async def test_unserved_kinds_and_subresources_are_refused(sandbox: Api) -> None:
    for resource, allowed in (("pods", True), ("*", True), ("deployments", False)):
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": resource}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status = (await sandbox.call("POST", path, review)).body["status"]
        assert status["allowed"] is allowed
    await sandbox.made("pods", pod("p"))
    for path in ("attach", "proxy"):
        answer = await sandbox.call("GET", sandbox.path("pods", "p", path))
        assert (answer.code, answer.reason) == (501, "NotImplemented")


async def test_openapi_announces_field_validation_by_the_server(sandbox: Api) -> None:
    index = (await sandbox.call("GET", "/openapi/v3")).body["paths"]
    document = (await sandbox.call("GET", index["apis/batch/v1"]["serverRelativeURL"])).body
    patch = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert "fieldValidation" in [each["name"] for each in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert (await sandbox.call("GET", "/openapi/v3/apis/none/v1")).code == 404


async def test_old_events_are_removed(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as (server, api):
        old = "2026-01-01T00:00:00Z"
        await api.made("events", thing("Event", "old", lastTimestamp=old))
        await api.made("events", thing("Event", "new"))
        server.registry.expire_events(3600)
        assert (await api.get("events")).names == ["new"]


async def test_a_finished_pod_is_deleted_at_once(sandbox: Api) -> None:
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


async def test_an_object_may_not_be_created_with_a_version(sandbox: Api) -> None:
    answer = await sandbox.create("pods", pod("p", resourceVersion="5"))
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_impersonation_headers_are_refused(sandbox: Api) -> None:
    for headers in ({"Impersonate-User": "li"}, {"impersonate-group": "g"}, {"Impersonate-Uid": "1"}):
        headers["Authorization"] = f"Bearer {sandbox.token}"
        async with sandbox.session.get(f"{sandbox.url}/api/v1/pods", headers=headers) as answer:
            assert answer.status == 403
            assert "the sandbox has one user" in (await answer.json())["message"]


PYTHON = re.compile(
    r"\b(int|str|dict|list|NoneType|None|True|False|codec|char|byte|bool|float|tuple)\b|`|literal|class|member|[Ee]xpecting"
)
SECRET = "do-not-tell"
NUMBERS = ("resourceVersion", "limit", "continue", "timeoutSeconds", "watch", "sendInitialEvents")
ASKED = [
    *(f"{name}=abc" for name in NUMBERS),
    *("resourceVersion=-1", "limit=1.5"),
    *("continue=eyJ2IjoieCJ9", "continue=%21%21", "continue=W10", "continue=NQ"),
    *("labelSelector=a%3D%3D%3D", "labelSelector=%28", "fieldSelector=x", "resourceVersionMatch=x"),
]
PATCHES: list[object] = [
    *([{"op": op, "path": "/data/k/x", "value": "w"}] for op in ("replace", "test", "frob")),
    *([{"op": op, "path": "k", "value": "w"}] for op in ("replace", "test", "frob")),
    *([{"op": "remove", "path": path}] for path in ("/nope", "/metadata/finalizers/-1", "")),
    *([1], [None], {}, 5, None),
    *([{"path": "/k"}], [{"op": None}], [{"op": ["x"], "path": {}}], [{"op": "copy"}]),
    *([{"op": "add", "path": "/data/z", "value": value}] for value in (5, 1.5, True)),
    [{"op": "add", "path": "/data/z", "value": {"a": 1}}],
]


async def test_invalid_parameters_are_refused_without_python_terms(sandbox: Api) -> None:
    for query in ASKED:
        answer = await sandbox.call("GET", f"{sandbox.path('pods')}?{query}")
        assert answer.code in (400, 422), query
        assert not PYTHON.search(answer.body["message"]), answer.body["message"]


async def test_invalid_patches_are_refused_without_python_terms(sandbox: Api) -> None:
    await sandbox.made("configmaps", config("c", {"k": SECRET}))
    for patch in PATCHES:
        for content_type in (JSON_PATCH, MERGE, STRATEGIC):
            answer = await sandbox.patch("configmaps", "c", patch, content_type)
            if content_type == JSON_PATCH or not isinstance(patch, dict):
                assert answer.code in (400, 422), answer.body
                message = answer.body["message"].replace("[]byte", "")
                assert not PYTHON.search(message) and SECRET not in message, message


async def test_yaml_is_refused_with_the_type_that_is_accepted(sandbox: Api) -> None:
    path = sandbox.path("configmaps")
    answer = await sandbox.call("POST", path, b"metadata: {name: c}", content_type="application/yaml")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert "application/json" in answer.body["message"]


async def test_bodies_nested_too_deeply_are_refused(sandbox: Api) -> None:
    await sandbox.made("configmaps", config("c"))
    for depth in (150, 900, 5_000, 200_000):
        for method in ("create", "strategic", "json patch", "delete", "review"):
            deep = b"[" * depth + b"]" * depth
            nested = b'{"spec":' + deep + b"}"
            path = sandbox.path("configmaps", "c")
            patch = b'[{"op":"add","path":"/data/x","value":' + deep + b"}]"
            if method == "create":
                answer = await sandbox.call("POST", sandbox.path("configmaps"), nested)
            elif method == "strategic":
                answer = await sandbox.call("PATCH", path, nested, content_type=STRATEGIC)
            elif method == "json patch":
                answer = await sandbox.call("PATCH", path, patch, content_type=JSON_PATCH)
            elif method == "delete":
                answer = await sandbox.call("DELETE", path, nested)
            else:
                review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
                answer = await sandbox.call("POST", review, nested)
            assert (answer.code, answer.reason) == (400, "BadRequest"), (method, depth)
            assert "max depth" in answer.body["message"]


async def test_an_object_that_patches_make_too_deep_is_refused(sandbox: Api) -> None:
    node = {"metadata": {"name": "n"}, "spec": {"x": {}}}
    assert (await sandbox.call("POST", "/api/v1/nodes", node)).code == 201
    at, codes = "/spec/x", []
    deep: object = {}
    for _ in range(80):
        deep = {"x": deep}
    for _ in range(20):
        change = [{"op": "add", "path": at, "value": deep}]
        answer = await sandbox.call("PATCH", "/api/v1/nodes/n", change, content_type=JSON_PATCH)
        codes.append(answer.code)
        at += "/x" * 80
    assert codes[0] == 200 and 400 in codes and set(codes) <= {200, 400, 422}


@settings(max_examples=300)
@given(body=st.binary(max_size=60) | st.text(alphabet='[]{}"\\&*a:,-\n <!|>', max_size=60).map(str.encode))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    try:
        decoded = decode_body(body, "Pod")
    except ApiError as error:
        assert error.code == 400
    else:
        json.dumps(decoded)


FLOOD = """
import socket, sys
opened = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) for _ in range(300)]
def is_closed(each):
    try:
        return each.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False
print(all(map(is_closed, opened)), flush=True)
"""


def port_of(api: Api) -> int:
    port = urlsplit(api.url).port
    assert port
    return port


def test_our_own_connections_on_loopback_are_recognised() -> None:
    with listen(0) as listening, ExitStack() as opened:
        opened.enter_context(socket.create_connection(listening.getsockname()))
        ours, _ = listening.accept()
        opened.enter_context(ours)
        assert listening.getsockname()[0] == "127.0.0.1"
        assert uid_of_peer(ours) in (os.getuid(), None)


@second_account.only_root
async def test_another_user_cannot_hold_connections(sandbox: Api) -> None:
    flood = asyncio.create_task(asyncio.to_thread(second_account.said, FLOOD, str(port_of(sandbox))))
    assert (await sandbox.get("configmaps")).code == 200
    assert await flood == "True\n"
    assert (await sandbox.create("configmaps", config("c"))).code == 201


async def test_requests_without_the_token_are_refused_and_closed(sandbox: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(sandbox))
    writer.write(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401 ")
    writer.close()
