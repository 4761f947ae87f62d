"""The sandbox's API server: paths and methods to the registry's rules, on a loopback socket."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from k8s.sandbox.api import api_errors
from k8s.sandbox.api.admission import patches
from k8s.sandbox.api.admission.registry import Registry
from k8s.sandbox.api.admission.unsupported import warnings_of
from k8s.sandbox.api.api_errors import ApiError, StatusCause
from k8s.sandbox.api.http import bodies, discovery, lists, representations
from k8s.sandbox.api.http.connections import Connections
from k8s.sandbox.api.served import BY_PATH, SERVED, ServedResource
from k8s.sandbox.api.storage.store import Object, Store, StoreError
from k8s.sandbox.api.streams.pod_exec import run_exec
from k8s.sandbox.api.streams.pod_forward import run_forward
from k8s.sandbox.api.streams.pod_log import send_log

log = logging.getLogger(__name__)

LARGEST_BODY_BYTES = 3 * 1024 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NUMERIC = {"localhost": "127.0.0.1"}
OPEN_PATHS = ("/healthz", "/livez", "/readyz")
"""What is answered without a token."""
EVENTS_KEPT_S = 3600.0
"""How long events stay, as on a real server."""
_NOT_PLAIN = re.compile(r"[^ -~]")
"""What may not stand in a header."""
_NODE_METRICS = re.compile(r"/api/v1/nodes/([a-z0-9.-]+):9400/proxy/metrics")
"""Where the GPUs of a node are read, as if an exporter listened there."""
SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What a path means."""

    served: ServedResource
    namespace: str
    name: str
    subresource: str


def target_of(path: str) -> RequestTarget:
    """Read the path of a list, an object or what is below one.

    Raises:
        ApiError: Nothing is served there.
    """
    root, *parts = [part for part in path.split("/") if part] + [""] * 4
    if root not in ("api", "apis"):
        raise api_errors.no_such_path()
    group = "" if root == "api" else parts.pop(0)
    version, *rest = parts
    namespace = ""
    if rest[0] == "namespaces" and rest[2] not in ("", "status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *extra = [*rest, ""]
    served = BY_PATH.get((group, version, plural))
    if served is None or any(extra):
        raise api_errors.no_such_path()
    is_lost = bool(name) and not namespace if served.resource.is_namespaced else bool(namespace)
    is_known = subresource in ("", *served.subresources) or (subresource == "status" and served.has_status)
    if is_lost or not is_known:
        raise api_errors.no_such_path()
    return RequestTarget(served, namespace, name, subresource)


class Server:
    """The server and what it needs: a store, a token, the folder where pods run."""

    def __init__(
        self,
        store: Store,
        *,
        token: str,
        pods_root: Path,
        component_token: str = "",
        allows_open_rendezvous: bool = False,
    ) -> None:
        """Prepare; nothing listens yet.

        Args:
            store: Where the objects are.
            token: What people and their tools must present.
            pods_root: Folder of a folder for each pod, by uid: logs, and what exec needs.
            component_token: What the sandbox's own operators and agents present, so that
                `idle_s` is not about them.
            allows_open_rendezvous: Whether jobs may ask for the c10d rendezvous.
        """
        self.registry = Registry(store, allows_open_rendezvous=allows_open_rendezvous)
        """The rules; use it from the server's own loop only."""
        self.gpu_metrics: Callable[[str], Awaitable[str]] | None = None
        """Given a node's name, asks the driver what its GPUs do; None without real GPUs."""
        self.pods_root = pods_root
        """Folder of a folder for each pod, by uid."""
        self.stopping = asyncio.Event()
        """Set when streams must end."""
        self._tokens = {token.encode(): True, component_token.encode(): False}
        self._documents = discovery.documents()
        self._last_used = time.monotonic()
        self._in_use = 0
        self._runner: web.AppRunner | None = None
        self._connections: Connections | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def idle_s(self) -> float:
        """Return for how long nobody has asked anything; zero while somebody's request or stream is open."""
        return 0.0 if self._in_use else time.monotonic() - self._last_used

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port; 0 takes a free one.

        kubectl sends its token over TLS only: give `tls` to whoever may meet kubectl.

        Raises:
            ValueError: The host is not this machine's loopback.
            OSError: The port is taken.
        """
        if host not in LOOPBACK:
            raise ValueError(f"the sandbox listens on loopback only, not on {host}")
        app = web.Application(client_max_size=LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        assert self._runner.server is not None
        self._connections = Connections(self._runner.server, tls)
        try:
            port = self._connections.listen(_NUMERIC.get(host, host), port)
        except OSError:
            await self._runner.cleanup()
            raise
        self._sweeper = asyncio.create_task(self._sweep())
        return port

    async def stop(self) -> None:
        """End all streams, then stop listening."""
        self.stopping.set()
        self.registry.store.wake_all()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        if self._connections is not None:
            self._connections.stop_accepting()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._connections is not None:
            await self._connections.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Let in who has the token, and turn errors into `Status` answers."""
        sent = request.headers.get("Authorization", "").partition(" ")[2].strip().encode()
        counts = [used for token, used in self._tokens.items() if token and hmac.compare_digest(token, sent)]
        if counts and self._connections is not None:
            self._connections.prove(request.protocol)
        if not counts and request.path not in OPEN_PATHS:
            refusal = _status_response(ApiError(401, "Unauthorized", "Unauthorized"))
            refusal.force_close()
            return refusal
        is_somebody = any(counts)
        self._in_use += is_somebody
        try:
            return await self._dispatch(request)
        except ApiError as error:
            return _status_response(error)
        except web.HTTPRequestEntityTooLarge:
            return _status_response(api_errors.too_large(f"limit is {LARGEST_BODY_BYTES}"))
        except RecursionError:
            return _status_response(api_errors.bad_request("the object is nested too deeply"))
        except StoreError as error:
            return _status_response(ApiError(500, "InternalError", f"{error.what} {error.details}"))
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _status_response(ApiError(500, "InternalError", "the sandbox failed: see its log"))
        finally:
            if is_somebody:
                self._in_use -= 1
                self._last_used = time.monotonic()

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = "/" + "/".join(filter(None, request.path.split("/")))
        if path in OPEN_PATHS or path in self._documents:
            if request.method != "GET":
                raise api_errors.not_allowed()
            about = self._documents.get(path)
            return web.Response(text="ok") if about is None else _json(msgspec.json.encode(about))
        version, _, plural = path.removeprefix("/apis/").rpartition("/")
        if (kind := discovery.REVIEWS.get((version, plural))) is not None:
            return await self._review(request, version, kind)
        if (metrics := _NODE_METRICS.fullmatch(path)) is not None:
            return await self._metrics(request, metrics[1])
        target = target_of(request.path)
        if target.subresource not in ("", "status"):
            return await self._subresource(request, target)
        method = request.method
        if not target.name:
            if method == "GET":
                return await self._list(request, target)
            if method == "POST" and bool(target.namespace) == target.served.resource.is_namespaced:
                return await self._create(request, target)
        elif method == "GET":
            form = self._representation(request, target)
            return _json(form.record(self.registry.get(target.served, target.namespace, target.name)))
        elif method == "PUT":
            return await self._replace(request, target)
        elif method == "PATCH":
            return await self._patch(request, target)
        elif method == "DELETE" and not target.subresource:
            return await self._delete(request, target)
        raise api_errors.not_allowed()

    async def _review(self, request: web.Request, version: str, kind: str) -> web.Response:
        if request.method != "POST":
            raise api_errors.not_allowed()
        known = {(each.resource.group, each.resource.plural) for each in SERVED}
        answer = bodies.review(await bodies.read(request, kind), version, kind, known)
        return _json(msgspec.json.encode(answer), 201)

    async def _list(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        asked = lists.Listing(target.served, target.namespace, request.query)
        form = self._representation(request, target)
        store = self.registry.store
        if asked.query.watch:
            return await lists.watch(store, asked, form, request, self.stopping)
        return _json(lists.page(store, asked, form))

    async def _create(self, request: web.Request, target: RequestTarget) -> web.Response:
        write = bodies.write_options(request, "CreateOptions")
        body = await bodies.read(request, target.served.resource.kind)
        obj = self.registry.create(target.served, target.namespace, body, write)
        return self._created(request, target, obj)

    def _created(self, request: web.Request, target: RequestTarget, obj: Object) -> web.Response:
        """Answer with a new object, and warn of what is ignored of it."""
        answer = _json(self._representation(request, target).obj(obj), 201)
        for words in warnings_of(target.served.key, obj):
            quoted = _NOT_PLAIN.sub("?", words).replace("\\", "\\\\").replace('"', '\\"')
            answer.headers.add("Warning", f'299 - "{quoted}"')
        return answer

    async def _replace(self, request: web.Request, target: RequestTarget) -> web.Response:
        write = bodies.write_options(request, "UpdateOptions")
        body = await bodies.read(request, target.served.resource.kind)
        obj = self.registry.replace(
            target.served, target.namespace, target.name, body, write, target.subresource
        )
        return _json(self._representation(request, target).obj(obj))

    async def _patch(self, request: web.Request, target: RequestTarget) -> web.Response:
        write = bodies.write_options(request, "PatchOptions")
        served = target.served
        types = [each for each in discovery.PATCH_TYPES if not (served.is_custom and "strategic" in each)]
        body = await bodies.read(request, served.resource.kind, types)
        place = target.namespace, target.name
        created = False
        if request.content_type == "application/apply-patch+yaml":
            if not request.query.get("fieldManager"):
                cause = StatusCause.required("fieldManager", "is required for apply patch")
                raise api_errors.invalid_options("PatchOptions", cause)
            if target.subresource:
                raise api_errors.not_served("apply to a subresource")
            force = request.query.get("force") == "true"
            obj, created = self.registry.apply(served, *place, body, write, force=force)
        else:
            change = {
                "application/json-patch+json": patches.json_patch,
                "application/strategic-merge-patch+json": patches.strategic,
            }.get(request.content_type, patches.merge)
            if change is not patches.json_patch and not isinstance(body, dict):
                raise api_errors.bad_request("the patch is not an object")

            def patched(old: Object) -> Any:
                return change(old, body)

            obj = self.registry.patch(served, *place, patched, write, target.subresource)
        if created:
            return self._created(request, target, obj)
        return _json(self._representation(request, target).obj(obj))

    async def _delete(self, request: web.Request, target: RequestTarget) -> web.Response:
        served = target.served
        how = await bodies.deletion_options(request)
        obj, gone = self.registry.delete(served, target.namespace, target.name, how)
        if not gone or served.deleted_is_returned:
            return _json(self._representation(request, target).obj(obj))
        resource = served.resource
        uid = obj["metadata"]["uid"]
        details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": uid}
        answer = SUCCESS | {"details": {key: value for key, value in details.items() if value}}
        return _json(msgspec.json.encode(answer))

    async def _subresource(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        """Answer for the paths below a pod."""
        place = target.namespace, target.name
        if target.subresource == "binding" and request.method == "POST":
            binding = await bodies.read(request, "Binding")
            self.registry.bind(*place, bodies.node_of(binding), bodies.annotations_of(binding))
            return _json(msgspec.json.encode(SUCCESS | {"code": 201}), 201)
        pod = self.registry.get(target.served, *place)
        if target.subresource == "log" and request.method == "GET":
            return await send_log(request, self.registry.store, pod, self.pods_root, self.stopping)
        if target.subresource == "exec" and request.method in ("GET", "POST"):
            return await run_exec(request, self.registry.store, pod, self.pods_root, self.stopping)
        if target.subresource == "portforward" and request.method in ("GET", "POST"):
            return await run_forward(request, pod, self.pods_root, self.stopping)
        if target.subresource in ("attach", "proxy"):
            raise api_errors.not_served(f"{target.subresource} of pods")
        raise api_errors.not_allowed()

    async def _metrics(self, request: web.Request, node: str) -> web.Response:
        """Answer with what the driver tells of a node's GPUs, in an exporter's words."""
        if request.method != "GET":
            raise api_errors.not_allowed()
        self.registry.get(BY_PATH["", "v1", "nodes"], "", node)
        text = await self.gpu_metrics(node) if self.gpu_metrics is not None else ""
        if not text:
            raise ApiError(404, "NotFound", f"the driver tells of no GPUs on {node}")
        return web.Response(text=text, content_type="text/plain")

    def _representation(self, request: web.Request, target: RequestTarget) -> representations.Representation:
        accept = request.headers.get("Accept", "")
        return representations.accepted(target.served, accept, request.query.get("includeObject", ""))

    async def _sweep(self) -> None:
        """Remove events that are too old, and give back free memory, for as long as the server runs."""
        while True:
            await asyncio.sleep(60)
            if self._connections is not None:
                self._connections.give_memory_back()
            with suppress(StoreError):
                self.registry.expire_events(EVENTS_KEPT_S)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _status_response(error: ApiError) -> web.Response:
    return _json(msgspec.json.encode(error.status), error.code)
