"""Serves a make-believe cluster on loopback: enough for the console, for kubectl and for any client's lists.

Bodies are encoded before they are asked for, so that who reads them is what is measured.
Run it with `python -m tests.load.server`; it ends with its standard input, or its time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from k8s.models.resources import PODS, Resource
from k8s.sandbox.api.lists import selector_of
from k8s.sandbox.api.served import ServedResource
from tests.load import logs
from tests.load.cluster import Collection, Forgotten, LoadCluster
from tests.scripted.server import status_object

SELECTED_BY = (
    "spec.nodeName",
    "status.phase",
    *(f"involvedObject.{name}" for name in ("name", "kind", "uid")),
)
MOST_CHANGES_A_TURN = 500  # a storm that is late gives the turn back after so many changes
TURN_S = 0.01
BOOKMARK_S = 2.0
COLUMNS = [
    {"name": name, "type": "string", "format": "", "description": "", "priority": int(name in ("IP", "Node"))}
    for name in ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node")
]
METADATA_BYTES = 512  # of an object, in which its namespace stands
KEPT_LISTS = 32  # lists that may be read at once, page by page


class Server:
    """Answers requests about one `LoadCluster`, and does to it what a test asks for below `/load`."""

    def __init__(self, cluster: LoadCluster, log_lines: int, whole_lines: int) -> None:
        self.cluster = cluster
        self._logs = (log_lines, whole_lines)
        self._lists: dict[str, Sequence[bytes]] = {}
        self._rows: dict[str, tuple[bytes, bytes]] = {}
        self._watchers: dict[asyncio.Event, web.Request] = {}
        self._storm: asyncio.Task[None] | None = None
        self._changes = self._requests = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.on_response_prepare.append(self._count_request)
        app.router.add_get("/load/truth", self._truth)
        app.router.add_get("/load/count", self._count)
        app.router.add_post("/load/storm", self._start_storm)
        logs.add_routes(app, self.cluster, *self._logs)
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_post("/{path:.*}", self._review)
        app.router.add_route("*", "/{path:.*}", self._reject_change)
        return app

    async def _count_request(self, request: web.Request, _response: web.StreamResponse) -> None:
        self._requests += not request.path.startswith("/load/")

    async def _get(self, request: web.Request) -> web.StreamResponse:
        found = discovery(self.cluster.collections, request.path)
        if found is not None:
            return web.json_response(found)
        namespace, path = _split_namespace(request.path)
        for resource, collection in self.cluster.collections.items():
            if resource.path() == path and (resource.is_namespaced or not namespace):
                is_watch = request.query.get("watch") in ("1", "true")
                return await (self._watch if is_watch else self._list)(request, collection, namespace)
        return _refused(404, "NotFound", "the server could not find the requested resource")

    async def _review(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({**body, "status": {"allowed": True}}, status=201)

    async def _reject_change(self, _request: web.Request) -> web.Response:
        """Count what would change an object, and do nothing."""
        self._changes += 1
        return _refused(405, "MethodNotAllowed", "nothing is changed here")

    async def _list(self, request: web.Request, collection: Collection, namespace: str) -> web.Response:
        """Answer with a page; all pages of one list show one moment."""
        is_table = "as=Table" in request.headers.get("Accept", "")
        limit = int(request.query.get("limit") or 0)
        token = request.query.get("continue", "")
        name, _, start = token.partition(".")
        if token and name not in self._lists:
            return _refused(410, "Expired", "The provided continue parameter is too old.")
        version = name or str(self.cluster.version)
        objects = self._lists[name] if token else _selected(collection, namespace, request.query)
        first = int(start or 0)
        chosen = objects[first : first + limit] if limit else objects
        last = first + len(chosen)
        where: dict[str, Any] = {"resourceVersion": version.partition("-")[0]}
        if last < len(objects):
            if not token:
                version = f"{version}-{collection.resource.plural}-{len(self._lists)}"
                self._keep(version, objects)
            where |= {"continue": f"{version}.{last}", "remainingItemCount": len(objects) - last}
        head: dict[str, Any] = {"kind": f"{collection.resource.kind}List", "metadata": where}
        head["apiVersion"] = collection.resource.api_version
        if is_table:
            definitions = COLUMNS if not first else None
            head |= {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": definitions}
            chosen = [self._row(body) for body in chosen]
        field = b"rows" if is_table else b"items"
        body = b'%s,"%s":[%s]}' % (msgspec.json.encode(head)[:-1], field, b",".join(chosen))
        return web.Response(body=body, content_type="application/json")

    def _keep(self, name: str, objects: Sequence[bytes]) -> None:
        self._lists[name] = objects
        while len(self._lists) > KEPT_LISTS:
            del self._lists[next(iter(self._lists))]

    def prepare_rows(self) -> None:
        for body in self.cluster.collections[PODS].objects.values():
            self._row(body)

    def _row(self, body: bytes) -> bytes:
        """Return an object's row in a Table, made once while the object is the same."""
        uid = body[: body.index(b"resourceVersion")].rpartition(b'"uid":"')[2].decode()
        kept = self._rows.get(uid)
        if kept is None or kept[0] is not body:
            obj = msgspec.json.decode(body)
            about = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row = {"cells": _cells(obj), "object": {**about, "metadata": obj["metadata"]}}
            kept = self._rows[uid] = (body, msgspec.json.encode(row))
        return kept[1]

    async def _watch(
        self, request: web.Request, collection: Collection, namespace: str
    ) -> web.StreamResponse:
        mark = _mark(namespace)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + float(request.query.get("timeoutSeconds") or 1800)
        version = int(request.query.get("resourceVersion") or 0)
        try:
            position = collection.position(version)
        except Forgotten:
            return _refused(410, "Expired", f"too old resource version: {version}")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        changed = asyncio.Event()
        self._watchers[changed] = request
        try:
            while (left_s := until_s - loop.time()) > 0:
                changed.clear()
                events = collection.since(position)
                if events:
                    position += len(events)
                    if found := b"".join(event.line for event in events if mark in event.line):
                        await response.write(found)
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), min(left_s, BOOKMARK_S))
                    continue
                if request.query.get("allowWatchBookmarks"):
                    await response.write(self._bookmark(collection))
        except Forgotten:
            status = status_object(410, "too old resource version", "Expired")
            await response.write(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
        except ConnectionError:
            pass
        finally:
            del self._watchers[changed]
        return response

    def _bookmark(self, collection: Collection) -> bytes:
        meta = {"resourceVersion": str(self.cluster.version), "creationTimestamp": None}
        resource = collection.resource
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    async def _truth(self, _request: web.Request) -> web.Response:
        """Answer with the truth once the storm is over."""
        if self._storm is not None:
            await self._storm
        return web.json_response(self.cluster.truth())

    async def _start_storm(self, request: web.Request) -> web.Response:
        asked = request.query
        harm = [(int(at), self._drop) for at in asked.getall("drop", ())]
        harm += [(int(at), self._forget) for at in asked.getall("forget", ())]
        self._storm = asyncio.create_task(self._blow(float(asked["rate"]), int(asked["events"]), harm))
        return web.json_response({})

    def _drop(self) -> None:
        """Break all watches, in the middle of whatever they say."""
        for watching in list(self._watchers.values()):
            if watching.transport is not None:
                watching.transport.abort()

    def _forget(self) -> None:
        """Forget all changes: who watches or resumes is told 410."""
        self.cluster.version += 1
        for collection in self.cluster.collections.values():
            collection.forget(self.cluster.version)
        self._wake()

    async def _count(self, _request: web.Request) -> web.Response:
        counts = {"watches": len(self._watchers), "events": self.cluster.events}
        return web.json_response({**counts, "changes": self._changes, "requests": self._requests})

    async def _blow(self, rate: float, events: int, harm: list[tuple[int, Callable[[], None]]]) -> None:
        """Change pods at a rate until there have been so many events; a late storm lasts longer."""
        loop = asyncio.get_running_loop()
        harm.sort(key=lambda each: each[0])
        began_s, made = loop.time(), 0
        while made < events:
            due = min(events, int((loop.time() - began_s) * rate) + 1, made + MOST_CHANGES_A_TURN)
            while made < due:
                made += self.cluster.change()
            self._wake()
            while harm and harm[0][0] <= made:
                harm.pop(0)[1]()
            await asyncio.sleep(TURN_S)

    def _wake(self) -> None:
        for changed in self._watchers:
            changed.set()


def _cells(obj: Mapping[str, Any]) -> list[str]:
    status: Mapping[str, Any] = obj.get("status") or {}
    spec: Mapping[str, Any] = obj.get("spec") or {}
    containers = status.get("containerStatuses") or ()
    ready = sum(bool(each.get("ready")) for each in containers)
    restarts = sum(each.get("restartCount", 0) for each in containers)
    shown = (obj["metadata"]["name"], f"{ready}/{len(containers)}", status.get("phase"), restarts, "1d")
    return [str(cell or "<none>") for cell in (*shown, status.get("podIP"), spec.get("nodeName"))]


def _split_namespace(path: str) -> tuple[str, str]:
    """Split `/apis/batch/v1/namespaces/vision/jobs` into `vision` and the path of all jobs."""
    before, _, after = path.partition("/namespaces/")
    namespace, _, plural = after.partition("/")
    return (namespace, f"{before}/{plural}") if plural else ("", path)


def _mark(namespace: str) -> bytes:
    """Return bytes that only objects of a namespace contain: of these objects only metadata names one."""
    return b'"namespace":"%b"' % namespace.encode() if namespace else b""


def _selected(collection: Collection, namespace: str, query: Mapping[str, str]) -> Sequence[bytes]:
    """Return the objects of a namespace, or of all, that a list's selectors ask for."""
    served = ServedResource(collection.resource, fields=SELECTED_BY)
    chosen = selector_of(served, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    mark = _mark(namespace)
    # As fast as an API server's index: metadata comes first.
    bodies = tuple(body for body in collection.objects.values() if body.find(mark, 0, METADATA_BYTES) >= 0)
    return bodies if chosen is None else [body for body in bodies if chosen(msgspec.json.decode(body))]


def discovery(resources: Iterable[Resource], path: str) -> dict[str, Any] | None:
    """Return the discovery document at a path; None if there is none. No group has two versions here."""
    by_version: dict[str, list[dict[str, Any]]] = {}
    for resource in resources:
        by_version.setdefault(resource.api_version, []).append(_described(resource))
    groups = []
    for name in by_version:
        group, _, version = name.rpartition("/")
        each = {"groupVersion": name, "version": version}
        groups += [{"name": group, "versions": [each], "preferredVersion": each}] if group else []
    documents: dict[str, dict[str, Any]] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    for api_version, here in by_version.items():
        about = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
        place = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        documents[place] = {**about, "resources": here}
    return documents.get(path.rstrip("/") or "/")


def _described(resource: Resource) -> dict[str, Any]:
    names = {"name": resource.plural, "singularName": resource.kind.lower(), "kind": resource.kind}
    return {**names, "namespaced": resource.is_namespaced, "verbs": ["get", "list", "watch"]}


def _refused(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(status_object(code, message, reason), status=code)


async def serve(nodes: int, jobs: int, lifetime_s: float, log_lines: int, whole_lines: int) -> None:
    server = Server(LoadCluster(nodes, jobs), log_lines, whole_lines)
    server.prepare_rows()
    runner = web.AppRunner(server.app(), shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    print(json.dumps({"host": "http://127.0.0.1:{1}".format(*runner.addresses[0])}), flush=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), lifetime_s)
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--lifetime", type=float, default=600)
    parser.add_argument("--log-lines", type=int, default=logs.LINES_A_SECOND)
    parser.add_argument("--whole-log", type=int, default=0)
    words = parser.parse_args()
    asyncio.run(serve(words.nodes, words.jobs, words.lifetime, words.log_lines, words.whole_log))


if __name__ == "__main__":
    main()
