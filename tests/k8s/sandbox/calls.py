"""Plain HTTP calls to an API server, the sandbox's or a real one, and objects to send."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

Object = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., object])
JOBS, TORCH_JOBS = "batch/v1/jobs", "kubeflow.org/v1/pytorchjobs"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
PATIENCE_S = 120.0


def also_scripted(test: Test) -> Test:
    """Mark a test of the API to run also on the scripted server of other tests, which serves that much."""
    test.is_also_scripted = True  # type: ignore[attr-defined]
    return test


class Answer(msgspec.Struct, frozen=True):
    code: int
    body: Any
    headers: Mapping[str, str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def fields(self) -> list[str]:
        """Return the wrong fields of a 422."""
        return [cause["field"] for cause in self.body["details"]["causes"]]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Api:
    """One user's calls to one server, in a namespace of their own."""

    def __init__(self, url: str, token: str, tls: ssl.SSLContext | None, *, is_real: bool) -> None:
        self.url = url
        self.token = token
        self.is_real = is_real
        self.namespace = "default"
        connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True, force_close=False)
        timeout = aiohttp.ClientTimeout(total=60)
        self.session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        """Return the path of `pods`, or with a group of `batch/v1/jobs`."""
        group, _, plural = plural.rpartition("/")
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join(filter(None, (root, "namespaces", self.namespace, plural, name, subresource)))

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        token: str | None = None,
        **query: str,
    ) -> Answer:
        headers = {
            "Authorization": f"Bearer {self.token if token is None else token}",
            "Accept": "application/json",
            "User-Agent": "conformance/1",
        }
        payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if payload is not None:
            headers["Content-Type"] = content_type
        url = self.url + path + ("?" + urlencode(query) if query else "")
        sent = None if payload is None else io.BytesIO(payload)
        async with self.session.request(method, url, data=sent, headers=headers) as response:
            text = await response.read()
            is_json = response.content_type == "application/json"
            answer: Any = json.loads(text) if is_json and text else text
            return Answer(response.status, answer, response.headers)

    async def get(self, plural: str, name: str = "", **query: str) -> Answer:
        return await self.call("GET", self.path(plural, name), **query)

    async def create(self, plural: str, obj: Object, **query: str) -> Answer:
        return await self.call("POST", self.path(plural), obj, **query)

    async def made(self, plural: str, obj: Object) -> Object:
        """Create an object that must be accepted."""
        answer = await self.create(plural, obj)
        assert answer.code == 201, answer.body
        found: Object = answer.body
        return found

    async def patch(
        self,
        plural: str,
        name: str,
        patch: Any,
        content_type: str = MERGE,
        subresource: str = "",
        **query: str,
    ) -> Answer:
        path = self.path(plural, name, subresource)
        return await self.call("PATCH", path, patch, content_type=content_type, **query)

    async def delete(self, plural: str, name: str, options: Object | None = None, **query: str) -> Answer:
        return await self.call("DELETE", self.path(plural, name), options, **query)

    @asynccontextmanager
    async def watching(self, plural: str, **query: str) -> AsyncIterator[Events]:
        """Open a watch and wait for the server's answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        url = f"{self.url}{self.path(plural)}?{urlencode({'watch': '1', **query})}"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.session.get(url, headers=headers, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


class Events:
    """The events of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self, timeout_s: float = PATIENCE_S) -> Object:
        """Return the next event; empty at the end."""
        async with asyncio.timeout(timeout_s):
            line = await self._response.content.readline()
        found: Object = json.loads(line) if line else {}
        return found

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next events without bookmarks."""
        found: list[tuple[str, str]] = []
        while len(found) < count:
            event = await self.next()
            if event["type"] != "BOOKMARK":
                found.append((event["type"], event["object"]["metadata"]["name"]))
        return found

    async def rest(self) -> list[Object]:
        """Return all events up to the end."""
        found = []
        while event := await self.next():
            found.append(event)
        return found


async def eventually(check: Callable[[], Awaitable[Any]], timeout_s: float = PATIENCE_S) -> Any:
    """Poll until the answer is true; return it."""
    deadline = time.monotonic() + timeout_s
    while not (answer := await check()):
        assert time.monotonic() < deadline, f"after {timeout_s:g} s still {answer!r}: {wording(check)}"
        await asyncio.sleep(0.02)
    return answer


def wording(claim: Callable[..., object]) -> str:
    """Return the source of a claim and the values that it uses, for the message of a failure."""
    try:
        source = " ".join(inspect.getsource(claim).split())
        used = inspect.getclosurevars(claim).nonlocals
    except (OSError, TypeError):
        return repr(claim)
    return f"`{source[:300]}`" + (f" with {used!r:.300}" if used else "")


def thing(kind: str, name: str, api_version: str = "v1", **members: Any) -> Object:
    meta = {"name": name, **members.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **members}


def config(name: str, words: Mapping[str, str] | None = None, **metadata: Any) -> Object:
    return thing("ConfigMap", name, data=dict(words or {"k": "1"}), metadata=metadata)


def pod(name: str, *, node: str = "", containers: tuple[str, ...] = ("a",), **metadata: Any) -> Object:
    """Return a pod of a scheduler that does not exist."""
    spec: Object = {
        "schedulerName": "nobody",
        "containers": [{"name": each, "image": "busybox", "imagePullPolicy": "Never"} for each in containers],
    }
    if node:
        spec["nodeName"] = node
    return thing("Pod", name, spec=spec, metadata=metadata)


def job(name: str, **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "busybox:1"}]}}
    return thing("Job", name, "batch/v1", spec={"parallelism": 0, "template": template, **spec})


def torch_job(name: str, **members: Any) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "busybox:1"}]}}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    return thing("PyTorchJob", name, "kubeflow.org/v1", **{"spec": spec, **members})


def broken_pod() -> Object:
    """Return a pod with every kind of wrong field."""
    broken = pod("Bad", containers=("A", "b", "b"))
    first, second, third = broken["spec"]["containers"]
    first |= {
        "volumeMounts": [{"name": "v", "mountPath": "/x"}],
        "ports": [{"containerPort": 99999}],
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
    }
    del second["image"]
    third |= {"env": [{"value": "x"}], "resources": {"requests": {"nvidia.com/gpu": 1}}}
    broken["spec"]["restartPolicy"] = "Maybe"
    return broken
