"""Keeps one collection of objects as the server has it: list, watch, list again when the place is lost.

It never ends by itself. While the cluster is away the last good objects stay, and
`state` says since when and why.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from k8s.client import Client
from k8s.errors import Expired, Forbidden, KubeError, NotFound, ServerFailed, Throttled, from_status
from k8s.models import WATCH_LINE, ListMeta, Meta, Reader, WatchEvent
from k8s.resources import Resource

WATCH_S = 290
"""How long the server is asked to keep one watch open, before some jitter."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.8, 30.0
"""Between tries while the cluster is away. Source: client-go's reflector."""
ABSENT_DELAY_S = 60.0
"""Between tries when the kind is not served, or may not be read."""

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
    """Everything was listed at least once."""
    is_live: bool = False
    """A watch is open, so that changes come by themselves."""
    heard_at_s: float = 0.0
    """When the server last said anything, in seconds of the event loop's clock."""
    problem: KubeError | None = None
    """Why it is not live."""
    unreadable: int = 0
    """Objects that made no sense and were left out."""


class Mirror(Generic[T]):
    """One collection, kept up to date by `run`."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        scopes: tuple[str, ...],
        decoder: Decoder[T],
        meta: Callable[[T], Meta],
        on_change: Callable[[], None],
    ) -> None:
        """Prepare to mirror `resource`.

        Args:
            client: The cluster.
            resource: What to mirror.
            scopes: Namespaces to try, in order, until one may be listed; "" is all of them.
            decoder: Reads its objects.
            meta: Finds an object's metadata.
            on_change: Called after every change of objects or state; must return at once.
        """
        self.resource = resource
        """What is mirrored."""
        self.objects: Mapping[str, T] = {}
        """The objects by uid. Replaced or changed in place; read it at once, keep no copy."""
        self.state = MirrorState()
        """How far `objects` can be trusted."""
        self._client = client
        self._scopes = scopes
        self._scope = 0
        self._refused: KubeError | None = None
        self._opened_at_s: float | None = None
        self._version = ""
        self._decoder = decoder
        self._meta = meta
        self._on_change = on_change
        self._poked = asyncio.Event()

    @property
    def namespace(self) -> str:
        """Return the namespace that is mirrored, empty for all."""
        return self._scopes[self._scope]

    @property
    def narrowed(self) -> KubeError | None:
        """Return why fewer namespaces are mirrored than was asked for, if they are."""
        return self._refused if self._scope else None

    def poke(self) -> None:
        """Try again now instead of after the delay."""
        self._poked.set()

    async def list_once(self) -> None:
        """List everything once, without a watch.

        Raises:
            KubeError: It could not be listed.
        """
        while True:
            try:
                return await self._list()
            except Forbidden as error:
                if not self._try_next_scope(error):
                    raise

    async def run(self) -> None:
        """List and watch for ever."""
        delays = _delays()
        while True:
            delay_s = 0.0
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                if self._scope:
                    self._start_over()
                if not self._has_lasted():
                    delay_s = next(delays)
            except Expired as error:
                self._version = ""
                self._say(error, is_live=False)
                delay_s = next(delays)
            except (Forbidden, NotFound) as error:
                if isinstance(error, Forbidden) and self._try_next_scope(error):
                    continue
                self.objects = {}
                self._say(error, is_live=False, is_synced=True)
                self._start_over()
                delay_s = ABSENT_DELAY_S
            except KubeError as error:
                if self._has_lasted():
                    delays = _delays()
                self._say(error, is_live=False)
                delay_s = next(delays)
                if isinstance(error, Throttled):
                    delay_s = max(delay_s, error.retry_after_s)
            if delay_s:
                await self._pause(delay_s)
            else:
                delays = _delays()

    def _try_next_scope(self, error: Forbidden) -> bool:
        """Fall back to the next namespace, if there is one."""
        if self._scope + 1 == len(self._scopes):
            return False
        self._scope += 1
        self._refused = error
        self._version = ""
        return True

    def _start_over(self) -> None:
        """Ask for everything again the next time: a refusal may be over."""
        self._scope = 0
        self._version = ""

    def _has_lasted(self) -> bool:
        """Tell whether the last watch was open for so long that the server is well."""
        opened_s, self._opened_at_s = self._opened_at_s, None
        return opened_s is not None and asyncio.get_running_loop().time() - opened_s > FIRST_DELAY_S

    async def _list(self) -> None:
        """Fetch every page. The first time rows appear as they come; later all at once at the end."""
        is_first = not self.state.is_synced
        found: dict[str, T] = {}
        unreadable = 0
        token = ""
        while True:
            body = await self._client.list_page(self.resource, self.namespace, continue_token=token)
            try:
                where, items, bad = self._decoder.read_list(body)
            except msgspec.DecodeError as error:
                raise ServerFailed(f"Could not list {self.resource.plural}.", str(error)) from error
            unreadable += bad
            for item in items:
                found[self._meta(item).uid] = item
            token = where.continue_
            if is_first or not token:
                self.objects = found
                self._say(None, is_live=False, is_synced=not token, unreadable=unreadable)
            if not token:
                self._version = where.resource_version
                return
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        """Apply the events of one watch until the server ends it."""
        objects = dict(self.objects)
        self.objects = objects
        timeout_s = WATCH_S + random.randrange(30)
        lines = self._client.watch(
            self.resource,
            self.namespace,
            version=self._version,
            timeout_s=timeout_s,
            on_open=self._has_opened,
        )
        async with aclosing(lines):
            async for line in lines:
                if line.strip():
                    self._apply(objects, line)

    def _has_opened(self) -> None:
        self._opened_at_s = asyncio.get_running_loop().time()
        self._say(None, is_live=True)

    def _apply(self, objects: dict[str, T], line: bytes) -> None:
        """Do what one line of a watch says.

        Raises:
            ServerFailed: It makes no sense at all. What it said is lost, so list again.
            KubeError: It says that the watch is over.
        """
        doing = f"watch {self.resource.plural}"
        unreadable = self.state.unreadable
        try:
            event = WATCH_LINE.decode(line)
            if event.type == "ERROR":
                status = _ANY.decode(event.object)
                code = status.get("code") if isinstance(status, dict) else None
                raise from_status(code if isinstance(code, int) else 500, status, doing)
            meta, item = self._read(event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._version = ""
            raise ServerFailed(f"Could not {doing}.", f"The server sent a broken line: {error}") from error
        if item is not None:
            objects[meta.uid] = item
        elif event.type != "BOOKMARK":
            objects.pop(meta.uid, None)
            unreadable += event.type != "DELETED"
        self._say(None, is_live=True, unreadable=unreadable)
        if meta.resource_version:
            self._version = meta.resource_version

    def _read(self, event: WatchEvent) -> tuple[Meta, T | None]:
        """Return an event's object, or only its metadata where it is gone or makes no sense."""
        if event.type in ("ADDED", "MODIFIED"):
            try:
                item = self._decoder.read(event.object)
            except msgspec.DecodeError:
                return _OBJECT.read(event.object).metadata, None
            return self._meta(item), item
        return _OBJECT.read(event.object).metadata, None

    def _say(
        self,
        problem: KubeError | None,
        *,
        is_live: bool,
        is_synced: bool | None = None,
        unreadable: int | None = None,
    ) -> None:
        old = self.state
        now = asyncio.get_running_loop().time()
        self.state = MirrorState(
            is_synced=old.is_synced or bool(is_synced),
            is_live=is_live,
            heard_at_s=now if problem is None else old.heard_at_s,
            problem=problem,
            unreadable=old.unreadable if unreadable is None else unreadable,
        )
        self._on_change()

    async def _pause(self, delay_s: float) -> None:
        self._poked.clear()
        try:
            await asyncio.wait_for(self._poked.wait(), delay_s)
        except TimeoutError:
            return


class _Object(msgspec.Struct, frozen=True):
    metadata: Meta


_OBJECT: Reader[_Object] = Reader(_Object)
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _delays() -> Iterator[float]:
    delay = FIRST_DELAY_S
    while True:
        yield delay * random.uniform(1.0, 1.5)
        delay = min(delay * 2, LONGEST_DELAY_S)
