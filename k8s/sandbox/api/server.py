"""The sandbox's HTTP server on a loopback socket: parses requests and routes them to the registry."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import pwd
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from k8s.sandbox.api import api_errors, lists, patches
from k8s.sandbox.api.api_errors import ApiError, StatusCause
from k8s.sandbox.api.deletion import DeleteOptions
from k8s.sandbox.api.listening import BACKLOG, HANDSHAKE_S, listen
from k8s.sandbox.api.lists import read_query
from k8s.sandbox.api.patches import without_nulls
from k8s.sandbox.api.pod_exec import run_exec
from k8s.sandbox.api.pod_forward import run_forward
from k8s.sandbox.api.pod_log import send_log
from k8s.sandbox.api.registry import Registry
from k8s.sandbox.api.served import (
    BY_PATH,
    METRICS_PATH,
    METRICS_VERSION,
    REVIEWS,
    SERVED,
    ServedResource,
    documents,
)
from k8s.sandbox.api.store import Object, Store, StoreError
from k8s.sandbox.api.validation import warnings_of
from k8s.sandbox.controller_runtime import now_text
from k8s.text.errors import join_sentences

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 * 1024 * 1024
_TOO_LARGE = f"Request entity too large: limit is {MAX_BODY_BYTES}"
# Paths that need no token.
OPEN_PATHS = ("/healthz", "/livez", "/readyz")
# Age at which events are removed, as on a real server.
EVENTS_KEPT_S = 3600.0
_NOT_PLAIN = re.compile(r"[^ -~]")
# GPU metrics of a node, as if an exporter listened there.
_NODE_METRICS = re.compile(r"/api/v1/nodes/([a-z0-9.-]+):9400/proxy/metrics")
_USAGE = re.compile(
    METRICS_PATH.replace(".", r"\.") + r"(?:/namespaces/([^/]+)(?=/pods))?/(pods|nodes)(?:/([^/]+))?"
)
_USAGE_WINDOW = "15s"
# CPU in cores, memory in bytes.
ContainerUsage = tuple[float, int]
PATCHES: Mapping[str, Callable[[Any, Any], Any]] = {
    "application/json-patch+json": patches.json_patch,
    "application/merge-patch+json": patches.merge,
    "application/strategic-merge-patch+json": patches.strategic,
}
SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
JSON = "application/json"
# Name that aiohttp gives to a missing content type; a real server takes such a body for JSON.
UNNAMED_TYPE = "application/octet-stream"
GROUPS = ("system:masters", "system:authenticated")
# Levels of objects and lists in a body, as in Go's decoder; those of a pod template are about fifteen.
MAX_DEPTH = 100
PROPAGATIONS = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The parts of a request path."""

    served: ServedResource
    namespace: str
    name: str
    subresource: str


def target_of(path: str) -> RequestTarget:
    """Parse the path of a list, an object or a subresource.

    Raises:
        ApiError: Nothing is served at that path.
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
    is_misplaced = bool(name) and not namespace if served.resource.is_namespaced else bool(namespace)
    is_known = subresource in ("", *served.subresources) or (subresource == "status" and served.has_status)
    if is_misplaced or not is_known:
        raise api_errors.no_such_path()
    return RequestTarget(served, namespace, name, subresource)


class Server:
    """The API server of one sandbox."""

    def __init__(
        self,
        store: Store,
        *,
        token: str,
        pods_root: Path,
        component_token: str = "",
        allows_c10d: bool = False,
    ) -> None:
        """Prepare the server; `start` makes it listen.

        Args:
            store: Store of all objects.
            token: Token of users and their tools.
            pods_root: Folder with a folder for each pod, by uid, for its logs and exec socket.
            component_token: Token of the sandbox's own components, whose requests `idle_s` ignores.
            allows_c10d: Whether the torch of the pods keeps the c10d rendezvous private.
        """
        # To be used in the server's event loop only.
        self.registry = Registry(store, allows_c10d=allows_c10d)
        # Returns the driver's metrics of a node's GPUs; None without real GPUs.
        self.gpu_metrics: Callable[[str], Awaitable[str]] | None = None
        # Returns the measured usage by pod uid and container name.
        self.usage: Callable[[], Mapping[str, Mapping[str, ContainerUsage]]] = dict
        self.pods_root = pods_root
        # Set to end all streams.
        self.stopping = asyncio.Event()
        self._tokens = {token.encode(): True, component_token.encode(): False}
        self._documents = documents()
        self._last_used = time.monotonic()
        self._in_use = 0
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def idle_s(self) -> float:
        """Return the seconds since the last request of a user; 0 while a request or stream is open."""
        return 0.0 if self._in_use else time.monotonic() - self._last_used

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen on loopback, and return the port; 0 takes a free one. kubectl needs `tls`.

        Raises:
            OSError: The port is taken.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        listening = listen(port)
        port = int(listening.getsockname()[1])
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        assert self._runner.server is not None
        self._listening = await asyncio.get_running_loop().create_server(
            self._runner.server,
            sock=listening,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_S if tls else None,
        )
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
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        sent = request.headers.get("Authorization", "").partition(" ")[2].strip().encode()
        # True for the user's token, False for that of the sandbox's own components.
        matches = [used for token, used in self._tokens.items() if token and hmac.compare_digest(token, sent)]
        if not matches and request.path not in OPEN_PATHS:
            refusal = _status_response(ApiError(401, "Unauthorized", "Unauthorized"))
            refusal.force_close()
            return refusal
        is_user = any(matches)
        self._in_use += is_user
        try:
            return await self._dispatch(request)
        except ApiError as error:
            return _status_response(error)
        except web.HTTPRequestEntityTooLarge:
            return _status_response(ApiError(413, "RequestEntityTooLarge", _TOO_LARGE))
        except RecursionError:
            return _status_response(api_errors.bad_request("the object is nested too deeply"))
        except StoreError as error:
            return _status_response(
                ApiError(500, "InternalError", join_sentences(error.what, error.why, error.hint))
            )
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _status_response(ApiError(500, "InternalError", "the sandbox failed: see its log"))
        finally:
            if is_user:
                self._in_use -= 1
                self._last_used = time.monotonic()

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = "/" + "/".join(filter(None, request.path.split("/")))
        if path in OPEN_PATHS or path in self._documents:
            if request.method != "GET":
                raise api_errors.not_allowed()
            document = self._documents.get(path)
            return web.Response(text="ok") if document is None else _json(msgspec.json.encode(document))
        # After discovery: kubectl does not show the message of a refusal there.
        if any(name.startswith("Impersonate-") for name in map(str.title, request.headers)):
            user = request.headers.get("Impersonate-User", "")
            why = f'users "{user}" is forbidden: the sandbox has one user, who cannot impersonate others'
            raise ApiError(403, "Forbidden", why)
        version, _, plural = path.removeprefix("/apis/").rpartition("/")
        if (kind := REVIEWS.get((version, plural))) is not None:
            return await self._review(request, version, kind)
        if (metrics := _NODE_METRICS.fullmatch(path)) is not None:
            return await self._metrics(request, metrics[1])
        if (usage := _USAGE.fullmatch(path)) is not None:
            return self._usage(request, usage[1] or "", usage[2], usage[3] or "")
        target = target_of(request.path)
        if target.subresource not in ("", "status"):
            return await self._subresource(request, target)
        method = request.method
        if not target.name:
            if method == "GET":
                listing = lists.Listing(target.served, target.namespace, request.query)
                if listing.query.watch:
                    return await lists.watch(self.registry.store, listing, request, self.stopping)
                return _json(lists.page(self.registry.store, listing))
            if method == "POST" and bool(target.namespace) == target.served.resource.is_namespaced:
                return await self._create(request, target)
        elif method == "GET":
            return _json(self.registry.get(target.served, target.namespace, target.name).json)
        elif method == "PATCH":
            return await self._patch(request, target)
        elif method == "DELETE" and not target.subresource:
            return await self._delete(request, target)
        raise api_errors.not_allowed()

    async def _review(self, request: web.Request, version: str, kind: str) -> web.Response:
        if request.method != "POST":
            raise api_errors.not_allowed()
        answer = review(await read_body(request, kind), version, kind)
        return _json(msgspec.json.encode(answer), 201)

    async def _create(self, request: web.Request, target: RequestTarget) -> web.Response:
        dry_run = is_dry_run(request.query.getall("dryRun", []), "CreateOptions")
        body = await read_body(request, target.served.resource.kind)
        obj = self.registry.create(target.served, target.namespace, body, dry_run=dry_run)
        answer = _json(msgspec.json.encode(obj), 201)
        for warning in warnings_of(obj):
            quoted = _NOT_PLAIN.sub("?", warning).replace("\\", "\\\\").replace('"', '\\"')
            answer.headers.add("Warning", f'299 - "{quoted}"')
        return answer

    async def _patch(self, request: web.Request, target: RequestTarget) -> web.Response:
        dry_run = is_dry_run(request.query.getall("dryRun", []), "PatchOptions")
        served = target.served
        if request.content_type == "application/apply-patch+yaml":
            advice = "use client-side apply, kubectl apply without --server-side"
            message = f"the sandbox has no server-side apply: {advice}"
            raise ApiError(415, "UnsupportedMediaType", message)
        types = [each for each in PATCHES if not (served.is_custom and "strategic" in each)]
        body = await read_body(request, served.resource.kind, types)
        change = PATCHES.get(request.content_type, patches.merge)
        if change is not patches.json_patch and not isinstance(body, dict):
            raise api_errors.bad_request("the patch is not an object")
        obj = self.registry.patch(
            served,
            target.namespace,
            target.name,
            lambda old: change(old, body),
            target.subresource,
            dry_run=dry_run,
        )
        return _json(msgspec.json.encode(obj))

    async def _delete(self, request: web.Request, target: RequestTarget) -> web.Response:
        served = target.served
        options = await deletion_options(request)
        obj, gone = self.registry.delete(served, target.namespace, target.name, options)
        if not gone or served.returns_deleted:
            return _json(msgspec.json.encode(obj))
        resource = served.resource
        uid = obj["metadata"]["uid"]
        details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": uid}
        answer = SUCCESS | {"details": {key: value for key, value in details.items() if value}}
        return _json(msgspec.json.encode(answer))

    async def _subresource(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        if target.subresource == "binding" and request.method == "POST":
            binding = await read_body(request, "Binding")
            self.registry.bind(target.namespace, target.name, *parse_binding(binding))
            return _json(msgspec.json.encode(SUCCESS | {"code": 201}), 201)
        pod = self.registry.get(target.served, target.namespace, target.name)
        if target.subresource == "log" and request.method == "GET":
            return await send_log(request, self.registry.store, pod, self.pods_root, self.stopping)
        if target.subresource == "exec" and request.method in ("GET", "POST"):
            return await run_exec(request, self.registry.store, pod, self.pods_root, self.stopping)
        if target.subresource == "portforward" and request.method in ("GET", "POST"):
            return await run_forward(request, pod, self.pods_root, self.stopping)
        if target.subresource in ("attach", "proxy"):
            why = f"the sandbox does not serve {target.subresource} of pods"
            raise ApiError(501, "NotImplemented", why)
        raise api_errors.not_allowed()

    async def _metrics(self, request: web.Request, node: str) -> web.Response:
        if request.method != "GET":
            raise api_errors.not_allowed()
        self.registry.get(BY_PATH["", "v1", "nodes"], "", node)
        text = await self.gpu_metrics(node) if self.gpu_metrics is not None else ""
        if not text:
            raise ApiError(404, "NotFound", f"the driver reports no GPUs on {node}")
        return web.Response(text=text, content_type="text/plain")

    def _usage(self, request: web.Request, namespace: str, plural: str, name: str) -> web.Response:
        if request.method != "GET":
            raise api_errors.not_allowed()
        served = BY_PATH["", "v1", plural]
        listing = lists.Listing(served, namespace, request.query)
        if name:
            records = [self.registry.get(served, namespace, name)]
        else:
            every = self.registry.store.records(served.key, namespace)
            records = [each for each in every if listing.selects(each.obj)]
        by_uid = self.usage()
        items = []
        for obj in (record.obj for record in records):
            if plural == "nodes":
                # The usage of a node is that of its pods.
                pods = (each.obj for each in self.registry.store.records("pods"))
                on_node = [pod for pod in pods if pod["spec"].get("nodeName") == obj["metadata"]["name"]]
                used = [each for pod in on_node for each in by_uid.get(pod["metadata"]["uid"], {}).values()]
                items.append(_metrics_of(obj, "NodeMetrics", usage=_quantities(used)))
            elif usage := by_uid.get(obj["metadata"]["uid"]):
                containers = [{"name": each, "usage": _quantities([used])} for each, used in usage.items()]
                items.append(_metrics_of(obj, "PodMetrics", containers=containers))
        if name and not items:
            raise ApiError(404, "NotFound", f'podmetrics.metrics.k8s.io "{namespace}/{name}" not found')
        kind = "NodeMetricsList" if plural == "nodes" else "PodMetricsList"
        listed = {"kind": kind, "apiVersion": METRICS_VERSION, "metadata": {}, "items": items}
        return _json(msgspec.json.encode(items[0] if name else listed))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(60)
            with suppress(StoreError):
                self.registry.expire_events(EVENTS_KEPT_S)


def _metrics_of(obj: Object, kind: str, **measured: Any) -> Object:
    meta = {key: obj["metadata"][key] for key in ("name", "namespace", "labels") if key in obj["metadata"]}
    moment = now_text()
    about = {"kind": kind, "apiVersion": METRICS_VERSION, "timestamp": moment}
    return {**about, "metadata": {**meta, "creationTimestamp": moment}, "window": _USAGE_WINDOW, **measured}


def _quantities(used: Sequence[ContainerUsage]) -> dict[str, str]:
    cores, kib = sum(each[0] for each in used), sum(each[1] for each in used) // 1024
    return {"cpu": f"{round(cores * 1e9)}n", "memory": f"{kib}Ki"}


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _status_response(error: ApiError) -> web.Response:
    return _json(msgspec.json.encode(error.status), error.code)


def owner_name() -> str:
    """Return the account that runs the sandbox, its only user: jobs are submitted in this name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "sandbox"


async def read_body(request: web.Request, kind: str, accepted: Iterable[str] = (JSON,)) -> Any:
    """Return the decoded body, which may be any JSON value.

    Raises:
        ApiError: The content type is not accepted, or the body cannot be decoded.
    """
    if request.content_type not in (*accepted, UNNAMED_TYPE):
        listed = ", ".join(accepted)
        message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
        raise ApiError(415, "UnsupportedMediaType", message)
    return decode_body(await request.read(), kind)


def decode_body(body: bytes, kind: str) -> Any:
    """Decode JSON; `kind` is the expected kind, for the message.

    Raises:
        ApiError: The body is not JSON, or is nested deeper than `MAX_DEPTH`.
    """
    try:
        decoded = msgspec.json.decode(body)
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(decoded) > MAX_DEPTH:
            raise ValueError("exceeded max depth")
    except (ValueError, RecursionError) as error:
        why = "exceeded max depth" if isinstance(error, RecursionError) else str(error)
        raise api_errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): "
            f"couldn't get version/kind; json parse error: {why}"
        ) from error
    return decoded


def _depth(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if members is None else 1 + max(map(_depth, members), default=0)


async def deletion_options(request: web.Request) -> DeleteOptions:
    """Return the options of a delete request, from the body or else from the query."""
    body: Any = {}
    if request.can_read_body:
        body = await read_body(request, "DeleteOptions") or {}
    if not isinstance(body, dict):
        raise api_errors.bad_request("the body is not a DeleteOptions")
    query = {**request.query, "dryRun": request.query.getall("dryRun", [])}
    options = read_query({**query, **without_nulls(body)}, DeleteOptions)
    if options.propagation_policy not in ("", *PROPAGATIONS):
        cause = StatusCause.unsupported(
            "propagationPolicy", options.propagation_policy, (*PROPAGATIONS, "nil")
        )
        raise api_errors.invalid_options("DeleteOptions", cause)
    is_dry_run(options.dry_run, "DeleteOptions")
    return options


def review(body: Any, version: str, kind: str) -> dict[str, Any]:
    """Answer a review: the holder of the token may do everything that is served."""
    answer: dict[str, Any] = {"kind": kind, "apiVersion": version, "metadata": {"creationTimestamp": None}}
    if kind == "SelfSubjectReview":
        return {**answer, "status": {"userInfo": {"username": owner_name(), "groups": list(GROUPS)}}}
    spec = body.get("spec") if isinstance(body, dict) else None
    spec = spec if isinstance(spec, dict) else {}
    if kind == "SelfSubjectRulesReview":
        rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["get"], "nonResourceURLs": ["*"]}]
        status = {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}
    else:
        attributes = spec.get("resourceAttributes") or {}
        resource = (attributes.get("group") or "", attributes.get("resource") or "*")
        is_served = resource in {(each.resource.group, each.resource.plural) for each in SERVED}
        status = {"allowed": "*" in resource or not attributes or is_served}
        if not status["allowed"]:
            status["reason"] = f"the sandbox serves no {resource[1]}"
    return {**answer, "spec": spec, "status": status}


def parse_binding(binding: Any) -> tuple[str, dict[str, str]]:
    """Return the node of a Binding, and its annotations for the pod."""
    binding = binding if isinstance(binding, dict) else {}
    target, meta = (binding.get(field) for field in ("target", "metadata"))
    node = target.get("name") if isinstance(target, dict) else None
    if not isinstance(node, str) or not node:
        raise api_errors.bad_request("a Binding needs target.name, the node")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    annotations = annotations if isinstance(annotations, dict) else {}
    return node, {str(key): str(value) for key, value in annotations.items()}


def is_dry_run(values: Iterable[Any], options: str) -> bool:
    """Return True if the `dryRun` values ask for one; `options` is the kind of the request's options.

    Raises:
        ApiError: A value other than `All` was sent.
    """
    given = list(values)
    if any(value != "All" for value in given):
        listed = ", ".join(f'"{value}"' for value in given)
        message = f'Unsupported value: []string{{{listed}}}: supported values: "All"'
        raise api_errors.invalid_options(options, StatusCause("dryRun", "FieldValueNotSupported", message))
    return bool(given)
