"""All access to a cluster: requests, watches, logs and exec; its version, and the user's name.

Bodies are returned raw or as JSON; errors are `k8s.text.errors`. Requests that change the cluster are
sent once; `k8s.client.connection` has the retries and the rate limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast

from k8s.client.auth.cluster_config import ClusterConfig, load
from k8s.client.auth.exec_plugin import LoginDialog
from k8s.client.auth.kubeconfig import ConfigOverrides
from k8s.client.connection import Connection
from k8s.client.rate_limiter import RateLimiter
from k8s.client.transport import (
    MOST_ANSWER_BYTES,
    MOST_LIST_BYTES,
    Query,
    check_page,
    json_object,
    query_of,
    read_answer,
    status_of,
    translated,
    without_credentials,
)
from k8s.models.resources import PODS, Resource
from k8s.text.errors import ExecFailed, Invalid, KubeError, NotFound, NotKubernetes, TooLarge

if TYPE_CHECKING:
    import aiohttp


# Longest wait for an answer that is not a stream.
REQUEST_S = 30.0
# The whole answer may take this many times longer: a slow server would send for ever.
ANSWER_TIMES = 10
# Limits of what a command in a container may print, and of the end of its errors that is quoted.
OUTPUT_LIMIT_BYTES = 8 * 2**20
_ERRORS_BYTES = 500
FIELD_MANAGER = "gpuconsole"
MERGE_PATCH = "application/merge-patch+json"
# Objects without spec and status; a server that cannot leave them out sends whole ones.
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
# Only v5 lets the input of a command end before the command does.
COMMAND_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


class Client:
    """One user's access to one cluster. Use it in `async with`, or call `close`."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        request_s: float = REQUEST_S,
        answer_s: float = 0.0,
        limiter: RateLimiter | None = None,
        is_brief: bool = False,
    ) -> None:
        """Create a client without sending anything. Needs a running event loop.

        A server may be silent for `request_s`, and take `answer_s` for a whole answer that is no stream; 0
        stands for `ANSWER_TIMES` as long.

        With `is_brief`, aiohttp is imported only for streams, proxies, and answers that are out of the
        ordinary: it takes 200 ms, as long as a handful of requests.

        Raises:
            NoCluster: A certificate or key cannot be read.
        """
        self.config = config
        self._request_s = request_s
        answer_s = answer_s or ANSWER_TIMES * request_s
        limiter = limiter or RateLimiter()
        self._connection = Connection(config, limiter, request_s, answer_s, is_brief=is_brief)

    @property
    def server_clock_offset_s(self) -> float:
        """Return the seconds by which the server's clock is ahead of ours; 0 if less than two."""
        return self._connection.clock.offset_s

    @property
    def last_seen_s(self) -> float:
        """Return the time of the last answer or watch line, by the event loop's clock.

        An open watch that the server breaks counts, too: it had delivered everything until then.
        """
        return self._connection.last_seen_s

    @property
    def throttled_until_s(self) -> float:
        """Return the end of a pause that the server asked for, by the event loop's clock; 0 without one."""
        return self._connection.limiter.paused_until_s

    def on_warning(self, callback: Callable[[str], None]) -> None:
        """Set the callback for warnings that the server sends with changes."""
        self._connection.on_warning = callback

    @classmethod
    async def connect(
        cls,
        kubeconfig: str = "",
        context: str = "",
        namespace: str = "",
        overrides: ConfigOverrides | None = None,
        *,
        is_brief: bool = False,
        dialog: LoginDialog | None = None,
    ) -> Self:
        """Create a client as `load` reads its configuration, or raise `NoCluster`; nothing is sent yet."""
        overrides = overrides or ConfigOverrides()
        config = await load(kubeconfig, context, namespace, overrides, dialog=dialog)
        request_s = overrides.request_s
        return cls(config, request_s=request_s or REQUEST_S, answer_s=request_s, is_brief=is_brief)

    async def close(self) -> None:
        """Close all streams and connections."""
        await self._connection.close()

    def retry_credentials(self) -> None:
        """Let the next 401 renew the credentials, even right after a failed renewal."""
        self._connection.retry_credentials()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get_json(self, path: str, *, doing: str = "") -> dict[str, Any]:
        """Return the JSON at a path, such as `/version`."""
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
        """Return one page of a list as raw bytes; an empty namespace means all namespaces."""
        query = query_of(
            limit=str(limit) if limit else "",
            **{"continue": continue_token},
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        doing, is_more = f"list {resource.plural}", bool(continue_token)
        path = resource.path(namespace)
        most = MOST_ANSWER_BYTES if limit else MOST_LIST_BYTES
        sent: dict[str, Any] = {"query": query, "is_urgent": False, "has_turn": is_more}
        return await self._read("GET", path, doing, most_bytes=most, **sent)

    async def list_names(self, resource: Resource, limit: int = 2000) -> list[str]:
        """Return the names of the first objects of a resource in all namespaces."""
        path, doing = resource.path(), f"list {resource.plural}"
        query = query_of(limit=str(limit))
        page = json_object(await self._read("GET", path, doing, query=query, accept=METADATA_ONLY))
        return [str((each.get("metadata") or {}).get("name") or "") for each in page.get("items") or ()]

    async def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> list[dict[str, Any]]:
        """Return all objects as JSON, fetched page by page."""
        found: list[dict[str, Any]] = []
        selectors: dict[str, Any] = {"label_selector": label_selector, "field_selector": field_selector}
        token = ""
        for pages in count(1):
            page = json_object(await self.list_page(resource, namespace, continue_token=token, **selectors))
            found.extend(page.get("items") or ())
            previous, token = token, str((page.get("metadata") or {}).get("continue") or "")
            if not token:
                break
            check_page(f"list {resource.plural}", pages, token, previous)
        return found

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: str,
        field_selector: str = "",
        timeout_s: int = 300,
        grace_s: float = 30.0,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of one watch until the server ends it; call `on_open` when it begins.

        The server is asked to end after `timeout_s`; a connection silent for `grace_s` longer than that
        is dead and raises `Unreachable`.

        Raises:
            Expired: The server no longer has `version`; list again.
        """
        query = query_of(
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=version,
            timeoutSeconds=str(timeout_s),
            fieldSelector=field_selector,
        )
        doing = f"watch {resource.plural}"
        path = resource.path(namespace)
        idle_s = timeout_s + grace_s
        async with self.stream(
            path, doing, query=query, idle_s=idle_s, open_s=self._request_s, is_urgent=False
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
        """Create an object and return it as stored; with `subresource`, post to that of the object `of`.

        Raises:
            Conflict: The name is taken.
            Invalid: The server refuses the object; the error names the fields.
        """
        meta = obj.get("metadata") or {}
        doing = f"create {resource.kind} {of or meta.get('name') or meta.get('generateName') or ''}".rstrip()
        doing += " in a dry run" if dry_run else ""
        query = query_of(
            dryRun="All" if dry_run else "",
            fieldManager=FIELD_MANAGER,
            fieldValidation="Strict" if dry_run else "",
        )
        path = resource.path(namespace, of, subresource)
        return json_object(await self._read("POST", path, doing, query=query, body=obj, is_urgent=is_urgent))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Change part of an object by a JSON merge patch; a dry run also refuses unknown fields."""
        path, doing = resource.path(namespace, name, subresource), f"change {resource.kind} {name}"
        doing += " in a dry run" if dry_run else ""
        query = query_of(
            dryRun="All" if dry_run else "",
            fieldManager=FIELD_MANAGER,
            fieldValidation="Strict" if dry_run else "",
        )
        answer = await self._read("PATCH", path, doing, query=query, body=patch, content_type=MERGE_PATCH)
        return json_object(answer)

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
        """Delete an object; with `uid`, only if the object still has it."""
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
        open_s: float | None = None,
        is_urgent: bool = True,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open the log of a container; the bytes are as its process wrote them.

        The arguments are those of `pods/log`; `since_time` is RFC 3339 in whole seconds. `idle_s` is the
        longest silence, None for ever, `open_s` the time until the log begins. If it is not followed, it has
        only `iter_any`.
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
        path, doing = PODS.path(namespace, pod, "log"), f"read the log of {pod}"
        async with self.stream(
            path, doing, query=query, idle_s=idle_s, open_s=open_s, is_urgent=is_urgent, is_endless=follow
        ) as body:
            yield body

    @asynccontextmanager
    async def exec(
        self, pod: str, namespace: str, command: Sequence[str], *, container: str = ""
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Run a command in a container: channel 1 is its output, 2 its errors, 3 its exit status.

        Reading raises `TimeoutError` after a silence as long as the timeout of a request.
        """
        query = [*(("command", word) for word in command), ("stdout", "true"), ("stderr", "true")]
        query += [("container", container)] if container else []
        path, doing = PODS.path(namespace, pod, "exec"), f"run {command[0]} in {pod}"
        async with self.open_socket(path, doing, query, silence_s=self._request_s) as socket:
            yield socket

    async def run(
        self,
        pod: str,
        namespace: str,
        command: Sequence[str],
        *,
        container: str = "",
        limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> bytes:
        """Run a command in a container and return its standard output.

        Raises:
            TooLarge: The command wrote more than `limit_bytes`, or errors without end.
            ExecFailed: The command failed.
            KubeError: The command could not be started.
        """
        import aiohttp

        output, errors = bytearray(), bytearray()
        ending, error_bytes = b"", 0
        async with self.exec(pod, namespace, command, container=container) as socket:
            with translated(f"read from {pod}"):
                async for message in socket:
                    if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                        continue
                    channel, content = message.data[0], message.data[1:]
                    if channel == 1:
                        output += content
                    elif channel == 2:
                        errors = (errors + content)[-_ERRORS_BYTES:]
                        error_bytes += len(content)
                    elif channel == 3:
                        ending = content
                    is_endless = error_bytes > OUTPUT_LIMIT_BYTES
                    if len(output) > limit_bytes or is_endless:
                        output.clear()  # not until the error is gone
                        most = OUTPUT_LIMIT_BYTES if is_endless else limit_bytes
                        why = f"It sent more than {most >> 10:,} KiB, the most that is read at once."
                        raise TooLarge(f"Could not read from {pod}.", why)
        status = status_of(ending)
        if status.get("status") != "Success":
            why = errors.decode("utf-8", "replace") or str(status.get("message") or "The connection broke.")
            raise ExecFailed(f"Could not run {command[0]} in {pod}.", why)
        return bytes(output)

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
        """Open a websocket; `protocols` are the subprotocols to offer, the preferred one first.

        Reading raises `TimeoutError` after `silence_s`; None waits for ever. With `is_ponging`, pings are
        answered here; otherwise pings and pongs reach the reader.
        """
        import aiohttp

        from k8s.client.session import close_socket

        with translated(doing, self.config):
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
                # A refused handshake carries no reason. A plain GET gets one, renews old credentials or
                # waits out a pause; if all is well it fails with 400 for the missing upgrade.
                try:
                    await self._read("GET", path, doing, query=query)
                except Invalid as invalid:
                    if error.status not in (401, 429, 503):
                        if "pgrade" in invalid.why:
                            invalid.hint = (
                                "Something between here and the cluster does not pass on websockets."
                            )
                        raise
                socket = await connect()
        try:
            yield socket
        finally:
            await close_socket(socket)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_s: float | None = None,
        open_s: float | None = None,
        is_urgent: bool = True,
        is_proxied: bool = False,
        is_endless: bool = True,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a GET request, within `open_s` if given, and yield its body; raise `k8s.text.errors`.

        A body that is not endless has only `iter_any`.
        """
        with translated(doing, self.config):
            response = await self._connection.send(
                "GET",
                path,
                doing,
                query=query,
                headers=headers,
                idle_s=idle_s,
                open_s=open_s,
                is_urgent=is_urgent,
                is_proxied=is_proxied,
                is_stream=is_endless,
            )
        try:
            yield cast("aiohttp.StreamReader", response.content)  # `is_stream`: the response is aiohttp's
        finally:
            response.close()

    async def _read(
        self, method: str, path: str, doing: str, *, most_bytes: int = MOST_ANSWER_BYTES, **request: Any
    ) -> bytes:
        with translated(doing, self.config):
            async with asyncio.timeout(None) as limit:
                request.update(idle_s=self._request_s, limit=limit)
                response = await self._connection.send(method, path, doing, **request)
                with closing(response):
                    return await read_answer(response.content, doing, most_bytes)


# Anyone may read it, and it costs the server nothing.
VERSION = "/version"


async def fetch_username(client: Client) -> str:
    """Fetch the API's name for the user and store it in the client's config.

    If the API does not say, it is `ClusterConfig.known_username`.

    Source: SelfSubjectReview, since Kubernetes 1.26; v1 since 1.28.
    """
    config = client.config
    for version in () if config.username else ("v1", "v1beta1", "v1alpha1"):
        resource = Resource(
            "authentication.k8s.io", version, "selfsubjectreviews", "SelfSubjectReview", is_namespaced=False
        )
        review = {"apiVersion": resource.api_version, "kind": resource.kind}
        try:
            status = (await client.create(resource, review, is_urgent=False)).get("status")
        except NotFound:
            continue
        except KubeError:
            break
        user = status.get("userInfo") if isinstance(status, dict) else None
        config.username = str(user.get("username") or "") if isinstance(user, dict) else ""
        break
    config.username = config.known_username
    return config.username


async def fetch_version(client: Client) -> dict[str, Any]:
    """Fetch the server's version, as in `gitVersion` and `major`.

    Raises:
        NotKubernetes: Something other than a Kubernetes API answered.
        KubeError: The server did not answer, or refused.
    """
    try:
        answer = await client.get_json(VERSION, doing="ask for the server's version")
    except KubeError as error:
        if not error.is_foreign:
            raise
        answer = {}
    if answer.get("gitVersion") or answer.get("major"):
        return answer
    raise NotKubernetes(
        "This address answers, but it is not a Kubernetes API.",
        f"{without_credentials(client.config.host)}{VERSION} reports no Kubernetes version.",
        "Check the server's address in the kubeconfig.",
    )
