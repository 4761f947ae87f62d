"""Lists in pages, and watches: both show the store as it was at one version and from there on."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping

import msgspec
from aiohttp import web

from k8s.errors import Expired
from k8s.sandbox.api import api_errors
from k8s.sandbox.api.api_errors import StatusCause
from k8s.sandbox.api.http.representations import Representation
from k8s.sandbox.api.queries import Whole, read_query
from k8s.sandbox.api.served import ServedResource
from k8s.sandbox.api.storage.selectors import from_query
from k8s.sandbox.api.storage.store import Change, Record, Store

BOOKMARK_S = 60.0
"""How often a watch that asked for it is told the current version."""
WATCH_S = 1800
"""How long a watch lasts that names no timeout."""
EVENTS_PER_WRITE = 200
"""How many events go into one write, so that a flood leaves room for others."""
INITIAL_END = {"k8s.io/initial-events-end": "true"}


class ListQuery(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of a list or watch."""

    label_selector: str = ""
    field_selector: str = ""
    resource_version: Whole = 0
    """0 when the newest is meant."""
    resource_version_match: str = ""
    """Exact, NotOlderThan, or empty."""
    limit: Whole = 0
    token: str = msgspec.field(name="continue", default="")
    """Where the page before this one ended."""
    timeout_s: Whole = msgspec.field(name="timeoutSeconds", default=0)
    """0 for the usual time."""
    allow_watch_bookmarks: bool = False
    send_initial_events: bool = False
    """Whether a watch says where what is there ends."""
    watch: bool = False


class Listing:
    """What a list or watch request asks for."""

    def __init__(self, served: ServedResource, namespace: str, query: Mapping[str, str]) -> None:
        """Read the parameters of a request.

        Raises:
            ApiError: One of them makes no sense.
        """
        self.served = served
        self.namespace = namespace
        self.query = asked = read_query(query, ListQuery)
        """The parameters."""
        self.selector = from_query(served, asked.label_selector, asked.field_selector)
        """Tells whether an object is meant; None when all are."""
        match = asked.resource_version_match
        if match and "resourceVersion" not in query and not asked.send_initial_events:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise api_errors.invalid_options(
                "ListOptions", StatusCause.forbidden("resourceVersionMatch", why)
            )
        if match not in ("", "Exact", "NotOlderThan"):
            cause = StatusCause.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan"))
            raise api_errors.invalid_options("ListOptions", cause)


def page(store: Store, asked: Listing, form: Representation) -> bytes:
    """Return a list, or the page of it that was asked for.

    Raises:
        ApiError: That version is forgotten, or not there yet.
    """
    version, start = store.version, ""
    query = asked.query
    if query.token:
        version, start = _from_token(query.token)
    elif query.resource_version:
        if query.resource_version > store.version:
            raise api_errors.version_too_large(query.resource_version, store.version)
        if query.resource_version_match == "Exact" or (query.limit and not query.resource_version_match):
            version = query.resource_version
    try:
        records = store.records(asked.served.key, asked.namespace, version=version)
    except Expired as error:
        why = "The resourceVersion for the provided list is too old."
        if query.token:
            why = "The provided continue parameter is too old. Start a new list without it."
        raise api_errors.expired(why) from error
    found: list[Record] = []
    meta: dict[str, object] = {"resourceVersion": str(version)}
    for index, record in enumerate(records):
        if start and f"{record.namespace}/{record.name}" <= start:
            continue
        if asked.selector is not None and not asked.selector(record.obj):
            continue
        if query.limit and len(found) == query.limit:
            meta["continue"] = _to_token(version, found[-1])
            if asked.selector is None:
                meta["remainingItemCount"] = len(records) - index
            break
        found.append(record)
    return form.many(found, meta)


async def watch(
    store: Store,
    asked: Listing,
    form: Representation,
    request: web.Request,
    stopping: asyncio.Event,
) -> web.StreamResponse:
    """Send what changes, until the client leaves, the time is over or the server stops."""
    key = asked.served.key
    query = asked.query
    version = query.resource_version or store.version
    initial: list[bytes] = []
    if not query.resource_version:
        records = store.records(key, asked.namespace)
        chosen = (each for each in records if asked.selector is None or asked.selector(each.obj))
        initial = [_line("ADDED", form.record(record)) for record in chosen]
        if query.send_initial_events and query.allow_watch_bookmarks:
            initial.append(_bookmark(asked.served, version, INITIAL_END))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for at in range(0, len(initial), EVENTS_PER_WRITE):
        await response.write(b"".join(initial[at : at + EVENTS_PER_WRITE]))
    ends = time.monotonic() + (query.timeout_s or WATCH_S)
    bookmark_due = time.monotonic() + BOOKMARK_S
    with store.listening(key) as changed:
        while not stopping.is_set():
            changed.clear()
            try:
                changes = store.changes_after(key, version)
            except Expired as error:
                gone = api_errors.expired(error.why).status
                await response.write(_line("ERROR", msgspec.json.encode(gone)))
                break
            for at in range(0, len(changes), EVENTS_PER_WRITE):
                events = (_event(change, asked, form) for change in changes[at : at + EVENTS_PER_WRITE])
                if written := b"".join(filter(None, events)):
                    await response.write(written)
            version = max(version, changes[-1].version if changes else 0)
            if changed.is_set():
                continue
            # Everything up to here has been looked at, whatever its kind.
            version = max(version, store.version)
            now = time.monotonic()
            if query.allow_watch_bookmarks and now >= min(bookmark_due, ends):
                await response.write(_bookmark(asked.served, version))
                bookmark_due = now + BOOKMARK_S
            if now >= ends:
                break
            try:
                async with asyncio.timeout(
                    (min(bookmark_due, ends) if query.allow_watch_bookmarks else ends) - now
                ):
                    await changed.wait()
            except TimeoutError:
                continue
    await response.write_eof()
    return response


def _event(change: Change, asked: Listing, form: Representation) -> bytes:
    """Write a change as somebody with this selector sees it; empty when they do not see it."""
    there = change.new or change.old
    assert there is not None
    if asked.namespace and there.namespace != asked.namespace:
        return b""
    selector = asked.selector
    was = change.old is not None and (selector is None or selector(change.old.obj))
    if change.new is not None and (selector is None or selector(change.new.obj)):
        return _line("MODIFIED" if was else "ADDED", form.record(change.new))
    if not was or change.old is None:
        return b""
    last = change.old.obj
    last = {**last, "metadata": {**last["metadata"], "resourceVersion": str(change.version)}}
    return _line("DELETED", form.obj(last))


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


def _bookmark(served: ServedResource, version: int, annotations: Mapping[str, str] | None = None) -> bytes:
    meta: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    resource = served.resource
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return _line("BOOKMARK", msgspec.json.encode(obj))


def _to_token(version: int, last: Record) -> str:
    words = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{last.namespace}/{last.name}"}
    return base64.urlsafe_b64encode(json.dumps(words).encode()).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, str]:
    try:
        words = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(words["rv"]), str(words["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise api_errors.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
