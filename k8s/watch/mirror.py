"""Keeps one collection of objects as the server has it: list, watch, list again when it must.

It never ends by itself. While the cluster is away the last good objects stay, and
`state` says since when and why.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from k8s.client.client import Client
from k8s.client.transport import not_understood
from k8s.errors import Expired, Forbidden, KubeError, NotFound, from_status
from k8s.models import WATCH_LINE, ListMeta, Meta, Reader, WatchEvent
from k8s.models.resources import Resource
from k8s.snapshot import Missing
from k8s.watch.backoff import ServerProbe, pause

PAGE_SIZE = 500
"""Objects in one page of a list."""
DOUBTS = 3
"""Times that a refusal is doubted while there are objects: a server that starts says 403 and 404 of much."""

T = TypeVar("T")


class Decoder(Protocol[T]):
    """Turns bytes into the values that a mirror keeps."""

    def read(self, body: bytes | msgspec.Raw) -> T:
        """Decode one object; raises `msgspec.DecodeError`."""

    def read_list(self, body: bytes) -> tuple[ListMeta, list[T], int]:
        """Decode a list; returns also how many items made no sense."""


@dataclass(frozen=True, slots=True)
class MirrorState:
    """How far a mirror can be trusted."""

    is_synced: bool = False
    """Everything was listed at least once, or is known not to be readable."""
    is_live: bool = False
    """A watch is open, so that changes come by themselves."""
    problem: KubeError | None = None
    """Why it is not live."""
    is_absent: bool = False
    """The problem is taken for an answer: it is not served here, or may not be read."""
    unreadable: int = 0
    """Objects that made no sense and were left out."""
    listed: int = 0
    """Objects that the list has brought so far."""
    remaining: int | None = None
    """Objects that it is still to bring; None when the server does not tell."""


class Mirror(Generic[T]):
    """One collection, kept up to date by `run`: what client-go calls a Reflector and its store."""

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
        """Prepare to mirror `resource`.

        Args:
            client: The cluster.
            resource: What to mirror.
            scopes: Namespaces to try, in order, until one may be listed; "" is all of them.
            decoder: Reads its objects.
            meta: Finds an object's metadata.
            on_change: Called after every change of objects or state; must return at once.
            probe: Where to wait while the cluster is away; mirrors of one cluster share it.
            field_selector: Which objects are meant, as the API words it; empty for all.
        """
        self.resource = resource
        """What is mirrored."""
        self.objects: Mapping[str, T] = {}
        """The objects by uid. Replaced or changed in place; read it at once, keep no copy."""
        self.state = MirrorState()
        """How far `objects` can be trusted. The same value while that does not change."""
        self.heard_at_s = 0.0
        """When it was last known to be as the server has it, in seconds of the event loop's clock.

        While a watch is open it grows with what the watch tells. When that ends in trouble it is the
        last time that the server was heard at all: until then a change would have come.
        """
        self.missing: Missing | None = None
        """What of it may not be read, if anything."""
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
        self._doubts = 0
        self._decoder = decoder
        self._meta = meta
        self._on_change = on_change
        self._retry_asked = asyncio.Event()
        self._probe = probe or ServerProbe(client)

    @property
    def namespace(self) -> str:
        """Return the namespace of the scope in use, empty for all: a fallback where all may not be listed."""
        return self._scopes[self._scope]

    def retry_now(self) -> None:
        """Try again now instead of after the delay."""
        self._retry_asked.set()

    async def list_once(self) -> None:
        """List everything once, without a watch.

        Raises:
            KubeError: It could not be listed.
        """
        while True:
            try:
                return await self._list()
            except (Forbidden, NotFound) as error:
                if not self._try_next_scope(error):
                    self._accept_refusal(error)
                    raise

    def refuse_list(self) -> None:
        """Take it for refused without asking: it is known that this user may not list it."""
        self._scope = len(self._scopes) - 1
        self._accept_refusal(Forbidden(f"Could not list {self.resource.plural}."))

    async def run(self) -> None:
        """List and watch for ever."""
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
            if self._scope:
                self._forget_position()
            if open_s < backoff.first_s:
                await pause(self._retry_asked, next(delays))

    async def _list_and_watch(self) -> KubeError | None:
        """List unless a resource version is known, watch until that ends; return why if that is an error."""
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except KubeError as error:
            return error
        return None

    async def _back_off(self, problem: KubeError, delays: Iterator[float]) -> None:
        """Note what went wrong, and wait until it makes sense to try again."""
        problem = await self._probe.explain(problem)
        if isinstance(problem, Expired):
            self._version = ""
            if self._may_list_at_once():
                return
        elif isinstance(problem, (Forbidden, NotFound)) and not self._doubts_refusal():
            if not self._try_next_scope(problem):
                self._accept_refusal(problem)
                await pause(self._retry_asked, self._probe.backoff.absent_s)
            return
        self._set_state(problem, is_live=False)
        await self._probe.wait(problem, delays, self._retry_asked)

    def _may_list_at_once(self) -> bool:
        """Tell whether a forgotten version is the usual thing: seldom, and made good by a list."""
        last_s, self._expired_at_s = self._expired_at_s, asyncio.get_running_loop().time()
        return last_s is None or self._expired_at_s - last_s > self._probe.backoff.healthy_s

    def _doubts_refusal(self) -> bool:
        """Tell whether a refusal contradicts what was there a moment ago."""
        if not self.objects or self._scope in self._refused_scopes or self._doubts == DOUBTS:
            self._refused_scopes.add(self._scope)
            return False
        self._doubts += 1
        return True

    def _try_next_scope(self, error: KubeError) -> bool:
        """Fall back to the next namespace, if all of them may not be read and there is one."""
        if not isinstance(error, Forbidden) or self._scope + 1 == len(self._scopes):
            return False
        refused = self.namespace
        self._scope += 1
        self._version = ""
        self.missing = Missing(self._verb, self.resource.full_name, refused, self.namespace, error.why)
        return True

    def _accept_refusal(self, error: KubeError) -> None:
        """Take a refusal for an answer: there is nothing to show, or nothing but what was listed."""
        if self._verb == "list" or isinstance(error, NotFound):
            self.objects = {}
        self.missing = None
        if isinstance(error, Forbidden):
            self.missing = Missing(self._verb, self.resource.full_name, self.namespace, why=error.why)
        self._forget_position()
        self._set_state(error, is_live=False, is_synced=True, is_absent=True)

    def _forget_position(self) -> None:
        """Ask for everything again the next time: a refusal may be over."""
        self._scope = 0
        self._version = ""

    def _was_open_s(self) -> float:
        """Return how long the last watch was open, in seconds."""
        opened_s, self._opened_at_s = self._opened_at_s, None
        return asyncio.get_running_loop().time() - opened_s if opened_s is not None else 0.0

    async def _list(self) -> None:
        """Fetch every page. The first time rows appear as they come; later all at once at the end."""
        self._verb = "list"
        is_first = not self.state.is_synced
        shows_pages = is_first and not self.objects
        found: dict[str, T] = {}
        unreadable = 0
        token = ""
        while True:
            where, items, bad = await self._fetch_page(token)
            unreadable += bad
            for item in items:
                found[self._meta(item).uid] = item
            token = where.continue_
            if not token:
                break
            if shows_pages:
                self.objects = found
            if is_first:
                count = where.remaining_item_count
                self._set_state(
                    None, is_live=False, unreadable=unreadable, listed=len(found), remaining=count
                )
            await asyncio.sleep(0)
        self.objects = found
        self._version = where.resource_version
        self._page_size = PAGE_SIZE
        if not self._scope:
            self.missing = None
        self._set_state(
            None, is_live=False, is_synced=True, unreadable=unreadable, listed=len(found), remaining=0
        )

    async def _fetch_page(self, token: str) -> tuple[ListMeta, list[T], int]:
        """Return where the list stands, one page's objects, and how many more made no sense."""
        try:
            body = await self._client.list_page(
                self.resource,
                self.namespace,
                limit=self._page_size,
                continue_token=token,
                field_selector=self._field_selector,
            )
            return self._decoder.read_list(body)
        except Expired:
            # Between two pages. Asked for as a whole, a list takes one answer and cannot expire.
            self._page_size = 0
            raise
        except msgspec.DecodeError as error:
            raise not_understood(f"Could not list {self.resource.plural}.", str(error)) from error

    async def _watch(self) -> None:
        """Apply the events of one watch until the server ends it."""
        self._verb = "watch"
        backoff = self._probe.backoff
        objects = dict(self.objects)
        self.objects = objects
        lines = self._client.watch(
            self.resource,
            self.namespace,
            version=self._version,
            field_selector=self._field_selector,
            timeout_s=backoff.watch_s + random.randrange(backoff.watch_s // 10 + 1),
            grace_s=backoff.grace_s,
            on_open=self._has_opened,
        )
        async with aclosing(lines):
            async for line in lines:
                if line.strip():
                    self._apply(objects, line)

    def _has_opened(self) -> None:
        self._opened_at_s = asyncio.get_running_loop().time()
        self._doubts = 0
        self._refused_scopes.discard(self._scope)
        self._set_state(None, is_live=True)

    def _apply(self, objects: dict[str, T], line: bytes) -> None:
        """Do what one line of a watch says. There may be thousands a second.

        Raises:
            ServerFailed: It makes no sense at all. What it said is lost, so list again.
            KubeError: It says that the watch is over.
        """
        doing = f"watch {self.resource.plural}"
        try:
            event = WATCH_LINE.decode(line)
            if event.type == "ERROR":
                status = _ANY.decode(event.object)
                code = status.get("code") if isinstance(status, dict) else None
                raise from_status(code if isinstance(code, int) else 500, status, doing)
            meta, item = self._read(event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._version = ""
            raise not_understood(f"Could not {doing}.", f"The server sent a broken line: {error}") from error
        self.heard_at_s = asyncio.get_running_loop().time()
        if meta.resource_version:
            self._version = meta.resource_version
        if item is not None:
            objects[meta.uid] = item
        elif event.type == "BOOKMARK":
            return
        else:
            objects.pop(meta.uid, None)
            if event.type != "DELETED":
                self._set_state(None, is_live=True, unreadable=self.state.unreadable + 1)
                return
        self._on_change()

    def _read(self, event: WatchEvent) -> tuple[Meta, T | None]:
        """Return an event's object, or only its metadata where it is gone or makes no sense."""
        if event.type in ("ADDED", "MODIFIED"):
            try:
                item = self._decoder.read(event.object)
            except msgspec.DecodeError:
                return _OBJECT.read(event.object).metadata, None
            return self._meta(item), item
        return _OBJECT.read(event.object).metadata, None

    def _set_state(
        self, problem: KubeError | None, *, is_live: bool, is_absent: bool = False, **changes: Any
    ) -> None:
        if problem is not None and self.state.is_live:
            self.heard_at_s = max(self.heard_at_s, self._client.heard_at_s)
        self.state = replace(self.state, problem=problem, is_live=is_live, is_absent=is_absent, **changes)
        if problem is None:
            self.heard_at_s = asyncio.get_running_loop().time()
        self._on_change()


class _Object(msgspec.Struct, frozen=True):
    metadata: Meta


_OBJECT: Reader[_Object] = Reader(_Object)
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
