"""The one seam to a cluster: requests, watches, logs and exec on one aiohttp session.

Bodies come back raw or as JSON; errors come as `k8s.errors`. There are no retries here
but one: a 401 logs in again, once for everybody who waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp

from k8s.access import Access, load
from k8s.errors import Invalid, Unauthorized, from_status
from k8s.resources import PODS, Resource
from k8s.wire import PATCHES, Query, json_object, lines, query_of, status_of, translated

REQUEST_S = 30.0
"""Longest wait for an answer that is not a stream."""
CONNECT_S = 10.0
"""Longest wait for a connection."""
FIELD_MANAGER = "gpuconsole"
"""Who we are in managedFields."""


class Client:
    """One user's access to one cluster. Use it in `async with`, or `close` it."""

    def __init__(self, access: Access, *, request_s: float = REQUEST_S) -> None:
        """Prepare; nothing is sent yet. Needs a running event loop."""
        self.access = access
        """Where the cluster is, and which namespace is meant when none is named."""
        self.server_clock_offset_s = 0.0
        """How far the server's clock is ahead of ours, from its last answer."""
        self._request_s = request_s
        self._tls = access.ssl_context()
        # Every stream keeps its connection, and there may be as many as a job has ranks: no limit.
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls if self._tls is not None else True)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        self._login: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, kubeconfig: str = "", context: str = "", namespace: str = "") -> Self:
        """Read the kubeconfig and prepare, or raise `NoCluster`; the server is not asked yet."""
        return cls(await load(kubeconfig, context, namespace))

    async def close(self) -> None:
        """End all streams and connections."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get_json(self, path: str, *, doing: str = "") -> dict[str, Any]:
        """Return the JSON at a path: discovery, version."""
        return json_object(await self._read("GET", path, doing or f"read {path}"))

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        """Return one object, or raise `NotFound`."""
        return json_object(
            await self._read("GET", resource.path(namespace, name), f"read {resource.kind} {name}")
        )

    async def list_page(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        limit: int = 500,
        continue_token: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> bytes:
        """Return one page of a list as the server sent it; no namespace means all of them."""
        query = query_of(
            limit=str(limit) if limit else "",
            **{"continue": continue_token},
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        return await self._read("GET", resource.path(namespace), f"list {resource.plural}", query=query)

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects, page by page, as JSON."""
        found: list[dict[str, Any]] = []
        chosen: dict[str, Any] = {"label_selector": label_selector, "field_selector": field_selector}
        token = ""
        while True:
            page = json_object(await self.list_page(resource, namespace, continue_token=token, **chosen))
            found.extend(page.get("items") or ())
            token = str((page.get("metadata") or {}).get("continue") or "")
            if not token:
                return found

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: int = 300,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of one watch, until the server ends it; `on_open` is called when it begins.

        The server is asked to end after `timeout_s`; a connection silent for a little
        longer than that is dead and raises `Unreachable`.

        Raises:
            Expired: `version` is forgotten; list again.
        """
        query = query_of(
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=version,
            timeoutSeconds=str(timeout_s),
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        doing = f"watch {resource.plural}"
        path = resource.path(namespace)
        async with self.stream(
            "GET", path, doing, query=query, idle_s=timeout_s + 30, open_s=self._request_s
        ) as body:
            if on_open is not None:
                on_open()
            async for line in lines(body, doing):
                yield line

    async def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        namespace: str = "",
        *,
        of: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Create an object and return it as stored; or post to a `subresource` of the object called `of`.

        Raises:
            Conflict: The name is taken.
            Invalid: The server refuses it, with the fields that are wrong.
        """
        meta = obj.get("metadata") or {}
        doing = f"create {resource.kind} {of or meta.get('name') or meta.get('generateName') or ''}".rstrip()
        query = query_of(
            dryRun="All" if dry_run else "",
            fieldManager=FIELD_MANAGER,
            fieldValidation="Strict" if dry_run else "",
        )
        path = resource.path(namespace, of, subresource)
        return json_object(await self._read("POST", path, doing, query=query, body=obj))

    async def replace(
        self, resource: Resource, obj: Mapping[str, Any], namespace: str = "", *, subresource: str = ""
    ) -> dict[str, Any]:
        """Replace an object, or its `status`.

        Raises:
            Conflict: It has changed since it was read.
        """
        name = str((obj.get("metadata") or {}).get("name", ""))
        path = resource.path(namespace, name, subresource)
        return json_object(await self._read("PUT", path, f"update {resource.kind} {name}", body=obj))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        kind: str = "merge",
        subresource: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Change part of an object; `kind` is a key of `PATCHES`."""
        query = query_of(dryRun="All" if dry_run else "", fieldManager=FIELD_MANAGER)
        return json_object(
            await self._read(
                "PATCH",
                resource.path(namespace, name, subresource),
                f"change {resource.kind} {name}",
                query=query,
                body=patch,
                content_type=PATCHES[kind],
            )
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        propagation: str = "Background",
        uid: str = "",
    ) -> dict[str, Any]:
        """Delete an object; with `uid`, only if it is still that one."""
        options: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
        }
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if uid:
            options["preconditions"] = {"uid": uid}
        path = resource.path(namespace, name)
        return json_object(await self._read("DELETE", path, f"delete {resource.kind} {name}", body=options))

    @asynccontextmanager
    async def log(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        follow: bool = False,
        tail: int | None = None,
        since_time: str = "",
        since_s: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        idle_s: float | None = None,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a container's log; the bytes are as its process wrote them.

        Args:
            pod: The pod's name.
            namespace: Its namespace.
            container: Needed when the pod has several.
            follow: Stay until the container ends.
            tail: Begin this many lines before the end.
            since_time: Begin at this time, RFC 3339, whole seconds.
            since_s: Begin this many seconds ago.
            timestamps: Put the time of writing before each line.
            previous: The run before the last restart.
            idle_s: Give up after so long without a byte; None waits for ever.
        """
        query = query_of(
            container=container,
            follow="true" if follow else "",
            tailLines="" if tail is None else str(tail),
            sinceTime=since_time,
            sinceSeconds="" if since_s is None else str(since_s),
            timestamps="true" if timestamps else "",
            previous="true" if previous else "",
        )
        path = PODS.path(namespace, pod, "log")
        async with self.stream("GET", path, f"read the log of {pod}", query=query, idle_s=idle_s) as body:
            yield body

    @asynccontextmanager
    async def exec(
        self, pod: str, namespace: str, command: Sequence[str], *, container: str = ""
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Run a command in a container: channel 1 is its output, 2 its errors, 3 how it ended.

        Reading raises `TimeoutError` when nothing comes for as long as an answer may take.
        """
        query = [("command", word) for word in command]
        query += [("stdout", "true"), ("stderr", "true")]
        if container:
            query.append(("container", container))
        path, doing = PODS.path(namespace, pod, "exec"), f"run {command[0]} in {pod}"
        with translated(doing):
            try:
                socket = await self._open_socket(path, query)
            except aiohttp.WSServerHandshakeError as error:
                # A handshake does not say why it was refused. Asked plainly the server does, or a login
                # that was over is renewed: then only the missing upgrade is left to complain of.
                try:
                    await self._read("GET", path, doing, query=query)
                except Invalid:
                    if error.status != 401:
                        raise
                socket = await self._open_socket(path, query)
        async with socket:
            yield socket

    async def _open_socket(self, path: str, query: Query) -> aiohttp.ClientWebSocketResponse:
        return await self._session.ws_connect(
            self.access.host + path,
            params=query,
            protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"),
            headers={**self._headers(), "Accept": "*/*"},  # to JSON alone, servers say 406
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_receive=self._request_s, ws_close=CONNECT_S),
            proxy=self.access.proxy,
            server_hostname=self.access.tls_server_name,
        )

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        idle_s: float | None = None,
        open_s: float | None = None,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a request, in `open_s` if given, and give its body as it comes; errors are raised as ours."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s)
        with translated(doing):
            async with asyncio.timeout(open_s):
                response = await self._open(method, path, doing, query, body, content_type, timeout)
        try:
            yield response.content
        finally:
            response.close()

    async def _read(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        query: Query = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self._request_s)
        with translated(doing):
            response = await self._open(method, path, doing, query, body, content_type, timeout)
            async with response:
                return await response.read()

    async def _open(
        self,
        method: str,
        path: str,
        doing: str,
        query: Query,
        body: Any,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send; on a 401 log in again and send once more."""
        payload = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            sent_with = self.access.authorization()
            response = await self._session.request(
                method,
                self.access.host + path,
                params=query,
                data=payload,
                headers=self._headers(content_type if payload is not None else ""),
                timeout=timeout,
                proxy=self.access.proxy,
                server_hostname=self.access.tls_server_name,
            )
            if response.status < 400:
                return response
            async with response:
                text = await response.read()
            if response.status == 401 and attempt == 1 and await self._log_in_again(sent_with):
                continue
            raise from_status(
                response.status, status_of(text), doing, response.headers.get("Retry-After", "")
            )
        raise Unauthorized(f"Could not {doing}.")

    async def _log_in_again(self, refused: str) -> bool:
        """Renew the login unless somebody has done so meanwhile; tell whether another try makes sense."""
        if self.access.authorization() == refused:
            if self._login is None or self._login.done():
                self._login = asyncio.create_task(self.access.renew())
            await asyncio.shield(self._login)
        return self.access.authorization() != refused

    def _headers(self, content_type: str = "") -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "gpuconsole"}
        if authorization := self.access.authorization():
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        return headers
