"""The one seam to a cluster: requests, watches, logs and exec.

Bodies come back raw or as JSON; errors come as `k8s.errors`. What changes the cluster is
sent once; what is tried again, and how fast requests go, is decided in `k8s.client.connection`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import aiohttp

from k8s.client.auth.cluster_config import ClusterConfig, load
from k8s.client.connection import Connection, close_socket
from k8s.client.rate_limiter import RateLimiter
from k8s.client.transport import PATCHES, Query, json_object, query_of, translated
from k8s.errors import Invalid
from k8s.models.resources import PODS, Resource

REQUEST_S = 30.0
"""Longest wait for an answer that is not a stream."""
FIELD_MANAGER = "gpuconsole"
"""Who we are in managedFields."""
COMMAND_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""Of exec: only with the first can a command's input end before the command does."""


class Client:
    """One user's access to one cluster. Use it in `async with`, or `close` it."""

    def __init__(
        self, config: ClusterConfig, *, request_s: float = REQUEST_S, limiter: RateLimiter | None = None
    ) -> None:
        """Prepare; nothing is sent yet. Needs a running event loop.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        self.config = config
        """Where the cluster is, and which namespace is meant when none is named."""
        self._request_s = request_s
        self._connection = Connection(config, limiter or RateLimiter(), request_s)

    @property
    def server_clock_offset_s(self) -> float:
        """Return how far the server's clock is ahead of ours; 0 when that is less than two seconds."""
        return self._connection.clock.offset_s

    @property
    def heard_at_s(self) -> float:
        """Return when the server was last heard, by the event loop's clock: an answer, or a line of a watch.

        An open watch that the other end breaks has told all that there was until then.
        """
        return self._connection.heard_at_s

    @property
    def throttled_until_s(self) -> float:
        """Return until when the server wants to be left alone, by the event loop's clock; 0 if not at all."""
        return self._connection.limiter.paused_until_s

    def on_warning(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with whatever the server warns of when something is changed."""
        self._connection.on_warning = tell

    @classmethod
    async def connect(cls, kubeconfig: str = "", context: str = "", namespace: str = "") -> Self:
        """Read the kubeconfig and prepare, or raise `NoCluster`; the server is not asked yet."""
        return cls(await load(kubeconfig, context, namespace))

    async def close(self) -> None:
        """End all streams and connections."""
        await self._connection.close()

    def retry_credentials(self) -> None:
        """Let the next 401 renew the credentials, though that has just failed."""
        self._connection.retry_credentials()

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
        doing, is_more = f"list {resource.plural}", bool(continue_token)
        path = resource.path(namespace)
        return await self._read("GET", path, doing, query=query, is_urgent=False, has_turn=is_more)

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects, page by page, as JSON."""
        found: list[dict[str, Any]] = []
        selectors: dict[str, Any] = {"label_selector": label_selector, "field_selector": field_selector}
        token = ""
        while True:
            page = json_object(await self.list_page(resource, namespace, continue_token=token, **selectors))
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
        grace_s: float = 30.0,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of one watch, until the server ends it; `on_open` is called when it begins.

        The server is asked to end after `timeout_s`; a connection silent for `grace_s`
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
        idle_s = timeout_s + grace_s
        async with self.stream(
            "GET", path, doing, query=query, idle_s=idle_s, open_s=self._request_s, is_urgent=False
        ) as body:
            if on_open is not None:
                on_open()
            async for line in self._connection.lines(body, doing):
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
        is_urgent: bool = True,
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
        return json_object(await self._read("POST", path, doing, query=query, body=obj, is_urgent=is_urgent))

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
        path, doing = resource.path(namespace, name, subresource), f"change {resource.kind} {name}"
        sent: dict[str, Any] = {"query": query, "body": patch, "content_type": PATCHES[kind]}
        return json_object(await self._read("PATCH", path, doing, **sent))

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
        is_urgent: bool = True,
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
            is_urgent: Whether the user waits for it.
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
        async with self.stream(
            "GET", path, f"read the log of {pod}", query=query, idle_s=idle_s, is_urgent=is_urgent
        ) as body:
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
        async with self.open_socket(path, doing, query, silence_s=self._request_s) as socket:
            yield socket

    @asynccontextmanager
    async def open_socket(
        self,
        path: str,
        doing: str,
        query: Query,
        *,
        protocols: Sequence[str] = COMMAND_PROTOCOLS,
        silence_s: float | None = None,
        is_ponging: bool = True,
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket.

        Args:
            path: Where to.
            doing: What is tried, as in "open a shell in bert-master-0".
            query: Its parameters.
            protocols: Subprotocols to offer, the preferred one first.
            silence_s: Longest silence, after which reading raises `TimeoutError`; None waits for ever.
            is_ponging: Answer pings unseen; else whoever reads is given them, and pongs too.
        """
        with translated(doing):
            connect = partial(
                self._connection.open_socket,
                path,
                query,
                protocols,
                silence_s=silence_s,
                is_ponging=is_ponging,
            )
            try:
                socket = await connect()
            except aiohttp.WSServerHandshakeError as error:
                # A handshake does not say why it was refused. Asked plainly the server does, or old
                # credentials are renewed, or a pause is waited out: then only the missing upgrade is left.
                try:
                    await self._read("GET", path, doing, query=query)
                except Invalid as invalid:
                    if error.status not in (401, 429, 503):
                        if "pgrade" in invalid.why:
                            invalid.hint = "Something between here and the cluster passes no websockets on."
                        raise
                socket = await connect()
        try:
            yield socket
        finally:
            await close_socket(socket)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_s: float | None = None,
        open_s: float | None = None,
        is_urgent: bool = True,
        is_proxied: bool = False,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a request, in `open_s` if given, and give its body as it comes; errors are raised as ours."""
        with translated(doing):
            response = await self._connection.send(
                method,
                path,
                doing,
                query=query,
                idle_s=idle_s,
                open_s=open_s,
                is_urgent=is_urgent,
                is_proxied=is_proxied,
            )
        try:
            yield response.content
        finally:
            response.close()

    async def _read(self, method: str, path: str, doing: str, **request: Any) -> bytes:
        """Send a request, as `Connection.send` takes it, and return the whole answer."""
        with translated(doing):
            response = await self._connection.send(method, path, doing, idle_s=self._request_s, **request)
            async with response:
                return await response.read()
