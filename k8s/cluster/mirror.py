"""Live mirror of one API collection: list, watch, and list again when needed.

It never ends by itself. While the cluster is unreachable the last objects stay, and `state`
says since when and why.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import count
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from k8s.client.client import Client
from k8s.client.transport import check_page, translated, unparsable
from k8s.cluster.backoff import ServerProbe, pause
from k8s.models import WATCH_LINE, ListMeta, Meta, Reader
from k8s.models.reader import AnyObject
from k8s.models.resources import Resource
from k8s.snapshot import Missing
from k8s.text.errors import Expired, Forbidden, KubeError, NotFound, Throttled, from_status, without_frames

PAGE_SIZE = 500
# Retries of a 403 or 404 while objects are held; a starting API server sends spurious ones.
REFUSAL_RETRIES = 3
# Longest stretch of applied changes before other tasks get a turn.
TURN_S = 0.002
_CONTINUE = re.compile(rb'"continue": ?"([^"\\]+)"')

T = TypeVar("T")


class Decoder(Protocol[T]):
    """Decoder from bytes to the objects of a mirror."""

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object; raise `msgspec.DecodeError` if it is malformed."""

    def read_list(self, body: bytes) -> tuple[ListMeta, list[T], int]:
        """Decode a list; also return the number of malformed items."""


class MirrorState(msgspec.Struct, frozen=True):
    """The freshness of a mirror's objects."""

    is_synced: bool = False
    """Everything was listed at least once, or the server refused for good."""
    is_live: bool = False
    problem: KubeError | None = None
    is_absent: bool = False
    """The collection is not served, or may not be listed."""
    unreadable: int = 0
    """Objects decoded not at all or in part; see `Meta.unreadable`."""
    listed: int | None = None
    """None before the first page."""
    remaining: int | None = None
    """Objects still to come in the list under way; None if the server does not say."""


class Mirror(Generic[T]):
    """One collection, kept current by `run`; client-go's Reflector and Store in one."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        scopes: tuple[str, ...],
        decoder: Decoder[T],
        meta: Callable[[T], Meta],
        on_change: Callable[[], None],
        probe: ServerProbe | None = None,
        field_selector: str = "",
    ) -> None:
        """Create a mirror of `resource`; `run` or `list_once` fills it.

        `scopes` are namespaces to try, in order, until one may be listed; "" is all of them. `on_change` is
        called after every change of objects or state, and must not block. Mirrors of one cluster share
        a `probe`, in which they wait while it is unreachable.
        """
        self.resource = resource
        self.objects: Mapping[str, T] = {}
        """Objects by uid. Replaced or changed in place: read at once, keep no reference."""
        self.state = MirrorState()
        self.last_seen_s = 0.0
        """Time of the event loop's clock at which `objects` was last known to be current.

        It advances with every watch event. When a watch breaks it becomes the time of the server's last
        answer of any kind: until then a change would have arrived.
        """
        self.missing: Missing | None = None
        self.before_more: Callable[[], Awaitable[None]] | None = None
        """Awaited before more than a page is decoded of the first list."""
        self.first_namespace = ""
        """Namespace of which a page comes before all others if there are several."""
        self._client = client
        self._scopes = scopes
        self._field_selector = field_selector
        self._scope = 0
        self._verb = "list"
        self._version = ""
        self._page_size = PAGE_SIZE
        self._opened_at_s: float | None = None
        self._expired_at_s: float | None = None
        self._refused_scopes: set[int] = set()
        self._refusal_retries = 0
        self._fallbacks = 0
        self._decoder = decoder
        self._meta = meta
        self._on_change = on_change
        self._retry_requested = asyncio.Event()
        self._probe = probe or ServerProbe(client)

    @property
    def namespace(self) -> str:
        """Return the namespace in use, "" for all; not the first scope if that may not be listed."""
        return self._scopes[self._scope]

    def unreadable(self, namespace: str = "") -> Missing | None:
        """Return the objects in `namespace` ("" for all) that were not fully decoded, or None."""
        if not self.state.unreadable:
            return None
        metas = [self._meta(each) for each in self.objects.values()]
        bad = [each for each in metas if each.unreadable]
        found = [
            f"{e.name} ({e.unreadable})" for e in bad if namespace in ("", e.namespace) or not e.namespace
        ]
        found += ["one without a name"] * (self.state.unreadable - len(bad))
        names = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        why = f"Of {self.resource.plural} some cannot be read in full: {names}."
        return Missing("read", self.resource.full_name, namespace, why=why) if found else None

    def retry_now(self) -> None:
        """Retry now instead of after the delay."""
        self._retry_requested.set()

    async def list_once(self) -> None:
        """List everything once, without a watch.

        Raises:
            KubeError: The server refused or did not answer.
        """
        while True:
            try:
                return await self._list()
            except (Forbidden, NotFound) as error:
                if not self._try_next_scope(error):
                    self._accept_refusal(error)
                    raise

    async def check_server(self) -> None:
        """List one object to check that the server and its storage answer.

        Raises:
            KubeError: The server or its storage did not answer.
        """
        answer_s = self._probe.backoff.heartbeat_answer_s
        try:
            with translated(f"hear from the cluster for {answer_s:.0f} s"):
                async with asyncio.timeout(answer_s):
                    await self._client.list_page(self.resource, self.namespace, limit=1)
        except (Forbidden, NotFound, Throttled):
            return  # an answer; list and watch deal with it

    def refuse_list(self) -> None:
        """Record a refusal without a request: a rules review has already shown that the list is forbidden."""
        self._scope = len(self._scopes) - 1
        self._accept_refusal(Forbidden(f"Could not list {self.resource.plural}."))

    async def run(self) -> None:
        """List and watch until cancelled."""
        backoff = self._probe.backoff
        delays = backoff.delays()
        while True:
            problem = await self._list_and_watch()
            open_s = self._was_open_s()
            if open_s > backoff.healthy_s:
                delays = backoff.delays()
            if problem is not None:
                await self._back_off(problem, delays)
                continue
            if self._scope:  # a fallback namespace: the wider scope may be allowed by now
                self._forget_position()
            if open_s < backoff.first_s:  # some proxies end every watch at once
                await pause(self._retry_requested, next(delays))

    async def _list_and_watch(self) -> KubeError | None:
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except KubeError as error:
            return without_frames(error)
        return None

    async def _back_off(self, problem: KubeError, delays: Iterator[float]) -> None:
        problem = await self._probe.explain(problem)
        if isinstance(problem, Expired):
            self._version = ""
            if self._may_list_at_once():
                return
        elif isinstance(problem, (Forbidden, NotFound)) and not self._retries_refusal():
            if not self._try_next_scope(problem):
                self._accept_refusal(problem)
                await pause(self._retry_requested, self._probe.backoff.absent_s)
            return
        self._set_state(problem, is_live=False)
        await self._probe.wait(problem, delays, self._retry_requested)

    def _may_list_at_once(self) -> bool:
        # A 410 now and then is routine, and a list makes up for it. Soon after another one it must wait.
        last_s, self._expired_at_s = self._expired_at_s, asyncio.get_running_loop().time()
        return last_s is None or self._expired_at_s - last_s > self._probe.backoff.healthy_s

    def _retries_refusal(self) -> bool:
        # Refused although it could be read before, or by a server that has just started.
        is_odd = self.objects or self.state.is_synced or self._probe.has_just_recovered
        if not is_odd or self._scope in self._refused_scopes or self._refusal_retries == REFUSAL_RETRIES:
            self._refused_scopes.add(self._scope)
            return False
        self._refusal_retries += 1
        return True

    def _try_next_scope(self, error: KubeError) -> bool:
        if not isinstance(error, Forbidden) or self._scope + 1 == len(self._scopes):
            return False
        refused = self.namespace
        self._scope += 1
        self._fallbacks += 1
        self._version = ""
        self.missing = Missing(self._verb, self.resource.full_name, refused, self.namespace, error.why)
        return True

    def _accept_refusal(self, error: KubeError) -> None:
        # Of a user who may list but not watch, the listed objects stay.
        if self._verb == "list" or isinstance(error, NotFound):
            self.objects = {}
        self._refused_scopes.update(range(self._scope + 1))  # `run` after `list_once` need not doubt it
        self.missing = None
        if isinstance(error, Forbidden):
            self.missing = Missing(self._verb, self.resource.full_name, self.namespace, why=error.why)
        self._forget_position()
        self._set_state(error, is_live=False, is_synced=True, is_absent=True)

    def _forget_position(self) -> None:
        self._scope = 0
        self._version = ""

    def _was_open_s(self) -> float:
        opened_s, self._opened_at_s = self._opened_at_s, None
        return asyncio.get_running_loop().time() - opened_s if opened_s is not None else 0.0

    async def _list(self) -> None:
        self._verb = "list"
        is_first = not self.state.is_synced
        # Only the first list shows its pages as they come; a later one replaces everything at the end.
        shows_pages = is_first and not self.objects
        found: dict[str, T] = {}
        unreadable = 0
        async with aclosing(self._pages()) as pages:
            async for where, items, bad in pages:
                unreadable += bad
                for meta, item in zip(map(self._meta, items), items, strict=True):
                    force_setattr(meta, "resource_version", "")  # needed for the watch only, from the list
                    found[_key(meta)] = item
                if not where.continue_:
                    break
                if shows_pages:
                    self.objects = found
                if is_first:
                    n, left = len(found), where.remaining_item_count
                    self._set_state(None, is_live=False, unreadable=unreadable, listed=n, remaining=left)
                await asyncio.sleep(0)
        self.objects = found
        self._version = where.resource_version
        self._page_size = PAGE_SIZE
        if not self._scope:
            self.missing = None
        self._set_state(
            None, is_live=False, is_synced=True, unreadable=unreadable, listed=len(found), remaining=0
        )

    async def _pages(self) -> AsyncGenerator[tuple[ListMeta, list[T], int], None]:
        token, coming = "", None
        try:
            for pages in count(1):
                body = await (coming or self._fetch_page(token))
                # Servers write the token first, so the next page is on its way while this one is decoded.
                found = _CONTINUE.search(body, 0, 2048)
                ahead = found[1].decode() if found is not None else ""
                gate = self.before_more if pages == 1 and not self.state.is_synced else None
                if gate is not None and ahead and self.first_namespace and not self.namespace:
                    own = self._decoder.read_list(await self._fetch_page("", self.first_namespace))
                    yield replace(own[0], continue_=ahead, remaining_item_count=None), own[1], 0
                    await gate()
                    gate = None
                coming = asyncio.create_task(self._fetch_page(ahead)) if ahead and gate is None else None
                await asyncio.sleep(0)
                page = self._decoder.read_list(body)
                yield page
                previous, token = token, page[0].continue_
                check_page(f"list {self.resource.plural}", pages, token, previous)
                if gate is not None:
                    await gate()
                if coming is not None and ahead != token:
                    coming.cancel()
                    coming = None
        except msgspec.DecodeError as error:
            raise unparsable(f"Could not list {self.resource.plural}.", str(error)) from error
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _fetch_page(self, token: str, namespace: str = "") -> bytes:
        try:
            return await self._client.list_page(
                self.resource,
                namespace or self.namespace,
                limit=self._page_size,
                continue_token=token,
                field_selector=self._field_selector,
            )
        except Expired:
            # The version expired between two pages. A list without a limit is one answer and cannot.
            self._page_size = 0
            raise

    async def _watch(self) -> None:
        self._verb = "watch"
        backoff = self._probe.backoff
        objects = dict(self.objects)
        self.objects = objects
        open_s = backoff.watch_s
        # End early and try the refused scope again: soon at first, for the refusal may be passing.
        if self._scope:
            open_s = max(1, int(min(open_s, backoff.absent_s * 2.0 ** min(self._fallbacks - 1, 16))))
        lines = self._client.watch(
            self.resource,
            self.namespace,
            version=self._version,
            field_selector=self._field_selector,
            timeout_s=open_s + random.randrange(open_s // 10 + 1),
            grace_s=backoff.grace_s,
            on_open=self._has_opened,
        )
        async with aclosing(lines):
            began_s = perf_counter()
            async for line in lines:
                if line.strip():
                    self._apply(objects, line)
                if perf_counter() - began_s > TURN_S:  # hundreds may have come at once
                    await asyncio.sleep(0)
                    began_s = perf_counter()

    def _has_opened(self) -> None:
        self._opened_at_s = asyncio.get_running_loop().time()
        self._refusal_retries = 0
        if not self._scope:
            self._fallbacks = 0
        self._refused_scopes.discard(self._scope)
        self._set_state(None, is_live=True)

    def _apply(self, objects: dict[str, T], line: bytes) -> None:
        doing = f"watch {self.resource.plural}"
        try:
            event = WATCH_LINE.decode(line)
            if event.type == "ERROR":
                status = _ANY.decode(event.object)
                code = status.get("code") if isinstance(status, dict) else None
                raise from_status(code if isinstance(code, int) else 500, status, doing)
            item = self._decoder.read(event.object) if event.type in ("ADDED", "MODIFIED") else None
            meta = self._meta(item) if item is not None else _OBJECT.read(event.object).metadata
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._version = ""  # the change in this line is lost: list again
            raise unparsable(f"Could not {doing}.", f"The server sent a broken line: {error}") from error
        if meta.resource_version:
            self._version = meta.resource_version
        if event.type == "BOOKMARK":
            return  # proves nothing: a server whose etcd hangs still sends bookmarks from its cache
        self.last_seen_s = asyncio.get_running_loop().time()
        was_bad = (before := objects.pop(_key(meta), None)) is not None and self._meta(before).unreadable
        if item is not None:
            objects[meta.uid] = item
        bad = self.state.unreadable + bool(item is not None and meta.unreadable) - bool(was_bad)
        if bad != self.state.unreadable:
            self._set_state(None, is_live=True, unreadable=bad)
        else:
            self._on_change()

    def _set_state(
        self, problem: KubeError | None, *, is_live: bool, is_absent: bool = False, **changes: Any
    ) -> None:
        if problem is not None and self.state.is_live:
            self.last_seen_s = max(self.last_seen_s, self._client.last_seen_s)
        self.state = replace(self.state, problem=problem, is_live=is_live, is_absent=is_absent, **changes)
        if problem is None:
            self.last_seen_s = asyncio.get_running_loop().time()
        self._on_change()


def _key(meta: Meta) -> str:
    if not meta.uid:  # objects without one would hide each other
        force_setattr(meta, "uid", f"{meta.namespace}/{meta.name}")
    return meta.uid


_OBJECT: Reader[AnyObject] = Reader(AnyObject)
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
